"""Gradients through epilogue functions: beside torch's own functions, and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import tilewright
from tilewright.errors import DtypeError, EpilogueError, ProblemError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
F = torch.nn.functional
VM = {"device": "vm"}
BF16 = torch.bfloat16


class Case(NamedTuple):
    """An epilogue, torch's function of the accumulators and operands; shapes of A, B, operands."""

    epilogue: Callable[..., Any]
    torchs: Callable[..., Any]
    a: tuple[int, ...]
    b: tuple[int, ...]
    operands: dict[str, tuple[int, ...]]


def dropped(acc: Any, r: Any) -> Any:
    return tilewright.dropout(acc, 0.5, 11) * r


def torchs_dropped(x: Any, r: Any) -> Any:
    return x * torch.as_tensor(tilewright.dropout(torch.ones(x.shape).numpy(), 0.5, 11)) * r


def several(acc: Any, bias: Any) -> Any:
    x = acc + bias
    return {
        "sum": tilewright.sum(x * x, axis=-1), "y": tilewright.exp(x * 0.1), "x": x,
        "total": tilewright.sum(x),
    }  # fmt: skip


def torchs_several(x: Any, bias: Any) -> Any:
    x = x + bias
    return {"sum": (x * x).sum(-1), "y": torch.exp(x * 0.1), "x": x, "total": x.sum()}


def gelu_times(acc: Any, r: Any) -> Any:
    return tilewright.gelu(acc) * r


def torchs_gelu_times(x: Any, r: Any) -> Any:
    return F.gelu(x) * r


A, B = (6, 16), (16, 8)
CASES = {
    "bias": Case(lambda acc, bias: tilewright.relu(acc + bias), lambda x, bias: F.relu(x + bias),
                 A, B, {"bias": (8,)}),
    "column and scalar": Case(lambda acc, s, t: tilewright.silu(acc * t) * s,
                              lambda x, s, t: F.silu(x * t) * s, A, B, {"s": (6, 1), "t": (1,)}),
    "factors": Case(lambda acc, alpha, c: tilewright.tanh(alpha * acc + c),
                    lambda x, alpha, c: torch.tanh(alpha * x + c), A, B,
                    {"alpha": (1,), "c": (6, 8)}),
    "several outputs": Case(several, torchs_several, A, B, {"bias": (8,)}),
    "rows of a stack": Case(gelu_times, torchs_gelu_times, (2, 3, 6, 16), B, {"r": (8,)}),
    "stacks": Case(gelu_times, torchs_gelu_times, (2, 6, 16), (2, 16, 8), {"r": (2, 6, 1)}),
    "broadcast stacks": Case(gelu_times, torchs_gelu_times, (2, 1, 6, 16), (3, 16, 8),
                             {"r": (3, 1, 8)}),
    "dropout": Case(dropped, torchs_dropped, A, B, {"r": (8,)}),
    "dropout of a stack": Case(dropped, torchs_dropped, (2, 6, 16), (2, 16, 8), {"r": (8,)}),
}  # fmt: skip


def normal(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_()


def results_and_gradients(made: Any, tensors: list[Any]) -> list[Any]:
    outputs = list(made.values()) if isinstance(made, dict) else [made]
    dy = [normal(*y.shape, seed=7 + i).detach().to(y.dtype) for i, y in enumerate(outputs)]
    return [*outputs, *torch.autograd.grad(outputs, tensors, dy)]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_torchs(name: str) -> None:
    case = CASES[name]
    a, b = normal(*case.a), normal(*case.b)
    operands = {n: normal(*shape, seed=i) for i, (n, shape) in enumerate(case.operands.items())}
    tensors = [a, b, *operands.values()]
    ours = tilewright.matmul(a, b, epilogue=case.epilogue, **operands, **VM)
    theirs = case.torchs(a @ b, *operands.values())
    found, want = (results_and_gradients(y, tensors) for y in (ours, theirs))
    torch.testing.assert_close(found, want, rtol=1e-5, atol=2e-5)


def test_two_matrices_in_bf16() -> None:
    """A user's own gate, beside f64 of the same values."""
    x, gate, up = (normal(*s, dtype=BF16, seed=i) for i, s in enumerate(((8, 16), *[(16, 16)] * 2)))
    wide = [t.detach().double().requires_grad_() for t in (x, gate, up)]
    y = tilewright.matmul(x, (gate, up), epilogue=lambda g, u: tilewright.gelu(g) * (u + 1.0), **VM)
    want = F.gelu(wide[0] @ wide[1]) * (wide[0] @ wide[2] + 1)
    pairs = zip(
        results_and_gradients(y, [x, gate, up]), results_and_gradients(want, wide), strict=True
    )
    for got, exact in pairs:
        assert got.dtype is BF16
        assert float((got - exact).abs().max()) < 0.03 * float(exact.abs().max())


def test_an_activation_that_is_a_function() -> None:
    shapes = (2, 3, 16), (8, 16), (8,), (2, 3, 8)
    tensors = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    x, w, bias, residual = tensors

    def activation(v: Any) -> Any:
        return tilewright.softplus(v) * v

    p = F.linear(x, w, bias)
    want = results_and_gradients(F.softplus(p) * p + residual, tensors)
    y = tilewright.linear(x, w, bias, activation=activation, residual=residual, **VM)
    torch.testing.assert_close(results_and_gradients(y, tensors), want, rtol=1e-5, atol=2e-5)
    saved = tilewright.linear(x, w, bias, activation=activation, save=("preactivation",), **VM)
    torch.testing.assert_close(saved, {"y": F.softplus(p) * p, "preactivation": p})


def test_first_and_second_derivatives_in_f64() -> None:
    a, b = (normal(*s).detach().double().requires_grad_() for s in ((3, 4), (4, 3)))

    def squared(acc: Any, s: Any) -> Any:
        return tilewright.relu(acc) * acc + s * acc / (2 + acc * acc)

    for shape in ((3,), (3, 1), (1, 3, 3)):
        s = normal(*shape).detach().double().requires_grad_()
        rows = a if len(shape) < 3 else a[None]

        def product(a: Any, b: Any, s: Any) -> Any:
            return tilewright.matmul(a, b, epilogue=squared, s=s, **VM)

        assert torch.autograd.gradcheck(product, (rows, b, s))
        assert torch.autograd.gradgradcheck(product, (rows, b, s))


def test_operands_that_are_defaults_arrays_and_numbers() -> None:
    a, b = normal(2, 6, 16), normal(*B)
    column, twos = normal(6, 1, seed=3).detach().numpy(), torch.ones(8) * 2

    def scaled(acc: Any, s: Any, t: Any = twos, u: float = 3.0, flip: Any = None) -> Any:
        return tilewright.tanh(acc) * s * t * u if flip else acc

    y = tilewright.matmul(a, b, epilogue=scaled, s=column, flip=True, **VM)
    want = torch.tanh(a @ b) * torch.as_tensor(column) * 2 * 3
    found, exact = (results_and_gradients(t, [a, b]) for t in (y, want))
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=2e-5)


