"""``tilewright.jax`` on the CPU: values, gradients, batches, compilation, errors, against jnp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import tilewright  # noqa: E402
import tilewright.jax  # noqa: E402
from tilewright.errors import DtypeError, EpilogueError, ProblemError  # noqa: E402
from tilewright.jax import custom_calls  # noqa: E402
from tilewright.run.arrays.dlpack import compact_strides  # noqa: E402

pytestmark = pytest.mark.vm

matmul, linear = tilewright.jax.matmul, tilewright.jax.linear
KEYS = iter(jax.random.split(jax.random.key(0), 256))
ACTIVATIONS = {
    None: lambda x: x,
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "softplus": jax.nn.softplus,
}


def random(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.random.normal(next(KEYS), shape).astype(dtype)


def agree(got: Any, expected: Any, tolerance: float = 2e-6) -> None:
    """Equal trees of arrays but for rounding, relative to the largest magnitude."""
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert x.shape == y.shape
        error = abs(x.astype(jnp.float32) - y.astype(jnp.float32)).max()
        assert error <= tolerance * abs(y.astype(jnp.float32)).max()


@pytest.mark.parametrize(
    ("a", "b"), [((16,), (16, 12)), ((3, 8, 16), (16,)), ((3, 1, 8, 16), (2, 16, 4))]
)
def test_values_and_gradients_of_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = random(*a), random(*b)
    agree(matmul(x, y), x @ y)
    ours, theirs = (
        jax.jit(jax.grad(lambda x, y, f=f: (f(x, y) ** 2).sum(), (0, 1)))
        for f in (matmul, jnp.matmul)
    )
    agree(ours(x, y), theirs(x, y))


def test_second_derivatives() -> None:
    x, w = random(5, 16), random(16, 12)

    def twice(f: Callable[..., Any]) -> Any:
        first = jax.grad(lambda x: (f(x, w) ** 3).sum())
        return jax.grad(lambda x: first(x).sum())(x)

    agree(twice(matmul), twice(jnp.matmul))


def test_forward_mode_of_products() -> None:
    a, b, da, db = random(3, 8, 16), random(16, 4), random(3, 8, 16), random(16, 4)
    ours, theirs = (jax.jit(lambda *t, f=f: jax.jvp(f, t[:2], t[2:])) for f in (matmul, jnp.matmul))
    agree(ours(a, b, da, db), theirs(a, b, da, db))
    for f in (ours, theirs):
        jax.block_until_ready(f(a, b, da, db))
    rows, moved = random(5, 16), random(5, 16)
    agree(*(jax.vmap(lambda x, d, f=f: jax.jvp(lambda x: f(x, b), (x,), (d,))[1])(rows, moved)
            for f in (matmul, jnp.matmul)))  # fmt: skip


def gated_layers() -> tuple[Callable[..., Any], Callable[..., Any], list[Any]]:
    """A layer with all that it may have, ours and of jnp, and its arrays."""
    shapes = (2, 5, 16), (12, 16), (12,), (12, 16), (2, 5, 12)

    def ours(x: Any, w: Any, bias: Any, gate: Any, residual: Any) -> Any:
        arrays = {"gate": gate, "residual": residual}
        return linear(x, w, bias, activation="softplus", **arrays)

    def theirs(x: Any, w: Any, bias: Any, gate: Any, residual: Any) -> Any:
        return jax.nn.softplus(x @ gate.T) * (x @ w.T + bias) + residual

    return ours, theirs, [random(*s, dtype=jnp.bfloat16) for s in shapes]


def test_forward_mode_of_layers() -> None:
    """Of all arrays, and of each alone."""
    x, w, bias, residual = random(5, 16), random(12, 16), random(12), random(5, 12)
    arrays = [x, w, bias, residual]
    moved = [random(*t.shape) for t in arrays]
    for activation, function in ACTIVATIONS.items():

        def ours(x: Any, w: Any, bias: Any, r: Any, a: Any = activation) -> Any:
            return linear(x, w, bias, activation=a, residual=r)

        def theirs(x: Any, w: Any, bias: Any, r: Any, f: Any = function) -> Any:
            return f(x @ w.T + bias) + r

        agree(*(jax.jit(lambda a, d, f=f: jax.jvp(f, a, d))(arrays, moved)
                for f in (ours, theirs)), 1e-5)  # fmt: skip
    for i in range(4):
        one, other = (
            jax.jvp(
                lambda t, f=f, i=i: f(*arrays[:i], t, *arrays[i + 1 :]), (arrays[i],), (moved[i],)
            )
            for f in (ours, theirs)
        )
        agree(one, other, 1e-5)


def test_forward_mode_of_a_gated_layer() -> None:
    ours, theirs, arrays = gated_layers()
    wide = [t.astype(jnp.float32) for t in arrays]
    got, expected = jax.jvp(ours, arrays, arrays), jax.jvp(theirs, wide, wide)
    assert got[1].dtype == jnp.bfloat16
    agree(got, expected, 2e-2)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_second_derivatives_of_layers(mode: Any) -> None:
    x, w, bias = random(2, 8), random(4, 8), random(4)
    for activation in ("gelu_tanh", "softplus"):
        function = ACTIVATIONS[activation]
        ours, theirs = (
            jax.jit(mode(jax.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), 1)))
            for f in (
                lambda x, w, a=activation: linear(x, w, bias, activation=a),
                lambda x, w, f=function: f(x @ w.T + bias),
            )
        )
        agree(ours(x, w), theirs(x, w), 1e-4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers(activation: str | None) -> None:
    function = ACTIVATIONS[activation]
    x, w, bias, residual = random(2, 5, 16), random(12, 16), random(12), random(2, 5, 12)

    def ours(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        return (linear(x, w, bias, activation=activation, residual=residual) ** 2).sum()

    def theirs(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        return ((function(x @ w.T + bias) + residual) ** 2).sum()

    got, expected = (
        jax.jit(jax.value_and_grad(f, (0, 1, 2, 3)))(x, w, bias, residual) for f in (ours, theirs)
    )
    agree(got, expected)


def test_a_gated_layer_in_bf16() -> None:
    arrays = [random(*shape, dtype=jnp.bfloat16) for shape in ((32, 64), (64, 64), (64, 64))]

    def ours(x: Any, w: Any, gate: Any) -> Any:
        return (linear(x, w, gate=gate, activation="silu").astype(jnp.float32) ** 2).sum()

    def theirs(x: Any, w: Any, gate: Any) -> Any:
        return ((jax.nn.silu(x @ gate.T) * (x @ w.T)) ** 2).sum()

    wide = [x.astype(jnp.float32) for x in arrays]
    agree(jax.jit(jax.grad(ours, (0, 1, 2)))(*arrays), jax.grad(theirs, (0, 1, 2))(*wide), 2e-2)


@pytest.mark.parametrize("batched", [(True, False), (False, True), (True, True)])
def test_batches(batched: tuple[bool, bool]) -> None:
    x, w = (
        random(*((3,) * b), *shape) for b, shape in zip(batched, ((5, 16), (12, 16)), strict=True)
    )
    axes = tuple(0 if b else None for b in batched)
    agree(
        jax.vmap(lambda x, w: matmul(x, w.T), axes)(x, w),
        jax.vmap(lambda x, w: x @ w.T, axes)(x, w),
    )
    ours, theirs = (
        jax.jit(jax.vmap(jax.grad(lambda x, w, f=f: f(x, w).sum(), (0, 1)), axes))
        for f in (lambda x, w: linear(x, w, activation="silu"), lambda x, w: jax.nn.silu(x @ w.T))
    )
    agree(ours(x, w), theirs(x, w))


@pytest.mark.parametrize("batched", [(0, 0), (0, None), (None, 0)])
def test_batches_of_operands_of_different_ranks(batched: tuple[int | None, int | None]) -> None:
    """The batch has the size of a dimension that only one operand has."""
    shapes = ((2, 3, 8), (8, 4)), ((8, 4), (2, 4, 3))
    for pair in shapes:
        x, y = (
            random(*(() if axis is None else (2,)), *shape)
            for shape, axis in zip(pair, batched, strict=True)
        )
        ours, theirs = (
            jax.vmap(jax.value_and_grad(lambda x, y, f=f: (f(x, y) ** 2).sum(), (0, 1)), batched)
            for f in (matmul, jnp.matmul)
        )
        agree(ours(x, y), theirs(x, y))


def test_calls_take_the_arrays_that_xla_has_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU's memory here: the views, and what counts as an array of a call."""

    def device_buffer(buffer: Any, _: Any) -> Any:
        return custom_calls.DeviceBuffer(buffer, 0, buffer.shape, compact_strides(buffer.shape))

    monkeypatch.setattr(custom_calls, "_device_of", lambda _: "cpu")
    monkeypatch.setattr(custom_calls, "_array", device_buffer)
    test_layers("gelu")
    test_a_gated_layer_in_bf16()
    test_batches((True, True))


