"""``linear``: a linear layer with bias, activation, gate and residual fused into one kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

from ...errors import EpilogueError, ProblemError
from ...gemm.epilogue import functions
from ...gemm.epilogue.tracing import Epilogue
from ..arrays import array_view
from .matmul import matmul

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": functions.relu,
    "relu6": functions.relu6,
    "leaky_relu": functions.leaky_relu,
    "gelu": functions.gelu,
    "gelu_tanh": lambda x: functions.gelu(x, approximate="tanh"),
    "silu": functions.silu,
    "sigmoid": functions.sigmoid,
    "tanh": functions.tanh,
    "softplus": functions.softplus,
    "hardswish": functions.hardswish,
}
SAVED = ("preactivation", "gate")


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    activation: str | Callable[[Any], Any] | None = None,
    gate: Any = None,
    residual: Any = None,
    save: tuple[str, ...] = (),
    out: Any = None,
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: Any = None,
) -> Any:
    """activation(x wᵀ + bias) + residual, rounded once.

    ``x`` (…, K) and ``w`` (N, K) as torch.nn.functional.linear takes them; ``bias`` (N),
    ``residual`` (…, N). ``activation``: a function of ``tilewright`` or its name: relu, relu6,
    leaky_relu, gelu, gelu_tanh, silu, sigmoid, tanh, softplus, hardswish. With ``gate`` (N, K) the
    result is activation(x gateᵀ) · (x wᵀ + bias) + residual, in one pass over x: SwiGLU with silu.
    The two weights may be halves of one matrix.

    ``save``: values to return besides, rounded to the result's type: ``preactivation`` (x wᵀ +
    bias) and ``gate`` (x gateᵀ). The result then is a dict with the layer's output as ``y``.
    ``out`` (…, N) receives the output. The other arguments are those of ``matmul``.

    >>> y = tilewright.linear(x, w_up, gate=w_gate, activation="silu")

    Raises ProblemError, EpilogueError and what ``matmul`` raises.
    """
    function = _activation(activation)
    _check_saved(save, gate is not None)
    *lead, depth = _shape("x", x, 1)
    columns, _ = _shape("w", w, 2, 2)
    _expect("w", w, (columns, depth))
    rows = prod(lead)
    operands: dict[str, Any] = {}
    if bias is not None:
        _expect("bias", bias, (columns,))
        operands["bias"] = bias
    if residual is not None:
        _expect("residual", residual, (*lead, columns))
        operands["residual"] = residual.reshape(rows, columns)
    b: Any = w.T
    if gate is not None:
        _expect("gate", gate, (columns, depth))
        b = (gate.T, b)
    result = matmul(
        x.reshape(rows, depth), b, epilogue=_epilogue(function, gate is not None, tuple(save)),
        out=None if out is None else _flat_out(out, tuple(lead), columns), out_dtype=out_dtype,
        precision=precision, fast_accum=fast_accum, device=device, config=config, **operands,
    )  # fmt: skip
    named = result if isinstance(result, dict) else {"y": result}
    layer = {name: value.reshape(*lead, columns) for name, value in named.items()}
    if out is not None:
        layer["y"] = out
    return layer if save else layer["y"]


def _check_saved(save: tuple[str, ...], gated: bool) -> None:
    allowed = SAVED if gated else SAVED[:1]
    for name in save:
        if name not in allowed:
            raise EpilogueError(f"save must name some of {', '.join(allowed)}, got {name!r}")


def _flat_out(out: Any, lead: tuple[int, ...], columns: int) -> Any:
    """``out`` as a matrix in the same memory."""
    _expect("out", out, (*lead, columns))
    flat = out.reshape(prod(lead), columns)
    if array_view.view(flat).address != array_view.view(out).address:
        raise ProblemError("out must be a view of a matrix, got strides that need a copy")
    return flat


def _activation(activation: str | Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if activation is None or callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise EpilogueError(
            f"activation must be a function or one of {allowed}, got {activation!r}"
        )
    return ACTIVATIONS[activation]


@lru_cache(maxsize=256)
def _epilogue(
    activation: Callable[[Any], Any] | None, gated: bool, save: tuple[str, ...]
) -> Epilogue:
    def finish(values: dict[str, Any], y: Any, residual: Any) -> Any:
        y = y if residual is None else y + residual
        return {"y": y, **{name: values[name] for name in save}} if save else y

    def activated(x: Any) -> Any:
        return x if activation is None else activation(x)

    def plain(acc: Any, bias: Any = None, residual: Any = None) -> Any:
        x = acc if bias is None else acc + bias
        return finish({"preactivation": x}, activated(x), residual)

    def with_gate(gate: Any, acc: Any, bias: Any = None, residual: Any = None) -> Any:
        x = acc if bias is None else acc + bias
        return finish({"preactivation": x, "gate": gate}, activated(gate) * x, residual)

    return Epilogue(with_gate if gated else plain)


def _shape(name: str, array: Any, least: int, most: int | None = None) -> tuple[int, ...]:
    """The array's shape. Raises ProblemError for a wrong rank."""
    shape = getattr(array, "shape", None)
    expected = f"{least}-D" if least == most else f"at least {least}-D"
    if shape is None:
        raise ProblemError(f"{name} must be an array, got {type(array).__name__}")
    if len(shape) < least or (most is not None and len(shape) > most):
        raise ProblemError(f"{name} must be {expected}, got shape {tuple(shape)}")
    return tuple(shape)


def _expect(name: str, array: Any, shape: tuple[int, ...]) -> None:
    got = _shape(name, array, 1)
    if got != shape:
        raise ProblemError(f"{name} must have shape {shape}, got {got}")
