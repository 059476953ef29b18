"""Exact decoding of a number format's bits, and encoding with a single rounding.

Floating point is built on two functions: ``decompose`` splits bits into the integers of
(-1)^negative * significand * 2^exponent, and ``round_to`` rounds such a number to any format.
``decode`` and ``encode`` convert bits to and from NumPy numbers. All functions are vectorized; the
bits of a value are an unsigned integer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .bit_packing import pack_lanes, unpack_lanes
from .dtypes import DTYPES, DType, dtype
from .errors import DtypeError

Array = npt.NDArray[Any]

ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")


class FloatParts(NamedTuple):
    """A number as integers: (-1)^negative * significand * 2^exponent."""

    negative: npt.NDArray[np.bool_]
    significand: npt.NDArray[np.int64]
    exponent: npt.NDArray[np.int64]


def _as_float(t: str | DType) -> DType:
    row = dtype(t)
    if row.kind != "float":
        floats = ", ".join(d.name for d in DTYPES.values() if d.kind == "float")
        raise DtypeError(f"{row.name} is not a floating-point format; those are {floats}")
    return row


def _codes(bits: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Bits as integers; DtypeError for anything else."""
    codes = np.asarray(bits)
    if codes.dtype.kind not in "iubO" and codes.size:
        raise DtypeError(f"bits must be integers, got {codes.dtype}")
    try:
        return codes.astype(np.uint64)
    except (OverflowError, TypeError, ValueError) as error:
        raise DtypeError(f"bits must be integers of 64 bits: {error}") from error