def test_what_has_no_gradient() -> None:
    a, b = normal(*A), normal(*B)
    outputs = tilewright.matmul(
        a, b, **VM,
        epilogue=lambda acc: {
            "y": acc, "amax": tilewright.amax(acc), "mask": tilewright.bitmask(acc > 0),
            "q": tilewright.cast(acc, "e4m3"),
        },
    )  # fmt: skip
    assert [y.requires_grad for y in outputs.values()] == [True, False, False, False]
    r = normal(8).detach()
    y = tilewright.matmul(a.detach(), b, epilogue=gelu_times, r=r, **VM)
    assert torch.autograd.grad(y.sum(), b)[0].shape == b.shape and a.grad is None
    empty = normal(0, 16)
    y = tilewright.matmul(empty, b, epilogue=gelu_times, r=r.requires_grad_(), **VM)
    assert all(not g.any() for g in torch.autograd.grad(y.sum(), [empty, b, r]))


def test_compilers_autocast_and_variables() -> None:
    a, b = normal(32, 16), normal(16, 16)
    compiled = torch.compile(
        lambda a, b: tilewright.matmul(a, b, epilogue=lambda acc: tilewright.relu(acc), **VM) * 2,
        backend="aot_eager",
    )
    want = results_and_gradients(F.relu(a @ b) * 2, [a, b])
    torch.testing.assert_close(results_and_gradients(compiled(a, b), [a, b]), want)
    with torch.autocast("cpu", dtype=BF16):
        y = tilewright.matmul(a, b, epilogue=lambda acc: tilewright.relu(acc), **VM)
    assert y.dtype is BF16 and torch.autograd.grad(y.sum(), a)[0].dtype is torch.float32
    for factor in (2.0, 3.0):
        y = tilewright.matmul(a, b, epilogue=lambda acc, f=factor: acc * f, **VM)
        torch.testing.assert_close(
            torch.autograd.grad(y.sum(), a)[0], factor * b.sum(1).expand(32, 16)
        )


def test_transformations_of_torch_func() -> None:
    a, b, r = normal(2, 16).detach(), normal(16, 4).detach(), normal(4).detach()

    def ours(a: Any, b: Any, r: Any) -> Any:
        return tilewright.matmul(a, b, epilogue=gelu_times, r=r, **VM)

    def theirs(a: Any, b: Any, r: Any) -> Any:
        return F.gelu(a @ b) * r

    def every(f: Callable[..., Any]) -> list[Any]:
        per_sample = torch.vmap(
            torch.func.grad(lambda a, b, r: (f(a[None], b, r) ** 2).sum(), (0, 2)), (0, None, None)
        )
        return [
            torch.func.grad(lambda a: (f(a, b, r) ** 2).sum())(a),
            torch.func.vjp(lambda *t: f(*t), a, b, r)[1](torch.ones(2, 4)),
            per_sample(a, b, r),
            torch.func.jacrev(lambda r: f(a, b, r))(r),
            torch.func.grad(lambda r: torch.func.grad(lambda a: f(a, b, r).sum())(a).sum())(r),
        ]

    torch.testing.assert_close(every(ours), every(theirs), rtol=1e-4, atol=1e-5)


def test_errors() -> None:
    a, b = normal(*A), normal(*B)
    bytes_ = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)

    def forward_mode() -> Any:
        return torch.func.jvp(lambda a: tilewright.matmul(a, b, epilogue=abs_, **VM), (a,), (a,))

    calls: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ProblemError, "out must be None",
         lambda: tilewright.matmul(a, b, epilogue=abs_, out=torch.zeros(6, 8), **VM)),
        (EpilogueError, "tensors of matrices",
         lambda: tilewright.matmul(a, b[:, 0], epilogue=abs_)),
        (ProblemError, "matmul with an epilogue has no forward-mode derivative", forward_mode),
        (DtypeError, "a must be f16, bf16, f32 or f64",
         lambda: tilewright.matmul(*bytes_, epilogue=abs_)),
        (TypeError, "unexpected arguments", lambda: tilewright.matmul(a, b, bias=b)),
    ]  # fmt: skip
    for error, message, call in calls:
        with pytest.raises(error, match=message):
            call()


def abs_(acc: Any) -> Any:
    return abs(acc)
