"""The gradient of a layer's epilogue: of activation, gate and bias, in one kernel.

The kernel is a product with the least K, whose epilogue does the work: it reads the gradient of the
layer's output and the saved values, not the accumulator, and stores the gradients of both
accumulators and the column sums that are the bias's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..errors import EpilogueError, ProblemError
from ..gemm.epilogue import functions
from ..gemm.epilogue.functions.activation_table import ACTIVATIONS, DERIVATIVES
from ..run.arrays import array_view
from ..run.call.matmul import matmul
from .registration import autograd_function, call, define
from .vmap_rules import vmap_activation

LEAST_K = 16
"""K of a product whose elements do not matter; rows of A are aligned to 16 bytes."""
_Derivative = Callable[[Any, Any], Any]


def _dsilu(dy: Tensor, x: Tensor, s: Tensor) -> Tensor:
    """dy · silu'(x), s = sigmoid(x): aten's own function has no derivative."""
    return dy * (s + x * s * (1 - s))


_F, _aten = torch.nn.functional, torch.ops.aten
Formula = Callable[[Tensor], Tensor]
FORMULAS: dict[str | None, tuple[Formula, Callable[[Tensor, Tensor], Tensor]]] = {
    None: (lambda x: x, lambda dy, x: dy.clone()),  # an operator's result is no argument
    "relu": (_F.relu, lambda dy, x: _aten.threshold_backward(dy, x, 0)),
    "relu6": (_F.relu6, lambda dy, x: _aten.hardtanh_backward(dy, x, 0, 6)),
    "leaky_relu": (_F.leaky_relu, lambda dy, x: _aten.leaky_relu_backward(dy, x, 0.01, False)),
    "gelu": (_F.gelu, lambda dy, x: _aten.gelu_backward(dy, x)),
    "gelu_tanh": (
        lambda x: _F.gelu(x, approximate="tanh"),
        lambda dy, x: _aten.gelu_backward(dy, x, approximate="tanh"),
    ),
    "silu": (_F.silu, lambda dy, x: _dsilu(dy, x, torch.sigmoid(x))),
    "sigmoid": (torch.sigmoid, lambda dy, x: _aten.sigmoid_backward(dy, torch.sigmoid(x))),
    "tanh": (torch.tanh, lambda dy, x: _aten.tanh_backward(dy, torch.tanh(x))),
    "softplus": (_F.softplus, lambda dy, x: _aten.softplus_backward(dy, x, 1, 20)),
    "hardswish": (_F.hardswish, lambda dy, x: _aten.hardswish_backward(dy, x)),
}
"""Activations and their gradients as torch computes them: for f64, and for second derivatives."""


def activation_backward(
    dy: Tensor,
    preactivation: Tensor,
    gate: Tensor | None = None,
    *,
    activation: str | None = None,
    bias: bool = False,
    out_dtype: torch.dtype | None = None,
    device: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``activation(preactivation)``, or of ``activation(gate) · preactivation``:
    those of ``preactivation`` and ``gate`` in ``out_dtype`` (``preactivation``'s type) and the sums
    of the first over all rows in f32, for a bias. What is not asked for is an empty tensor.

    The arrays have one shape (…, N). Raises EpilogueError for an unknown activation, ProblemError
    for other shapes.
    """
    if activation is not None:
        derivative_of(activation)
    given = [t for t in (dy, preactivation, gate) if t is not None]
    if not dy.ndim or any(t.shape != dy.shape for t in given):
        shapes = ", ".join(str(tuple(t.shape)) for t in given)
        raise ProblemError(f"dy, preactivation and gate must have one shape (…, N), got {shapes}")
    options: dict[str, Any] = {
        "activation": activation,
        "bias": bias,
        "out_dtype": out_dtype,
        "device": device,
    }
    arrays = dy, preactivation, gate
    if array_view.operators(arrays) is None:
        return _kernel(*arrays, **options)
    found: tuple[Tensor, Tensor, Tensor] = call("activation_backward", *arrays, **options)
    return found


def derivative_of(activation: str) -> Callable[[Any, Any], Any]:
    """The backward function of an activation. Raises EpilogueError for an unknown one."""
    if activation not in DERIVATIVES:
        allowed = ", ".join(DERIVATIVES)
        raise EpilogueError(f"activation must be one of {allowed}, got {activation!r}")
    return DERIVATIVES[activation]


@cache
def _epilogue(activation: str | None, gated: bool, bias: bool) -> Callable[..., Any]:
    derivative = None if activation is None else derivative_of(activation)
    forward: Callable[[Any], Any] = lambda x: x  # noqa: E731
    if activation is not None:
        forward = ACTIVATIONS[activation]

    def outputs(dx: Any, dgate: Any = None) -> dict[str, Any]:
        named = {"dx": dx} | ({} if dgate is None else {"dgate": dgate})
        return named | ({"dbias": functions.sum(dx, axis=-2)} if bias else {})

    def plain(acc: Any, dy: Any, x: Any) -> Any:
        return outputs(dy if derivative is None else derivative(dy, x))

    def with_gate(acc: Any, dy: Any, x: Any, gate: Any) -> Any:
        dgate = dy * x
        dgate = dgate if derivative is None else derivative(dgate, gate)
        return outputs(dy * forward(gate), dgate)

    return with_gate if gated else plain