def _magnitude(t: DType, bits: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Exponent and mantissa fields together, as one integer that grows with the magnitude."""
    codes = _codes(bits) >> np.uint64(t.unused)
    return codes & np.uint64((1 << (t.exponent + t.mantissa)) - 1)


def is_nan(t: str | DType, bits: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Where a float's bits are a NaN."""
    t = _as_float(t)
    codes = _magnitude(t, bits)
    return codes > np.uint64(t.max_finite + t.has_inf) if t.has_nan else np.zeros(codes.shape, bool)


def is_inf(t: str | DType, bits: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Where a float's bits are an infinity, of either sign."""
    t = _as_float(t)
    codes = _magnitude(t, bits)
    return codes == np.uint64(t.max_finite + 1) if t.has_inf else np.zeros(codes.shape, bool)


def is_negative(t: str | DType, bits: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Where the sign bit is set."""
    t, codes = dtype(t), _codes(bits)
    return (codes >> np.uint64(t.bits - 1) & np.uint64(1)).astype(bool) & t.signed


def decompose(t: str | DType, bits: npt.ArrayLike) -> FloatParts:
    """A float's bits as integers; the significand has ``mantissa`` + 1 bits, fewer if subnormal.

    A subnormal's (and a zero's) exponent is that of the smallest normal number. The parts of
    infinities and NaNs are unspecified.
    """
    t = _as_float(t)
    codes = _magnitude(t, bits).astype(np.int64)
    field = codes >> t.mantissa
    normal = (field > 0) if t.subnormal else np.ones(field.shape, bool)
    significand = (codes & ((1 << t.mantissa) - 1)) | (normal.astype(np.int64) << t.mantissa)
    first = 1 if t.subnormal else 0
    exponent = np.maximum(field, first) - (t.bias + t.mantissa)
    return FloatParts(is_negative(t, bits), significand, exponent)


def decode(t: str | DType, bits: npt.ArrayLike) -> Array:
    """The exact values of bits: float64 for a float, int64 or uint64 for all else."""
    t = dtype(t)
    if t.kind == "packed":
        return decode(t.element, unpack_lanes(t, bits))
    if t.kind != "float":
        codes = _codes(bits) & np.uint64((1 << t.bits) - 1)
        if t.kind != "int":
            return codes
        spare = np.int64(64 - t.bits)
        return codes.astype(np.int64) << spare >> spare
    negative, significand, exponent = decompose(t, bits)
    with np.errstate(over="ignore"):  # the parts of a NaN are unspecified
        value = np.ldexp(significand.astype(np.float64), exponent.astype(np.int32))
    value = np.where(is_inf(t, bits), np.inf, np.where(is_nan(t, bits), np.nan, value))
    return np.where(negative, -value, value)


# --- numbers to bits --------------------------------------------------------------------------


def bit_length(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bit length of each unsigned 64-bit integer: 0 for 0."""
    value = np.array(_codes(values))
    length = np.zeros(value.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = value >> np.uint64(step) != 0
        length += np.where(high, step, 0)
        value = np.where(high, value >> np.uint64(step), value)
    length += value != 0
    return length


def _check_rounding(rounding: str) -> None:
    mode: object = rounding
    if not isinstance(mode, str) or mode not in ROUNDINGS:
        raise DtypeError(f"unknown rounding mode {rounding!r}; known are {', '.join(ROUNDINGS)}")


def _round_up(rounding: str, negative: Array, value: Array, rest: Array, half: Array) -> Array:
    """Whether to round away from zero; ``rest`` are the truncated bits, ``half`` is half a unit."""
    odd = value & np.uint64(1) != 0
    away = {
        "rn": (rest > half) | ((rest == half) & odd),
        "rna": rest >= half,
        "rz": np.zeros(value.shape, bool),
        "rm": negative,
        "rp": ~negative,
    }[rounding]
    return np.asarray(away & (rest != 0))


def _shift_out(value: Array, count: Array) -> tuple[Array, Array, Array]:
    """``value >> count`` (left if negative), the bits shifted out, and half a unit of the result.

    For shifts beyond 64 only the order of the last two matters: the bits are less than half.
    """
    one = np.uint64(1)
    right = np.clip(count, 0, 63).astype(np.uint64)
    left = np.clip(-count, 0, 63).astype(np.uint64)
    shifted = np.where(count > 63, np.uint64(0), value >> right << left)
    rest = np.where(count > 63, value, value & ((one << right) - one))
    rest = np.where(count > 64, rest != 0, rest).astype(np.uint64)
    half = one << np.clip(count - 1, 0, 63).astype(np.uint64)
    return shifted, rest, half


def round_to(
    t: str | DType,
    negative: npt.ArrayLike,
    significand: npt.ArrayLike,
    exponent: npt.ArrayLike,
    rounding: str = "rn",
    overflow: str = "ieee",
) -> Array:
    """The bits of (-1)^negative * significand * 2^exponent, rounded once into float format ``t``.

    ``significand`` is unsigned, up to 64 bits. ``overflow`` is the result for a number beyond the
    largest finite one: ``ieee`` (infinity, or the largest number if ``rounding`` is toward it),
    ``inf`` or ``max``. A format without infinities returns a NaN instead, one without NaNs too the
    largest number. A format without a sign drops it; a format without a zero (ue8m0) returns its
    smallest number instead.
    """
    t = _as_float(t)
    _check_rounding(rounding)
    sign = np.asarray(negative, dtype=bool)
    value = _codes(significand)
    sign, value, low = np.broadcast_arrays(sign, value, np.asarray(exponent, dtype=np.int64))
    unit = np.maximum(low + bit_length(value) - 1, t.least) - t.mantissa  # weight of the last bit
    rounded, rest, half = _shift_out(value, unit - low)
    rounded = rounded + _round_up(rounding, sign, rounded, rest, half).astype(np.uint64)
    hidden = 0 if t.subnormal else 1 << t.mantissa
    steps = np.minimum(unit + t.mantissa - t.least, (1 << t.exponent) - 1).astype(np.uint64)
    codes = (steps << np.uint64(t.mantissa)) + rounded  # below 2^64, also for f64
    codes = np.where((codes < hidden) | (value == 0), 0, codes - np.uint64(hidden))
    beyond = codes > np.uint64(t.max_finite)
    codes = np.where(beyond, _overflowed(t, sign, rounding, overflow).astype(np.uint64), codes)
    return _signed(t, sign, codes)


def _overflowed(t: DType, negative: Array, rounding: str, overflow: str) -> Array:
    if overflow == "max" or not (t.has_inf or t.has_nan):
        return np.full(negative.shape, t.max_finite)
    infinite = np.full(negative.shape, t.max_finite + 1)
    if overflow == "inf" or rounding in ("rn", "rna"):
        return infinite
    back = {"rz": np.ones(negative.shape, bool), "rm": ~negative, "rp": negative}[rounding]
    return np.where(back, t.max_finite, infinite)


def _signed(t: DType, negative: Array, codes: Array) -> Array:
    bits = codes.astype(np.uint64) << np.uint64(t.unused)
    if t.signed:
        bits = bits | negative.astype(np.uint64) << np.uint64(t.bits - 1)
    return bits.astype(t.storage)


def encode(
    t: str | DType, values: npt.ArrayLike, rounding: str = "rn", satfinite: bool = False
) -> Array:
    """The bits of numbers (float64, or integers, exactly) in a format, rounded once.

    To a float: a NaN becomes the canonical one (the largest number if the format has no NaN);
    ``satfinite`` turns overflow and infinities into the largest finite number. To an integer: a
    float rounds and saturates (a NaN gives 0), an integer wraps, with ``satfinite`` it saturates.
    """
    t, numbers = dtype(t), _numbers(values)
    if t.kind == "packed":
        return pack_lanes(t, encode(t.element, numbers, rounding, satfinite))
    if t.kind != "float":
        return _encode_integer(t, numbers, rounding, satfinite)
    overflow = "max" if satfinite else "ieee"
    if numbers.dtype.kind in "iub":
        negative = numbers < 0
        size = numbers.astype(np.uint64)
        return round_to(t, negative, np.where(negative, -size, size), 0, rounding, overflow)
    bits = numbers.astype(np.float64).view(np.uint64)
    codes = round_to(t, *decompose("f64", bits), rounding, overflow)
    end = t.max_finite + ((t.has_inf or t.has_nan) and not satfinite)
    infinite = _signed(t, is_negative("f64", bits), np.full(bits.shape, end))
    codes = np.where(is_inf("f64", bits), infinite, codes)
    nan = t.nan if t.has_nan else t.max_finite
    return np.where(is_nan("f64", bits), t.storage.type(nan), codes).astype(t.storage)


def _numbers(values: npt.ArrayLike) -> Array:
    """Real numbers as an array; DtypeError for anything else."""
    x = np.asarray(values)
    if x.dtype.kind == "O" and all(isinstance(v, int | float | np.number) for v in x.flat):
        try:
            return x.astype(np.float64)
        except OverflowError:
            raise DtypeError("an integer is beyond the range of f64") from None
    if x.dtype.kind in "OUSMmc":
        raise DtypeError(f"numbers must be real, got {x.dtype}")
    return x


def _encode_integer(t: DType, x: Array, rounding: str, satfinite: bool) -> Array:
    low, high = t.range
    if x.dtype.kind == "f":
        x = _integral(x.astype(np.float64), rounding)
        inside = np.where((x >= float(high) + 1) | (x < low), 0, x)
        cast = inside.astype(np.int64 if low else np.uint64).astype(np.uint64)
        cast = np.where(x < low, np.uint64(low & (2**64 - 1)), cast)
        x = np.where(x >= float(high), np.uint64(high), cast)
    elif satfinite:
        x = _clamp(x, low, high)
    return (x.astype(np.uint64) & np.uint64((1 << t.bits) - 1)).astype(t.storage)


def _clamp(x: Array, low: int, high: int) -> Array:
    ends = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
    if ends is None:
        return x
    return np.clip(x, max(low, ends.min), min(high, ends.max))


def _integral(x: Array, rounding: str) -> Array:
    """``x`` rounded to integral values; a NaN becomes 0."""
    _check_rounding(rounding)
    x = np.where(np.isnan(x), 0.0, x)
    if rounding == "rna":
        truncated = np.trunc(x)
        fraction = np.where(np.isinf(x), 0.0, np.abs(x) - np.abs(truncated))
        return truncated + np.where(fraction >= 0.5, np.copysign(1.0, x), 0.0)
    return {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}[rounding](x)
