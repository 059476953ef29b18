"""Exponentials, logarithms, tanh, erf and sigmoid in f32, from PTX's approximations and FMAs.

Each docstring states the operations for one element, and the largest error measured over 1.3
million values. An ulp is the distance of neighbouring f32 values at the result. Subnormal operands
of a logarithm and subnormal results count as 0. The polynomials are minimax fits (Lawson's
algorithm) whose coefficients were rounded to f32 one after another.
"""

from __future__ import annotations

from typing import Any

from ..tracing import TracedValue, apply
from .elementwise import elementwise, polynomial, single
from .selection import clamp, copysign, minimum, where

LOG2_E, LOG2_E_LOW = 1.4426950216293335, 1.925963033500912e-08  # their sum is log2(e)
LN_2 = 0.6931471805599453
_EXP_LIMIT = 104.0  # beyond ±104 the result is ∞ or 0

# log(1 + f) = f + f² P(f) for |log2(1 + f)| ≤ 0.5
_LOG1P_NEAR_0 = (
    -0.49999991059303284, 0.3333395719528198, -0.2500182092189789, 0.19961829483509064,
    -0.16568657755851746, 0.14918741583824158, -0.1432226449251175, 0.08751750737428665,
)  # fmt: skip
# log(1 + e) = e P(e) for 0 ≤ e ≤ 1
_LOG1P_TO_1 = (
    0.9999999403953552, -0.49999162554740906, 0.3331310749053955, -0.24799787998199463,
    0.18948829174041748, -0.13347228871418, 0.07466426491737366, -0.02739723026752472,
    0.0047226338647305965,
)  # fmt: skip
# tanh(t) = t + t s P(s), s = t², for t ≤ 0.55
_TANH = (-0.3333294689655304, 0.1332072913646698, -0.05267200991511345, 0.01643787883222103)
# erf(t) = t + t P(t²) for t ≤ 1; log2(erfc(t)) = t P(t) for 1 ≤ t ≤ 4
_ERF_SMALL = (
    0.12837912142276764, -0.37612321972846985, 0.11280151456594467, -0.026710577309131622,
    0.004916755482554436, -0.0005628342623822391,
)  # fmt: skip
_LOG2_ERFC = (
    -1.6256965398788452, -0.9255009889602661, -0.14050817489624023, 0.025485146790742874,
    -0.0021955566480755806,
)  # fmt: skip


@elementwise
def exp2(x: Any) -> Any:
    """2^x by ``ex2.approx.ftz.f32``, 1 operation, at most 2.1 ulp off."""
    return apply("exp2_approx", single(x, "exp2"))


@elementwise
def exp(x: Any, approximate: bool = False) -> Any:
    """e^x. 8 operations, at most 3 ulp off.

    ``approximate``: 2^(x·log2(e)), 2 operations, at most 2 + |x| ulp off.
    """
    x = single(x, "exp")
    if approximate:
        return exp2(x * LOG2_E)
    x = clamp(x, -_EXP_LIMIT, _EXP_LIMIT)  # so that no residual is inf − inf
    power = x * LOG2_E
    residual = apply("fma", x, -LOG2_E_LOW, apply("fma", x, -LOG2_E, power))
    return exp2(power) * apply("fma", residual, -LN_2, 1.0)


def _log1p(f: TracedValue) -> TracedValue:
    """log(1 + f) for |log2(1 + f)| ≤ 0.5, 9 operations."""
    return apply("fma", polynomial(f, _LOG1P_NEAR_0) * f, f, f)


@elementwise
def log(x: Any, approximate: bool = False) -> Any:
    """The natural logarithm. 15 operations, at most 5 ulp off; −∞ for ±0, a NaN for x < 0.

    ``approximate``: log2(x)·ln(2) by 2 operations, with an error of 2^-22 near 1.
    """
    x = single(x, "log")
    binary = apply("log2_approx", x)
    if approximate:
        return binary * LN_2
    return where(abs(binary) < 0.5, _log1p(x - 1.0), binary * LN_2)


@elementwise
def log2(x: Any, approximate: bool = False) -> Any:
    """The logarithm to base 2. 15 operations, at most 4 ulp off; −∞ for ±0, a NaN for x < 0.

    ``approximate``: ``lg2.approx.ftz.f32``, 1 operation, with an error of 2^-22 near 1.
    """
    x = single(x, "log2")
    binary = apply("log2_approx", x)
    if approximate:
        return binary
    return where(abs(binary) < 0.5, _log1p(x - 1.0) * LOG2_E, binary)


@elementwise
def tanh(x: Any, approximate: bool = False) -> Any:
    """The hyperbolic tangent. 15 operations, at most 2 ulp off.

    ``approximate``: ``tanh.approx.f32``, 1 operation, a relative error of 2^-16 on sm_90.
    """
    x = single(x, "tanh")
    if approximate:
        return apply("tanh_approx", x)
    t = abs(x)
    square = t * t
    small = apply("fma", polynomial(square, _TANH) * square, t, t)
    large = apply("fma", apply("rcp_approx", exp2(t * (2 * LOG2_E)) + 1.0), -2.0, 1.0)
    return copysign(where(t < 0.55, small, large), x)


@elementwise
def erf(x: Any) -> Any:
    """The error function. 19 operations, at most 3 ulp off."""
    x = single(x, "erf")
    t = minimum(abs(x), 4.0)  # erf(4) is 1 in f32
    small = apply("fma", polynomial(t * t, _ERF_SMALL), t, t)
    large = 1.0 - exp2(polynomial(t, _LOG2_ERFC) * t)
    return copysign(where(t < 1.0, small, large), x)


@elementwise
def sigmoid(x: Any, approximate: bool = False) -> Any:
    """1 / (1 + e^-x). 4 operations; at most 5 ulp or 2^-24 off, for x < 0 at most 2 + |x| ulp.

    ``approximate``: tanh.approx(x/2)/2 + 1/2, 3 operations of which only one runs on the
    multi-function unit, an error of 2^-18. ``1 / (1 + exp(-x))`` is the most precise form.
    """
    x = single(x, "sigmoid")
    if approximate:
        return apply("fma", apply("tanh_approx", x * 0.5), 0.5, 0.5)
    return apply("rcp_approx", exp2(x * -LOG2_E) + 1.0)


@elementwise
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + e^(beta·x)) / beta, and x where beta·x > threshold. 13 operations for beta 1 and a
    threshold of 17 or more, at which the two agree in f32; at most 4 ulp or 2^-24 off, for
    x < 0 at most 3 + |x| ulp.
    """
    x = single(x, "softplus")
    scaled = x if beta == 1 else x * beta
    e = exp2(abs(scaled) * -LOG2_E)
    positive = apply("max_nan", scaled, 0.0)
    value = apply("fma", polynomial(e, _LOG1P_TO_1), e, positive)
    value = value if beta == 1 else value * (1 / beta)
    return value if threshold >= 17 else where(scaled > threshold, x, value)
