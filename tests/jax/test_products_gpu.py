"""``tilewright.jax`` on a GPU: XLA's stream, its allocations, gradients; against jnp."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import tilewright.jax  # noqa: E402
import tilewright.kernels  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.fixture(autouse=True)
def _on_a_gpu() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")


def test_programs_on_the_gpu() -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    x, w = (jax.random.normal(k, (256, 512)).astype(jnp.bfloat16) for k in keys)

    def loss(w: jax.Array, product: object) -> jax.Array:
        assert callable(product)
        return (jax.nn.gelu(product(x, w)).astype(jnp.float32) ** 2).mean()

    ours, theirs = (
        jax.jit(jax.value_and_grad(lambda w, f=f: loss(w, f)))(w)
        for f in (tilewright.jax.linear, lambda x, w: x @ w.T)
    )
    assert float(ours[0]) == pytest.approx(float(theirs[0]), rel=2e-2)
    difference = abs(ours[1].astype(jnp.float32) - theirs[1].astype(jnp.float32)).max()
    assert float(difference) < 3e-2 * float(abs(theirs[1]).max())
    batch = jnp.stack([x, 2 * x])
    got = jax.vmap(lambda x: tilewright.jax.matmul(x, w.T))(batch)
    assert float(abs(got - batch @ w.T).max()) < 2.0


def test_layers_on_the_gpu() -> None:
    """Every operand of a layer, its gradients, and a batch of weights; f16 against f32."""
    keys = iter(jax.random.split(jax.random.key(1), 6))
    shapes = (3, 64, 128), (256, 128), (256,), (256, 128), (3, 64, 256)
    arrays = [(jax.random.normal(next(keys), s) / 4).astype(jnp.float16) for s in shapes]

    def ours(x: Any, w: Any, bias: Any, gate: Any, residual: Any) -> Any:
        return tilewright.jax.linear(x, w, bias, activation="silu", gate=gate, residual=residual)

    def theirs(x: Any, w: Any, bias: Any, gate: Any, residual: Any) -> Any:
        return jax.nn.silu(x @ gate.T) * (x @ w.T + bias) + residual

    wide = [x.astype(jnp.float32) for x in arrays]
    for transform in (lambda f: f, _gradients, lambda f: jax.vmap(f, (0, None, None, None, 0))):
        got = jax.tree.leaves(jax.jit(transform(ours))(*arrays))
        expected = jax.tree.leaves(jax.jit(transform(theirs))(*wide))
        for one, other in zip(got, expected, strict=True):
            assert float(abs(one - other).max()) < 1e-2 * float(abs(other).max())


def _gradients(function: Any) -> Any:
    def loss(*arrays: Any) -> Any:
        return (function(*arrays).astype(jnp.float32) ** 2).mean() * 64

    return jax.grad(loss, range(5))


def test_calls_of_arrays_on_the_gpu() -> None:
    """Outside of JAX programs: arrays are read where they are, and results are arrays of JAX."""
    x = jax.random.normal(jax.random.key(2), (64, 128)).astype(jnp.bfloat16)
    d = tilewright.matmul(x, x.T, out_dtype="f32")
    y = tilewright.kernels.softmax(x)
    assert isinstance(d, jax.Array) and isinstance(y, jax.Array)
    wide = x.astype(jnp.float32)
    assert float(abs(d - wide @ wide.T).max()) < 1e-1
    assert float(abs(y - jax.nn.softmax(wide)).max()) < 1e-2
