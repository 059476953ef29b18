"""Forward-mode derivatives of the operators: ``torch.func.jvp``, dual tensors, Hessians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.errors import ProblemError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
F, forward_ad = torch.nn.functional, torch.autograd.forward_ad
VM = {"device": "vm"}
BF16, F32 = torch.bfloat16, torch.float32
M, K, N = 4, 16, 16


def random(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made.to(dtype)


def matmul(a: Any, b: Any, c: Any) -> Any:
    return tilewright.matmul(a, b, c=c, alpha=2.0, beta=0.5, **VM)


def layer(x: Any, w: Any, bias: Any) -> Any:
    return tilewright.linear(x, w, bias, **VM)


def activated(x: Any, w: Any, bias: Any) -> Any:
    return tilewright.linear(x, w, bias, activation="silu", **VM)


def gated(x: Any, w: Any, bias: Any, gate: Any, residual: Any) -> Any:
    options = {"gate": gate, "residual": residual, "activation": "gelu"}
    return tilewright.linear(x, w, bias, **options, **VM)


def torchs_gated(x: Any, w: Any, bias: Any, gate: Any, residual: Any) -> Any:
    return F.gelu(F.linear(x, gate)) * F.linear(x, w, bias) + residual


X, W, BIAS = (M, K), (N, K), (N,)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...], Any]] = {
    "matmul": (matmul, lambda a, b, c: 2 * a @ b + 0.5 * c, (X, (K, N), (M, N)), F32),
    "linear": (layer, F.linear, (X, W, BIAS), F32),
    "activation": (activated, lambda *t: F.silu(F.linear(*t)), (X, W, BIAS), F32),
    "gate": (gated, torchs_gated, (X, W, BIAS, W, (M, N)), BF16),
}


@pytest.mark.parametrize("name", CASES)
def test_tangents(name: str) -> None:
    ours, theirs, shapes, dtype = CASES[name]
    given, tangents = (
        [random(*shape, dtype=dtype, seed=i + first) for i, shape in enumerate(shapes)]
        for first in (0, 10)
    )
    tolerance = {"rtol": 5e-2, "atol": 0.2} if dtype is BF16 else {"rtol": 1e-4, "atol": 1e-4}
    want = torch.func.jvp(theirs, tuple(given), tuple(tangents))[1]
    found = torch.func.jvp(ours, tuple(given), tuple(tangents))[1]
    torch.testing.assert_close(found, want, **tolerance)
    with forward_ad.dual_level():
        y = ours(*map(forward_ad.make_dual, given, tangents))
        dual = forward_ad.unpack_dual(y).tangent
    assert torch.equal(dual, found)
    last = torch.func.jvp(lambda t: ours(*given[:-1], t), (given[-1],), (tangents[-1],))[1]
    expected = torch.func.jvp(lambda t: theirs(*given[:-1], t), (given[-1],), (tangents[-1],))[1]
    torch.testing.assert_close(last, expected, **tolerance)


def test_a_tangent_has_the_type_of_its_result() -> None:
    """Not that of a bias, a residual or C, so that the next layer takes it."""
    x, w, bias, residual = (random(*s, dtype=t) for s, t in zip(
        (X, W, BIAS, (M, N)), (BF16, BF16, F32, F32), strict=True
    ))  # fmt: skip

    def two(x: Any, bias: Any, residual: Any) -> Any:
        y = tilewright.linear(x, w, bias, activation="gelu", residual=residual, **VM)
        return tilewright.linear(y, w, **VM)

    def torchs(x: Any, bias: Any, residual: Any) -> Any:
        wide = w.float()
        return F.linear(F.gelu(F.linear(x.float(), wide, bias)) + residual, wide)

    given = x, bias, residual
    found, want = (torch.func.jvp(f, given, given)[1] for f in (two, torchs))
    assert found.dtype is BF16
    torch.testing.assert_close(found.float(), want, rtol=5e-2, atol=0.3)
    packed = tilewright.quantize_weight(random(N, K), "s4", group=16)
    for layer in (
        lambda b: tilewright.linear(x, packed, b, **VM),
        lambda b: tilewright.linear(x, packed, b, activation="relu", **VM),
    ):
        assert torch.func.jvp(layer, (bias,), (bias,))[1].dtype is BF16


def test_hessians() -> None:
    x, w, bias = random(2, 16), random(16, 16), random(16)
    found, want = (
        torch.func.hessian(lambda x, f=f: f(x, w, bias).sum())(x)
        for f in (activated, lambda *t: F.silu(F.linear(*t)))
    )
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorized_jacobians(strategy: str) -> None:
    x, w = random(2, 16), random(16, 4)

    def jacobian(product: Any) -> Any:
        options = {"vectorize": True, "strategy": strategy}
        return torch.autograd.functional.jacobian(lambda x: product(x, w), x, **options)

    found = jacobian(lambda x, w: tilewright.matmul(x, w, **VM))
    torch.testing.assert_close(found, jacobian(torch.matmul), rtol=1e-5, atol=1e-5)


def test_gradients_of_f64() -> None:
    inputs = [random(*shape, dtype=torch.float64).requires_grad_() for shape in ((2, 4), (4, 4))]
    options = {"check_forward_ad": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(lambda *t: tilewright.matmul(*t, **VM), inputs, **options)


def test_weights_that_are_stored_and_groups() -> None:
    x, dx, bias = random(4, 16, dtype=BF16), random(4, 16, dtype=BF16, seed=1), random(16)
    dense = random(16, 16)
    packed = tilewright.quantize_weight(dense, "s4", group=16)
    sparse = tilewright.compress_24(dense.to(BF16), prune="magnitude")
    for w, elements in ((packed, packed.dequantize()), (sparse, sparse.decompress())):
        elements = torch.as_tensor(elements).float()
        found, want = (
            torch.func.jvp(f, (x, bias.to(BF16)), (dx, bias.to(BF16)))[1].float()
            for f in (
                lambda x, b, w=w: tilewright.linear(x, w, b, activation="relu", **VM),
                lambda x, b, w=elements: F.relu(F.linear(x.float(), w, b.float())),
            )
        )
        torch.testing.assert_close(found, want, rtol=2e-2, atol=6e-2)
    stack, offsets = random(2, 16, 16, dtype=BF16), torch.tensor([1, 4])
    found = torch.func.jvp(
        lambda a, b: tilewright.grouped_matmul(a, b, offsets=offsets, **VM), (x, stack), (dx, stack)
    )[1]
    both = (x + dx).float()
    want = torch.cat([both[:1] @ stack[0].float(), both[1:] @ stack[1].float()])
    torch.testing.assert_close(found.float(), want, rtol=2e-2, atol=0.1)


def test_what_has_no_tangent_is_an_error() -> None:
    x, stack = random(2, 16, dtype=BF16), random(2, 16, 16, dtype=BF16)
    indices, weights = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, 1)

    def experts(x: Any) -> Any:
        return tilewright.moe(x, stack, stack, stack, indices, weights, **VM)

    with pytest.raises(ProblemError, match="moe has no forward-mode derivative"):
        torch.func.jvp(experts, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(ProblemError, match="out must be None"):
        tilewright.matmul(forward_ad.make_dual(x, x), stack[0], out=x.clone(), **VM)
