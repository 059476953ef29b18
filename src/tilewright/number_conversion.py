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
    found = dtype(t)
    if found.kind != "float":
        floats = ", ".join(d.name for d in DTYPES.values() if d.kind == "float")
        raise DtypeError(f"{found.name} is not a floating-point format; those are {floats}")
    return found


def _codes(bits: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Bits as integers; DtypeError for anything else."""
    given = np.asarray(bits)
    if given.dtype.kind not in "iubO" and given.size:
        raise DtypeError(f"bits must be integers, got {given.dtype}")
    try:
        return given.astype(np.uint64)
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
    with np.errstate(over="ignore"):  # the parts of a NaN may be any
        value = np.ldexp(significand.astype(np.float64), exponent.astype(np.int32))
    value = np.where(is_inf(t, bits), np.inf, np.where(is_nan(t, bits), np.nan, value))
    return np.where(negative, -value, value)


# --- numbers to bits --------------------------------------------------------------------------


def bit_length(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """How many bits each unsigned 64-bit integer needs: 0 for 0."""
    rest = np.array(_codes(values))
    length = np.zeros(rest.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(step) != 0
        length += np.where(high, step, 0)
        rest = np.where(high, rest >> np.uint64(step), rest)
    length += rest != 0
    return length


def _check_rounding(rounding: str) -> None:
    given: object = rounding
    if not isinstance(given, str) or given not in ROUNDINGS:
        raise DtypeError(f"unknown rounding mode {rounding!r}; known are {', '.join(ROUNDINGS)}")


def _round_up(rounding: str, negative: Array, kept: Array, rest: Array, half: Array) -> Array:
    """Whether to go to the next magnitude; ``rest`` was cut off, ``half`` is half a kept unit."""
    odd = kept & np.uint64(1) != 0
    away = {
        "rn": (rest > half) | ((rest == half) & odd),
        "rna": rest >= half,
        "rz": np.zeros(kept.shape, bool),
        "rm": negative,
        "rp": ~negative,
    }[rounding]
    return np.asarray(away & (rest != 0))


def _shift_out(value: Array, count: Array) -> tuple[Array, Array, Array]:
    """``value >> count`` (left if negative), what that cuts off, and half a unit of what is kept.

    Beyond 64 places only their order counts: what is cut off is less than half.
    """
    one = np.uint64(1)
    right = np.clip(count, 0, 63).astype(np.uint64)
    left = np.clip(-count, 0, 63).astype(np.uint64)
    kept = np.where(count > 63, np.uint64(0), value >> right << left)
    rest = np.where(count > 63, value, value & ((one << right) - one))
    rest = np.where(count > 64, rest != 0, rest).astype(np.uint64)
    half = one << np.clip(count - 1, 0, 63).astype(np.uint64)
    return kept, rest, half


def round_to(
    t: str | DType,
    negative: npt.ArrayLike,
    significand: npt.ArrayLike,
    exponent: npt.ArrayLike,
    rounding: str = "rn",
    overflow: str = "ieee",
) -> Array:
    """The bits of (-1)^negative * significand * 2^exponent, rounded once into float format ``t``.

    ``significand`` is unsigned, up to 64 bits. ``overflow`` says what becomes of a number beyond
    the largest finite one: ``ieee`` (infinity, or the largest where ``rounding`` points back to
    it), ``inf`` or ``max``. Where the format has no infinity a NaN stands for it, and where it has
    neither, the largest number. A format without a sign drops it; one without a zero (ue8m0) takes
    its least number instead.
    """
    t = _as_float(t)
    _check_rounding(rounding)
    sign = np.asarray(negative, dtype=bool)
    value = _codes(significand)
    sign, value, low = np.broadcast_arrays(sign, value, np.asarray(exponent, dtype=np.int64))
    unit = np.maximum(low + bit_length(value) - 1, t.least) - t.mantissa  # the last bit kept
    kept, rest, half = _shift_out(value, unit - low)
    kept = kept + _round_up(rounding, sign, kept, rest, half).astype(np.uint64)
    hidden = 0 if t.subnormal else 1 << t.mantissa
    steps = np.minimum(unit + t.mantissa - t.least, (1 << t.exponent) - 1).astype(np.uint64)
    codes = (steps << np.uint64(t.mantissa)) + kept  # below 2^64, also for f64
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
    made = codes.astype(np.uint64) << np.uint64(t.unused)
    if t.signed:
        made = made | negative.astype(np.uint64) << np.uint64(t.bits - 1)
    return made.astype(t.storage)


def encode(
    t: str | DType, values: npt.ArrayLike, rounding: str = "rn", satfinite: bool = False
) -> Array:
    """The bits of numbers (float64, or integers, exactly) in a format, rounded once.

    To a float: a NaN becomes the canonical one (the largest number where the format has none);
    ``satfinite`` turns overflow and infinities into the largest finite number. To an integer: a
    float rounds and saturates (a NaN gives 0), an integer wraps, with ``satfinite`` it saturates.
    """
    t, given = dtype(t), _numbers(values)
    if t.kind == "packed":
        return pack_lanes(t, encode(t.element, given, rounding, satfinite))
    if t.kind != "float":
        return _encode_integer(t, given, rounding, satfinite)
    overflow = "max" if satfinite else "ieee"
    if given.dtype.kind in "iub":
        negative = given < 0
        size = given.astype(np.uint64)
        return round_to(t, negative, np.where(negative, -size, size), 0, rounding, overflow)
    bits = given.astype(np.float64).view(np.uint64)
    made = round_to(t, *decompose("f64", bits), rounding, overflow)
    end = t.max_finite + ((t.has_inf or t.has_nan) and not satfinite)
    infinite = _signed(t, is_negative("f64", bits), np.full(bits.shape, end))
    made = np.where(is_inf("f64", bits), infinite, made)
    nan = t.nan if t.has_nan else t.max_finite
    return np.where(is_nan("f64", bits), t.storage.type(nan), made).astype(t.storage)


def _numbers(values: npt.ArrayLike) -> Array:
    """Real numbers as an array; DtypeError for anything else."""
    given = np.asarray(values)
    if given.dtype.kind == "O" and all(isinstance(x, int | float | np.number) for x in given.flat):
        try:
            return given.astype(np.float64)
        except OverflowError:
            raise DtypeError("an integer is beyond the range of f64") from None
    if given.dtype.kind in "OUSMmc":
        raise DtypeError(f"numbers must be real, got {given.dtype}")
    return given


def _encode_integer(t: DType, given: Array, rounding: str, satfinite: bool) -> Array:
    low, high = t.range
    if given.dtype.kind == "f":
        given = _integral(given.astype(np.float64), rounding)
        inside = np.where((given >= float(high) + 1) | (given < low), 0, given)
        cast = inside.astype(np.int64 if low else np.uint64).astype(np.uint64)
        cast = np.where(given < low, np.uint64(low & (2**64 - 1)), cast)
        given = np.where(given >= float(high), np.uint64(high), cast)
    elif satfinite:
        given = _clamp(given, low, high)
    return (given.astype(np.uint64) & np.uint64((1 << t.bits) - 1)).astype(t.storage)


def _clamp(given: Array, low: int, high: int) -> Array:
    ends = np.iinfo(given.dtype) if given.dtype.kind in "iu" else None
    if ends is None:
        return given
    return np.clip(given, max(low, ends.min), min(high, ends.max))


def _integral(x: Array, rounding: str) -> Array:
    """``x`` rounded to whole numbers, a NaN to 0."""
    _check_rounding(rounding)
    x = np.where(np.isnan(x), 0.0, x)
    if rounding == "rna":
        whole = np.trunc(x)
        fraction = np.where(np.isinf(x), 0.0, np.abs(x) - np.abs(whole))
        return whole + np.where(fraction >= 0.5, np.copysign(1.0, x), 0.0)
    return {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}[rounding](x)
