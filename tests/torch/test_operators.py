"""The operators of ``tilewright.torch`` on the virtual machine: PyTorch's own checks of operators,
their gradients against finite differences and against torch's layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.errors import DtypeError, EpilogueError, ProblemError

torch = pytest.importorskip("torch")

from tilewright.torch import activation_gradients, registration  # noqa: E402

pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
F = torch.nn.functional
VM = {"device": "vm"}
M, K, N = 6, 16, 16


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def normal(*shape: int, dtype: Any = torch.float32, grad: bool = True) -> Any:
    return torch.randn(shape, dtype=dtype).requires_grad_(grad)


def layer_tensors(dtype: Any = torch.float32) -> list[Any]:
    """x, w, bias, gate, residual."""
    shapes = (2, 3, K), (N, K), (N,), (N, K), (2, 3, N)
    return [normal(*shape, dtype=dtype) for shape in shapes]


# --- checks of torch's own ------------------------------------------------------------------------


def operator_calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    x, w, bias, r = normal(M, K), normal(N, K), normal(N), normal(M, N)
    silu = {"activation": "silu"}
    return {
        "matmul": ((x, w, r), {"beta": 2.0, "alpha": 0.5}),
        "linear": ((x, w, bias, None, r), silu),
        "linear_saved": ((x, w, bias, None, r), silu),
        "activation_backward": ((r, normal(M, N)), silu | {"bias": True}),
    }


@pytest.mark.parametrize("name", operator_calls())
def test_opcheck(name: str) -> None:
    """Schema, fake kernel, autograd registration, ahead-of-time autograd with dynamic shapes."""
    arrays, options = operator_calls()[name]
    assert tilewright.torch.linear is tilewright.linear  # the import registers the operators
    operator = getattr(torch.ops.tilewright, name).default
    assert set(torch.library.opcheck(operator, arrays, options | VM).values()) == {"SUCCESS"}


CHECKED_ELSEWHERE = {
    "grouped_matmul", "moe", "moe_saved",  # test_grouped_operators
    "quantize", "quantize_with_scale", "scaled_linear", "fp8_linear", "packed_linear",
    "sparse_linear",  # test_modules
}  # fmt: skip


def test_every_operator_has_an_opcheck() -> None:
    assert {*operator_calls()} | CHECKED_ELSEWHERE == {*registration.FUNCTIONS}


def test_gradcheck_of_products_in_f64() -> None:
    double = torch.float64
    a, b, c = (normal(*shape, dtype=double) for shape in ((2, 3, 4), (4, 3), (2, 3, 3)))
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (lambda a, b, c: tilewright.matmul(a, b, c=c, alpha=2.0, beta=3.0, **VM), (a, b, c)),
        (lambda a, b: tilewright.matmul(a, b, **VM), (normal(4, dtype=double), b)),
        (lambda a, b: tilewright.matmul(a, b, **VM), (normal(3, 4, dtype=double), b[:, 0])),
    ]
    for function, inputs in calls:
        assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(lambda a, b: tilewright.matmul(a, b, **VM), (a[0], b))


@pytest.mark.parametrize("activation", [None, "relu"])
def test_gradcheck_of_layers_in_f64(activation: str | None) -> None:
    x, w, bias, r = (normal(*s, dtype=torch.float64) for s in ((3, 4), (3, 4), (3,), (3, 3)))

    def layer(x: Any, w: Any, bias: Any, r: Any) -> Any:
        return tilewright.linear(x, w, bias, activation=activation, residual=r, **VM)

    assert torch.autograd.gradcheck(layer, (x, w, bias, r))
    assert torch.autograd.gradgradcheck(layer, (x, w, bias, r))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", activation_gradients.FORMULAS)
def test_gradcheck_of_the_gradients_of_activations_in_f64(
    activation: str | None, gated: bool
) -> None:
    """``activation_backward`` in reverse and forward mode and under vmap, and once more."""
    arrays = [normal(3, 4, dtype=torch.float64) for _ in range(3 if gated else 2)]

    def gradients(*arrays: Any) -> tuple[Any, ...]:
        options: dict[str, Any] = {"activation": activation, "bias": True}
        found = tilewright.torch.activation_backward(*arrays, **options, **VM)
        return tuple(x for x in found if x.numel())

    every = {"check_forward_ad": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(gradients, arrays, **every)
    assert torch.autograd.gradgradcheck(gradients, arrays)


# --- layers ---------------------------------------------------------------------------------------

REFERENCES: dict[str | None, Callable[[Any], Any]] = {
    None: lambda x: x, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    **{name: getattr(F, name) for name in ("relu", "relu6", "leaky_relu", "gelu", "silu")},
    **{name: getattr(F, name) for name in ("sigmoid", "tanh", "softplus", "hardswish")},
}  # fmt: skip


def reference(tensors: list[Any], activation: str | None) -> Any:
    x, w, bias, gate, residual = tensors
    y, f = F.linear(x, w, bias), REFERENCES[activation]
    y = f(y) if gate is None else f(F.linear(x, gate)) * y
    return y if residual is None else y + residual


def gradients(y: Any, tensors: list[Any], dy: Any) -> list[Any]:
    return list(torch.autograd.grad(y, [t for t in tensors if t is not None], dy))


@pytest.mark.parametrize("activation", REFERENCES)
def test_a_layers_gradients_are_torchs(activation: str | None) -> None:
    tensors = layer_tensors()
    tensors[3] = None
    x, w, bias, _, residual = tensors
    y = tilewright.linear(x, w, bias, activation=activation, residual=residual, **VM)
    want = reference(tensors, activation)
    torch.testing.assert_close(y, want)
    dy = torch.randn_like(y)
    torch.testing.assert_close(
        gradients(y, tensors, dy), gradients(want, tensors, dy), rtol=1e-5, atol=2e-5
    )


@pytest.mark.parametrize("activation", [None, "silu"])
def test_a_gated_layers_gradients_are_torchs(activation: str | None) -> None:
    """In bf16 beside f64 of the same values: products, values and gradients are rounded to bf16."""
    tensors = layer_tensors(torch.bfloat16)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    x, w, bias, gate, residual = tensors
    y = tilewright.linear(x, w, bias, activation=activation, gate=gate, residual=residual, **VM)
    want, dy = reference(wide, activation), torch.randn_like(y)
    for got, exact in zip(
        [y, *gradients(y, tensors, dy)], [want, *gradients(want, wide, dy.double())], strict=True
    ):
        assert got.dtype == torch.bfloat16
        assert float((got - exact).abs().max()) < 0.02 * float(exact.abs().max())


def test_saved_values_have_gradients() -> None:
    tensors = layer_tensors()
    x, w, bias, *_ = tensors
    saved = tilewright.linear(x, w, bias, activation="silu", save=("preactivation",), **VM)
    assert list(saved) == ["y", "preactivation"]
    p = F.linear(x, w, bias)
    want = torch.autograd.grad(F.silu(p).sum() + (p * p).sum(), (x, w, bias))
    loss = saved["y"].sum() + (saved["preactivation"] ** 2).sum()
    got = torch.autograd.grad(loss, (x, w, bias))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-4)


def test_only_what_needs_a_gradient_gets_one() -> None:
    x, w, bias, *_ = layer_tensors()
    y = tilewright.linear(x.detach(), w, bias.detach(), activation="relu", **VM)
    y.sum().backward()
    torch.testing.assert_close(w.grad, torch.autograd.grad(F.linear(x, w, bias).relu().sum(), w)[0])
    assert x.grad is None and bias.grad is None
    frozen = tilewright.linear(x, w.detach(), **VM)
    torch.testing.assert_close(torch.autograd.grad(frozen.sum(), x)[0], w.sum(0).expand_as(x))


def test_only_what_a_gradient_needs_is_saved() -> None:
    x, w, *_ = layer_tensors()
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        for inputs in ((x, w.detach()), (x.detach(), w)):
            tilewright.linear(*inputs, **VM)
    assert [t.shape for t in saved] == [w.shape, x.shape]


def test_results_with_and_without_a_gradient_have_the_same_bits() -> None:
    x, w, bias, *_ = layer_tensors()
    recorded = tilewright.linear(x, w, bias, activation="gelu", **VM)
    with torch.no_grad():
        plain = tilewright.linear(x, w, bias, activation="gelu", **VM)
    assert recorded.requires_grad and not plain.requires_grad and torch.equal(recorded, plain)


def test_nothing_is_dropped_silently() -> None:
    x, w, *_ = layer_tensors()
    out, one = torch.zeros(2, 3, N), torch.ones(1, requires_grad=True)
    calls: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ProblemError, "out must be None", lambda: tilewright.linear(x, w, out=out)),
        (ProblemError, "out must be None", lambda: tilewright.matmul(x, w.T, out=out)),
        (ProblemError, "alpha must be a number", lambda: tilewright.matmul(x, w.T, alpha=one)),
        (EpilogueError, "activation must be a function or one of",
         lambda: tilewright.linear(x, w, activation="glue")),
        (DtypeError, "a must be f16, bf16, f32 or f64 where a gradient",
         lambda: tilewright.matmul(x.to(torch.float8_e4m3fn), w.T.to(torch.float8_e4m3fn))),
    ]  # fmt: skip
    for error, message, call in calls:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_gradients_of_layers_without_columns(activation: str | None) -> None:
    x, w, bias = normal(2, 3, 0), normal(N, 0), normal(N)
    y = tilewright.linear(x, w, bias, activation=activation, **VM)
    y.sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape
    want = torch.ones(N) if activation is None else torch.func.grad(lambda b: F.gelu(b).sum())(bias)
    assert torch.allclose(bias.grad, 6 * want, atol=1e-3)


def test_wrong_arguments_where_a_gradient_is_recorded() -> None:
    with pytest.raises(TypeError, match="unexpected arguments other"):
        tilewright.matmul(normal(M, K), normal(K, N), other=1, **VM)
    backward = tilewright.torch.activation_backward
    with pytest.raises(ProblemError, match="must have one shape"):
        backward(normal(3, 4), normal(3, 4), normal(4, 3), activation="relu", **VM)
    with pytest.raises(EpilogueError, match="activation must be one of"):
        backward(normal(3, 4).double(), normal(3, 4).double(), activation="other", **VM)
