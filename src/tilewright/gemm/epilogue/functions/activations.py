"""Activation functions with the names and limits of torch.nn.functional, in f32.

A NaN gives a NaN, and no infinity does. Each docstring states the operations for one element; what
runs on the multi-function unit (``ex2``, ``rcp``, ``tanh``) is counted in "MUFU", since a
multiprocessor has eight times as many FMA lanes.
"""

from __future__ import annotations

from typing import Any

from ....errors import EpilogueError
from ..tracing import TracedValue, apply
from .elementwise import elementwise, polynomial, single
from .exponentials import LOG2_E, exp2, sigmoid
from .selection import clamp, maximum, minimum, where

SQRT_2_OVER_PI, GELU_CUBIC = 0.7978845608028654, 0.044715
# log2 Φ(−t) = −1 + t P(t) for t ≥ 0, Φ the normal distribution function; beyond t = 13, where
# Φ(−t) < 2^-127, the polynomial goes on falling.
_LOG2_NORMAL_TAIL = (
    -1.1511342525482178, -0.45897573232650757, -0.053118906915187836, 0.007844781503081322,
    -0.0006544713396579027, -8.336106560591361e-08, 5.070533916295972e-06, -2.981050784001127e-07,
)  # fmt: skip
_TAIL_LIMIT = 16.0  # Φ(−16) is 0
_SILU_LIMIT = -90.0  # sigmoid is 0 there
_GELU_LIMIT = -12.0  # so is the sigmoid of gelu's cubic


@elementwise
def relu(x: Any) -> Any:
    """max(x, 0), 1 operation; a NaN stays a NaN."""
    return maximum(x, 0)


@elementwise
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6), 2 operations."""
    return clamp(x, 0, 6)


@elementwise
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x where x > 0, else negative_slope·x: 2 operations for a number from 0 to 1, else 3. A slope
    that is a traced value makes it prelu.
    """
    x = single(x, "leaky_relu")
    if isinstance(negative_slope, TracedValue):
        return where(x > 0, x, x * negative_slope)
    if negative_slope == 0:
        return relu(x)
    scaled = x * negative_slope
    return maximum(x, scaled) if 0 < negative_slope <= 1 else where(x > 0, x, scaled)


@elementwise
def hardsigmoid(x: Any) -> Any:
    """min(max(x + 3, 0), 6) / 6, 4 operations."""
    return relu6(single(x, "hardsigmoid") + 3.0) * (1 / 6)


@elementwise
def hardswish(x: Any) -> Any:
    """x · min(max(x + 3, 0), 6) / 6, 5 operations; 0 for x ≤ −3."""
    x = maximum(single(x, "hardswish"), -3.0)
    return minimum(x + 3.0, 6.0) * (x * (1 / 6))


@elementwise
def silu(x: Any, approximate: bool = False) -> Any:
    """x · sigmoid(x), 6 operations, 2 MUFU; at most 5 ulp or 2^-24 off. −0 for −∞.

    ``approximate``: x/2 · (1 + tanh.approx(x/2)), 4 operations, 1 MUFU, an error of 2^-18·|x|.
    """
    x = maximum(single(x, "silu"), _SILU_LIMIT)
    if approximate:
        half = x * 0.5
        return apply("fma", apply("tanh_approx", half), half, half)
    return x * sigmoid(x)


def normal_tail(u: TracedValue) -> Any:
    """Φ(u) for −16 ≤ u ≤ 0, 9 operations, 1 MUFU."""
    negated = tuple(c if i % 2 else -c for i, c in enumerate(_LOG2_NORMAL_TAIL))
    return exp2(apply("fma", polynomial(u, negated), u, -1.0))


def tail_argument(x: TracedValue) -> Any:
    """max(−|x|, −16)."""
    return maximum(-abs(x), -_TAIL_LIMIT)


def gelu_sigmoid(x: TracedValue) -> TracedValue:
    """sigmoid(2√(2/π) (x + 0.044715 x³)), for x ≥ −12 and squares of x that are finite or not."""
    scale = -2 * SQRT_2_OVER_PI * LOG2_E
    power = apply("fma", x * x, scale * GELU_CUBIC, scale) * x
    return apply("rcp_approx", exp2(power) + 1.0)


@elementwise
def gelu(x: Any, approximate: str = "none") -> Any:
    """x·Φ(x), Φ the distribution function of the normal distribution. 14 operations, 1 MUFU; at
    most 14 ulp off for x > 0, at most 2^-22 for x < 0 (2^-30 for x < −4). 0 for −∞.

    ``approximate="tanh"``: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), 8 operations, 2 MUFU; at
    most 3 ulp off for x > 0, at most 2^-24 for x < 0. ``"fast_tanh"``: the same by ``tanh.approx``,
    7 operations, 1 MUFU, an error of 2^-17.

    Raises EpilogueError for another ``approximate``.
    """
    x = single(x, "gelu")
    if approximate == "none":
        u = tail_argument(x)
        return apply("fma", u, normal_tail(u), relu(x))
    x = maximum(x, _GELU_LIMIT)
    if approximate == "tanh":
        return x * gelu_sigmoid(x)
    if approximate != "fast_tanh":
        raise EpilogueError(f"approximate must be none, tanh or fast_tanh, got {approximate!r:.40}")
    argument = apply("fma", x * x, SQRT_2_OVER_PI * GELU_CUBIC, SQRT_2_OVER_PI) * x
    half = x * 0.5
    return apply("fma", apply("tanh_approx", argument), half, half)


@elementwise
def swiglu(gate: Any, up: Any) -> Any:
    """silu(gate) · up, 7 operations, 2 MUFU."""
    return silu(gate) * up


@elementwise
def geglu(gate: Any, up: Any, approximate: str = "none") -> Any:
    """gelu(gate) · up, an operation more than ``gelu``."""
    return gelu(gate, approximate) * up
