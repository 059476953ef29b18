"""``tilewright.jax`` on a GPU: XLA's stream, its allocations, gradients; against jnp."""

from __future__ import annotations

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import tilewright.jax  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


def test_programs_on_the_gpu() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
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
