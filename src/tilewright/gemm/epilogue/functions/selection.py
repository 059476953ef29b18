"""Functions for epilogues that are one to four operations: extremes, selection, roots, signs.

Like all functions of epilogues they take values of a traced epilogue function and give such
values. On arrays and numbers they compute the same bits with NumPy. The rounding of every step is
part of the function. Operation counts are those of the PTX that is emitted for one element.
"""

from __future__ import annotations

from typing import Any

from ....dtypes import DType
from .. import tracing
from ..tracing import TracedValue, apply
from .elementwise import elementwise, single, static


@elementwise
def where(condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition holds, else ``y``: 1 operation.

    A condition that is a Python bool chooses while the function is traced.
    """
    if isinstance(condition, bool):
        return x if condition else y
    return apply("select", condition, x, y)


@elementwise
def maximum(x: Any, y: Any) -> Any:
    """The larger of two, 1 operation; a NaN if one is a NaN (f32). +0 is above −0."""
    return _extreme("max", x, y)


@elementwise
def minimum(x: Any, y: Any) -> Any:
    """The smaller of two, 1 operation; a NaN if one is a NaN (f32). −0 is below +0."""
    return _extreme("min", x, y)


def _extreme(name: str, x: Any, y: Any) -> TracedValue:
    types = {v.dtype for v in (x, y) if isinstance(v, TracedValue)}
    floats = "f32" in types or any(isinstance(v, float) for v in (x, y))
    return apply(f"{name}_nan" if floats and "f64" not in types else name, x, y)


@elementwise
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """``x`` limited to [min, max], 2 operations; a NaN stays a NaN. None: no limit."""
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


@elementwise
def fma(x: Any, y: Any, z: Any) -> Any:
    """x·y + z rounded once, 1 operation."""
    return apply("fma", x, y, z)


@elementwise
def absolute(x: Any) -> Any:
    """|x|, 1 operation; ``abs(x)`` of a traced value is the same."""
    return apply("abs", x)


@elementwise
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of ``x`` with the sign of ``y``, 1 operation."""
    return apply("copysign", y, x)


@elementwise
def sign(x: Any) -> Any:
    """1 for x > 0, −1 for x < 0; zeros and NaNs stay as they are. f32, 4 operations."""
    x = single(x, "sign")
    return where(abs(x) > 0, apply("copysign", x, 1.0), x)


@elementwise
def isnan(x: Any) -> Any:
    """The condition that ``x`` is a NaN, 1 operation."""
    return apply("ne", x, x)


@elementwise
def reciprocal(x: Any, approximate: bool = False) -> Any:
    """1/x rounded to nearest. ``approximate``: ``rcp.approx.ftz.f32``, 1 machine instruction with
    an error of at most 1 ulp, in which subnormal operands and results are 0.
    """
    if approximate:
        return apply("rcp_approx", single(x, "an approximate reciprocal"))
    return apply("rcp", x)


@elementwise
def sqrt(x: Any, approximate: bool = False) -> Any:
    """√x rounded to nearest; a NaN for x < 0. ``approximate``: ``sqrt.approx.ftz.f32``, with an
    error of at most 2 ulp, in which subnormal operands are 0.
    """
    if approximate:
        return apply("sqrt_approx", single(x, "an approximate square root"))
    return apply("sqrt", x)


@elementwise
def rsqrt(x: Any) -> Any:
    """1/√x by ``rsqrt.approx.ftz.f32``, 1 operation, at most 2 ulp off: ∞ for 0 and subnormals, a
    NaN for x < 0. f64: 1 / √x by 2 operations.
    """
    if isinstance(x, TracedValue) and x.dtype == "f64":
        return apply("rcp", apply("sqrt", x))
    return apply("rsqrt_approx", single(x, "rsqrt"))


@static("type_")
def cast(x: Any, type_: str | DType) -> Any:
    """``x`` rounded once to a storage type, to nearest even: f16, bf16, e4m3, e5m2, s8, u8, or
    converted to f32, f64, s32.

    8-bit types saturate. As an output it is stored in this type; as an operand it is the rounded
    value. Raises EpilogueError, DtypeError.
    """
    return tracing.cast(x, type_)