def test_types() -> None:
    a = random(32, 64, dtype=jnp.bfloat16)
    assert matmul(a, a.T).dtype == jnp.bfloat16
    assert matmul(a, a.T, out_dtype="f32").dtype == jnp.float32
    ones = jnp.ones((4, 32), jnp.int8)
    assert matmul(ones, ones.T).dtype == jnp.int32 and int(matmul(ones, ones.T)[0, 0]) == 32
    assert matmul(jnp.ones((0, 16)), jnp.ones((16, 3))).shape == (0, 3)


def test_errors() -> None:
    a = jnp.ones((4, 6))
    with pytest.raises(ProblemError, match="K of a and b must be equal"):
        matmul(a, a)
    with pytest.raises(ProblemError, match="bias must have shape"):
        linear(a, a, a[0])
    with pytest.raises(EpilogueError, match="activation must be one of"):
        linear(a, a, activation="gel")
    with pytest.raises(DtypeError, match="JAX has f64 disabled"):
        matmul(a, a.T, out_dtype="f64")
    with pytest.raises(jax.errors.JaxRuntimeError, match="unknown device 'no'"):
        jax.block_until_ready(jax.jit(lambda a: tilewright.jax.matmul(a, a.T, device="no"))(a))
    with pytest.raises(ProblemError, match=r"tilewright\.jax\.matmul"):
        jax.jit(lambda a: tilewright.matmul(a, a.T))(a)


