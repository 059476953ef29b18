"""Backward functions: the gradient of an activation's input, from the gradient of its output.

``dgelu(dy, x)`` is dy · gelu'(x), where ``x`` is what the activation was applied to (CUTLASS's
dGELU and dReLU take the same two). The gradient of a bias is ``sum(dx, axis=-2)``, that of a
dropout is ``dropout`` itself.
"""

from __future__ import annotations

from typing import Any

from ....errors import EpilogueError
from ..tracing import TracedValue, apply
from .activations import GELU_CUBIC, SQRT_2_OVER_PI, gelu_sigmoid, normal_tail, tail_argument
from .elementwise import elementwise, single
from .exponentials import LOG2_E, exp2, sigmoid
from .selection import clamp, maximum, minimum, where

_LOG2_SQRT_2PI = 1.3257480647361592
_SILU_LIMITS = -90.0, 90.0
_GELU_LIMITS = -12.0, 12.0


@elementwise
def drelu(dy: Any, x: Any) -> Any:
    """dy where x > 0 or x is a NaN, else 0: 2 operations. ``x`` may be a condition, such as a
    bitmask that the forward pass has stored: 1 operation.
    """
    if isinstance(x, TracedValue) and x.dtype == "pred":
        return where(x, single(dy, "drelu"), 0.0)
    return where(x <= 0, 0.0, single(dy, "drelu"))


@elementwise
def drelu6(dy: Any, x: Any) -> Any:
    """dy where 0 < x < 6, else 0: 4 operations."""
    return where((x > 0) & (x < 6), single(dy, "drelu6"), 0.0)


@elementwise
def dleaky_relu(dy: Any, x: Any, negative_slope: Any = 0.01) -> Any:
    """dy where x > 0, else negative_slope·dy: 3 operations."""
    dy = single(dy, "dleaky_relu")
    return where(x > 0, dy, dy * negative_slope)


@elementwise
def dsigmoid(dy: Any, x: Any) -> Any:
    """dy · sigmoid(x) (1 − sigmoid(x)), 8 operations, 2 MUFU."""
    e = exp2(abs(single(x, "dsigmoid")) * -LOG2_E)
    r = apply("rcp_approx", e + 1.0)
    return e * r * r * dy


@elementwise
def dtanh(dy: Any, x: Any) -> Any:
    """dy · (1 − tanh²(x)), 8 operations, 2 MUFU."""
    e = exp2(abs(single(x, "dtanh")) * (-2 * LOG2_E))
    r = apply("rcp_approx", apply("fma", e, 0.5, 0.5))
    return e * r * r * dy


@elementwise
def dsoftplus(dy: Any, x: Any, beta: float = 1.0) -> Any:
    """dy · sigmoid(beta·x), 5 operations, 2 MUFU."""
    x = single(x, "dsoftplus")
    return dy * sigmoid(x if beta == 1 else x * beta)


@elementwise
def dhardsigmoid(dy: Any, x: Any) -> Any:
    """dy/6 where −3 < x < 3, else 0: 4 operations."""
    inside = abs(single(x, "dhardsigmoid")) < 3
    return where(inside, single(dy, "dhardsigmoid") * (1 / 6), 0.0)


@elementwise
def dhardswish(dy: Any, x: Any) -> Any:
    """dy · (x/3 + 1/2) where −3 < x < 3, 0 below, dy above: 6 operations."""
    x, dy = single(x, "dhardswish"), single(dy, "dhardswish")
    inner = apply("fma", x, 1 / 3, 0.5)
    return where(x <= -3, 0.0, where(x >= 3, dy, inner * dy))


def _silu_parts(x: TracedValue) -> tuple[TracedValue, TracedValue]:
    """silu(x) and silu'(x), 10 operations, 2 MUFU."""
    low, high = _SILU_LIMITS
    x = maximum(x, low)
    s = sigmoid(x)
    value = x * s
    return value, apply("fma", minimum(value, high), 1.0 - s, s)


@elementwise
def dsilu(dy: Any, x: Any) -> Any:
    """dy · silu'(x), silu' = s + x s (1 − s) with s = sigmoid(x). 10 operations, 2 MUFU; silu' has
    an error of at most 2^-19.
    """
    return dy * _silu_parts(single(x, "dsilu"))[1]


@elementwise
def dswiglu(dy: Any, gate: Any, up: Any) -> Any:
    """The gradients of ``gate`` and ``up`` of ``swiglu(gate, up)``. 12 operations, 2 MUFU."""
    value, derivative = _silu_parts(single(gate, "dswiglu"))
    return dy * up * derivative, dy * value


def _gelu_parts(x: TracedValue, approximate: str) -> tuple[TracedValue, TracedValue]:
    """gelu(x) and gelu'(x)."""
    if approximate == "none":
        u = tail_argument(x)
        tail = normal_tail(u)
        value = apply("fma", u, tail, maximum(x, 0))
        density = exp2(apply("fma", u * u, -LOG2_E / 2, -_LOG2_SQRT_2PI))
        below = apply("fma", u, density, tail)
        return value, where(x < 0, below, 1.0 - below)
    if approximate != "tanh":
        raise EpilogueError(f"approximate must be none or tanh, got {approximate!r:.40}")
    low, high = _GELU_LIMITS
    inner = clamp(x, low, high)
    s = gelu_sigmoid(inner)
    scale = 2 * SQRT_2_OVER_PI
    slope = apply("fma", inner * inner, 3 * GELU_CUBIC * scale, scale) * inner
    return maximum(x, low) * s, apply("fma", slope * s, 1.0 - s, s)


@elementwise
def dgelu(dy: Any, x: Any, approximate: str = "none") -> Any:
    """dy · gelu'(x): 20 operations, 2 MUFU; ``approximate="tanh"``: 14, 2 MUFU. gelu' has an error
    of at most 2^-20 (tanh: 2^-18). Raises EpilogueError for another ``approximate``.
    """
    return dy * _gelu_parts(single(x, "dgelu"), approximate)[1]


@elementwise
def dgeglu(dy: Any, gate: Any, up: Any, approximate: str = "none") -> Any:
    """The gradients of ``gate`` and ``up`` of ``geglu(gate, up)``. 24 operations, 2 MUFU;
    ``approximate="tanh"``: 17, 2 MUFU. Raises EpilogueError for another ``approximate``.
    """
    value, derivative = _gelu_parts(single(gate, "dgeglu"), approximate)
    return dy * up * derivative, dy * value