def epilogue_alone(epilogue: Any, like: Tensor, device: str | None, **operands: Any) -> Any:
    """The outputs of an epilogue that does not read its accumulator, for matrices of the shape and
    type of ``like``: a kernel for elementwise functions and reductions.
    """
    rows, columns = like.shape
    a, b = like.new_empty((rows, LEAST_K)), like.new_empty((LEAST_K, columns))
    return matmul(a, b, epilogue=epilogue, device=device, **operands)


def _kernel(
    dy: Tensor, preactivation: Tensor, gate: Tensor | None = None, *, activation: str | None = None,
    bias: bool = False, out_dtype: torch.dtype | None = None, device: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    out_dtype = out_dtype or preactivation.dtype
    if preactivation.dtype is torch.float64 or not preactivation.numel():
        return _reference(dy, preactivation, gate, activation, bias, out_dtype)
    columns, none = preactivation.shape[-1], preactivation.new_empty(0, dtype=out_dtype)
    arrays = {"dy": dy.reshape(-1, columns), "x": preactivation.reshape(-1, columns)}
    if gate is not None:
        arrays["gate"] = gate.reshape(-1, columns)
    epilogue = _epilogue(activation, gate is not None, bias)
    values = epilogue_alone(epilogue, arrays["x"], device, out_dtype=out_dtype, **arrays)
    sums = values.get("dbias", none.new_empty(0, dtype=torch.float32))
    dgate = values["dgate"].reshape(gate.shape) if gate is not None else none
    return values["dx"].reshape(preactivation.shape), dgate, sums


def _reference(
    dy: Tensor, preactivation: Tensor, gate: Tensor | None, activation: str | None, bias: bool,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The same by torch's formulas, which are differentiable."""
    forward, backward = FORMULAS[activation]
    none = preactivation.new_empty(0, dtype=out_dtype)
    dx, dgate = backward(dy, preactivation), none
    if gate is not None:
        dx, dgate = dy * forward(gate), backward(dy * preactivation, gate)
    dbias = none.to(sum_type(dy.dtype))
    if bias:
        dbias = dx.to(dbias.dtype).reshape(-1, dx.shape[-1]).sum(0)
    return dx.to(out_dtype), dgate.to(out_dtype), dbias


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which a bias's gradient is summed: f32, or f64 of f64."""
    return torch.promote_types(dtype, torch.float32)


def _fake(
    dy: Tensor, preactivation: Tensor, gate: Tensor | None = None, *, activation: str | None = None,
    bias: bool = False, out_dtype: torch.dtype | None = None, device: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    like = preactivation.new_empty
    dtype, shape = out_dtype or preactivation.dtype, preactivation.shape
    return (
        like(shape, dtype=dtype),
        like(0 if gate is None else shape, dtype=dtype),
        like(shape[-1] if bias else 0, dtype=sum_type(dy.dtype)),
    )


define(
    "activation_backward(Tensor dy, Tensor preactivation, Tensor? gate=None, *, "
    "str? activation=None, bool bias=False, ScalarType? out_dtype=None, str? device=None) "
    "-> (Tensor, Tensor, Tensor)",
    _kernel,
    _fake,
)


def _save_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.options = keyword_only_inputs


def _second_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of dy, preactivation and gate, by torch's formulas."""
    options, create = ctx.options, torch.is_grad_enabled()
    given = [t for t in ctx.saved_tensors if t is not None]
    with torch.enable_grad():
        inputs = [t if t.requires_grad else t.detach().requires_grad_() for t in given]
        gate = inputs[2] if len(inputs) > 2 else None
        out_dtype = options["out_dtype"] or given[1].dtype
        outputs = _reference(
            inputs[0], inputs[1], gate, options["activation"], options["bias"], out_dtype
        )
        pairs = [
            (y, g) for y, g in zip(outputs, gradients, strict=True)
            if g is not None and y.requires_grad and y.numel()
        ]  # fmt: skip
        if not pairs:
            return (None,) * 3
        ys, gs = zip(*pairs, strict=True)
        found = torch.autograd.grad(ys, inputs, gs, allow_unused=True, create_graph=create)
    return (*found, *(None,) * (3 - len(found)))


def _tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
    """The tangents of the outputs: the gradient of the gradient, a linear function, in reverse mode
    (torch has no formulas for that of aten's backward functions).
    """
    options, given = ctx.given, [t for t in ctx.saved_tensors if t is not None]

    def outputs(dy: Tensor, preactivation: Tensor, gate: Any = None) -> tuple[Tensor, ...]:
        out_dtype = options["out_dtype"] or preactivation.dtype
        return _reference(
            dy, preactivation, gate, options["activation"], options["bias"], out_dtype
        )

    values, pull = torch.func.vjp(outputs, *given)
    _, push = torch.func.vjp(pull, tuple(map(torch.zeros_like, values)))
    pairs = zip(given, tangents, strict=False)
    made: tuple[Tensor, ...] = push(
        tuple(torch.zeros_like(x) if t is None else t for x, t in pairs)
    )
    return made[0] if isinstance(made[0], tuple) else made


autograd_function("activation_backward", _save_context, _second_backward, vmap_activation, _tangent)