TRACED: list[tuple[Any, type[Exception], str]] = [
    (lambda a: matmul(a.astype("int16"), a.T.astype("int16")), DtypeError, "got s16"),
    (lambda a: matmul(a.astype("bool"), a.T.astype("bool")), DtypeError, "got pred"),
    (lambda a: matmul(a, a.T.astype("bfloat16")), DtypeError, "b must be f32 if a is f32"),
    (lambda a: linear(a, a.astype("float16")), DtypeError, "b must be f32 if a is f32"),
    (lambda a: matmul(a, a.T, precision="no"), DtypeError, "precision must be one of"),
    (lambda a: matmul(a, a.T, out_dtype="s32"), DtypeError, "must be f32, got s32"),
    (lambda a: matmul(a, a.T, fast_accum=2), ProblemError, "fast_accum must be True or False"),
]


@pytest.mark.parametrize(("program", "error", "message"), TRACED)
def test_wrong_types_are_errors_when_a_program_is_traced(
    program: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        jax.eval_shape(program, jax.ShapeDtypeStruct((4, 16), jnp.float32))


def test_gradients_of_8_bit_floats_are_refused() -> None:
    a = jax.ShapeDtypeStruct((4, 16), jnp.float8_e4m3fn)
    with pytest.raises(DtypeError, match="a must be f16, bf16, f32 or f64 where a gradient"):
        jax.eval_shape(jax.grad(lambda a: matmul(a, a.T, out_dtype="f32").sum()), a)


def test_symbolic_shapes_are_refused_with_the_reason() -> None:
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("m, 6"), jnp.float32)
    with pytest.raises(ProblemError, match=r"static shape.*a kernel is chosen by the sizes"):
        jax.export.export(jax.jit(lambda a: matmul(a, jnp.ones((6, 4)))))(shape)


def test_training() -> None:
    """A small network learns as one of jnp does."""
    x, target, w1, w2 = random(64, 16), random(64, 4), random(32, 16) / 4, random(4, 32) / 6

    def losses(layer: Callable[..., Any]) -> list[float]:
        def loss(w: Any) -> Any:
            hidden = layer(x, w[0], "gelu_tanh")
            return ((layer(hidden, w[1], None) - target) ** 2).mean()

        @jax.jit
        def step(w: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(w)
            return value, jax.tree.map(lambda w, g: w - 0.1 * g, w, gradients)

        weights, values = (w1, w2), []
        for _ in range(4):
            value, weights = step(weights)
            values.append(float(value))
        return values

    ours = losses(lambda x, w, activation: linear(x, w, activation=activation))
    theirs = losses(lambda x, w, activation: ACTIVATIONS[activation](x @ w.T))
    assert ours == pytest.approx(theirs, rel=1e-5) and ours[-1] < ours[0]
