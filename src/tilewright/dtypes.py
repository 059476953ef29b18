"""Number formats from b1 to f64: exact decoding, encoding with rounding, and packing.

A format is a row (``DType``). Floating point is built on two functions: ``decompose`` splits bits
into the integers of (-1)^negative * significand * 2^exponent, and ``round_to`` rounds such a number
to any format. ``decode`` and ``encode`` convert bits to and from NumPy numbers. All functions are
vectorized; the bits of a value are an unsigned integer.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .errors import DtypeError

Array = npt.NDArray[Any]

ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")


@dataclass(frozen=True, slots=True)
class DType:
    """A number format.

    ``kind`` is ``float``, ``int`` (signed), ``uint``, ``bits``, ``pred`` or ``packed``; ``bits`` is
    its size in packed memory. A float has ``exponent`` and ``mantissa`` bits and a ``bias``; its
    lowest ``unused`` bits are ignored (tf32). A packed format holds ``lanes`` values of format
    ``element``, the first lowest.
    """

    name: str
    kind: str
    bits: int
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    has_inf: bool = False
    has_nan: bool = False
    signed: bool = False
    subnormal: bool = True
    unused: int = 0
    nan: int = 0  # the canonical NaN
    lanes: int = 1
    element: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def ptx(self) -> str:
        """The type as PTX writes it: ``.f16``."""
        return "." + self.name

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's (or ml_dtypes') type of the same numbers. DtypeError where there is none."""
        if self.name not in _NUMPY:
            known = ", ".join(_NUMPY)
            raise DtypeError(f"NumPy has no type for {self.name}; it has {known}")
        return _NUMPY[self.name]

    @property
    def storage(self) -> np.dtype[Any]:
        """The unsigned NumPy type that one value's bits are kept in."""
        if self.bits > 64:
            raise DtypeError(f"{self.name} does not fit a NumPy integer")
        return np.dtype(f"u{max(1, 1 << (self.bits - 1).bit_length() >> 3)}")

    @property
    def least(self) -> int:
        """The lowest exponent of a normal number (a float's); a subnormal has it too."""
        return (1 if self.subnormal else 0) - self.bias

    @property
    def max_finite(self) -> int:
        """The bits of the largest finite magnitude, without the unused ones."""
        codes = 1 << (self.exponent + self.mantissa)
        if self.has_inf:
            return codes - (1 << self.mantissa) - 1
        return codes - 1 - self.has_nan

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest value of an integer format."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


def _float(name: str, exponent: int, mantissa: int, bits: int, **more: Any) -> DType:
    bias = more.pop("bias", (1 << (exponent - 1)) - 1)
    more = {"signed": True, **more}
    return DType(name, "float", bits, exponent, mantissa, bias, **more)


def _packed(element: str, bits: int, lanes: int = 2) -> DType:
    return DType(f"{element}x{lanes}", "packed", lanes * bits, lanes=lanes, element=element)


_IEEE = {"has_inf": True, "has_nan": True}
_NAN = {"has_nan": True}

_ROWS: tuple[DType, ...] = (
    DType("pred", "pred", 1),
    *(DType(f"b{n}", "bits", n) for n in (1, 2, 4, 6, 8, 16, 32, 64, 128)),
    *(DType(f"u{n}", "uint", n) for n in (4, 8, 16, 32, 64)),
    *(DType(f"s{n}", "int", n, signed=True) for n in (4, 8, 16, 32, 64)),
    _float("e2m1", 2, 1, 4),
    _float("e2m3", 2, 3, 6),
    _float("e3m2", 3, 2, 6),
    _float("e4m3", 4, 3, 8, nan=0x7F, **_NAN),
    _float("e5m2", 5, 2, 8, nan=0x7F, **_IEEE),
    _float("ue8m0", 8, 0, 8, nan=0xFF, signed=False, subnormal=False, **_NAN),
    _float("ue4m3", 4, 3, 8, nan=0x7F, signed=False, **_NAN),  # the top bit is ignored
    _float("f16", 5, 10, 16, nan=0x7FFF, **_IEEE),
    _float("bf16", 8, 7, 16, nan=0x7FFF, **_IEEE),
    _float("tf32", 8, 10, 32, nan=0x7FFFE000, unused=13, **_IEEE),
    _float("f32", 8, 23, 32, nan=0x7FFFFFFF, **_IEEE),
    _float("f64", 11, 52, 64, nan=0xFFF8000000000000, **_IEEE),
    *(_packed(n, 8) for n in ("e4m3", "e5m2", "ue8m0", "e2m3", "e3m2")),  # 6 bits in a byte each
    *(_packed(n, 8, 4) for n in ("e4m3", "e5m2", "e2m3", "e3m2")),
    *(_packed("e2m1", 4, lanes) for lanes in (2, 4)),
    DType("s2f6x2", "packed", 16, lanes=2, element="s8"),  # signed numbers of 64ths
    *(_packed(n, 16) for n in ("f16", "bf16", "s16", "u16")),
    _packed("f32", 32),
)

DTYPES: dict[str, DType] = {row.name: row for row in _ROWS}

_NUMPY_NAMES: dict[str, npt.DTypeLike] = {
    "pred": np.bool_,
    **{f"u{n}": f"u{n // 8}" for n in (8, 16, 32, 64)},
    **{f"s{n}": f"i{n // 8}" for n in (8, 16, 32, 64)},
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "u4": ml_dtypes.uint4,
    "s4": ml_dtypes.int4,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}

_NUMPY: dict[str, np.dtype[Any]] = {name: np.dtype(made) for name, made in _NUMPY_NAMES.items()}
_FROM_NUMPY: dict[np.dtype[Any], str] = {made: name for name, made in _NUMPY.items()}


def dtype(name: str | DType) -> DType:
    """The format of a name such as ``f16``, with or without PTX's dot (a DType is itself).

    Raises DtypeError, listing the known names.
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(str(name).removeprefix("."))
    if found is None:
        close = difflib.get_close_matches(str(name), list(DTYPES), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else ""
        known = ", ".join(DTYPES)
        raise DtypeError(f"unknown number format {name!r}; known are {known}", hint=hint)
    return found


def from_numpy(given: npt.DTypeLike) -> DType:
    """The format of a NumPy or ml_dtypes type. Raises DtypeError, listing the known ones."""
    named: object = given
    try:
        wanted = np.dtype(given)
        name = None if named is None else _FROM_NUMPY.get(wanted)  # NumPy's None is float64
    except (TypeError, ValueError) as error:
        raise DtypeError(f"{given!r:.60} is no type of NumPy") from error
    if name is None:
        known = ", ".join(d.name for d in _FROM_NUMPY)
        what = "None" if named is None else wanted.name
        raise DtypeError(f"no number format for NumPy's {what}; known are {known}")
    return DTYPES[name]


# --- bits to numbers --------------------------------------------------------------------------


class FloatParts(NamedTuple):
    """A number as integers: (-1)^negative * significand * 2^exponent."""

    negative: npt.NDArray[np.bool_]
    significand: npt.NDArray[np.int64]
    exponent: npt.NDArray[np.int64]


def _as_float(t: str | DType) -> DType:
    found = dtype(t)
    if found.kind != "float":
        floats = ", ".join(d.name for d in _ROWS if d.kind == "float")
        raise DtypeError(f"{found.name} is not a floating-point format; those are {floats}")
    return found


def _codes(bits: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Bits as integers; DtypeError for what is none."""
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

    A subnormal's (and a zero's) exponent is that of the least normal number. Infinities and NaNs
    have parts that mean nothing.
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
    """Real numbers as an array; DtypeError for what is none."""
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


# --- packing ----------------------------------------------------------------------------------


def pack(t: str | DType, codes: npt.ArrayLike, word: npt.DTypeLike = np.uint32) -> Array:
    """Values' bits, one an element, into words, the first in the lowest bits.

    (…, n) → (…, n * bits / word's bits). Raises DtypeError where they don't fill whole words.
    """
    t, codes, made = dtype(t), np.asarray(codes), _word(word)
    if not codes.ndim or (codes.dtype.kind not in "iub" and codes.size):
        raise DtypeError(f"pack takes an array of integers, got {codes.dtype} of {codes.shape}")
    count, size = codes.shape[-1], 8 * made.itemsize
    if count * t.bits % size:
        raise DtypeError(f"{count} values of {t.name} do not fill words of {size} bits")
    if t.bits in (8, 16, 32, 64):
        return np.ascontiguousarray(codes.astype(t.storage)).view(made)
    single = codes[..., None].astype(np.uint8) >> np.arange(t.bits, dtype=np.uint8) & 1
    flat = single.reshape(*codes.shape[:-1], count * t.bits)
    return np.ascontiguousarray(np.packbits(flat, axis=-1, bitorder="little")).view(made)


def _word(given: npt.DTypeLike) -> np.dtype[Any]:
    try:
        return np.dtype(given)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"a word must be a type of NumPy, got {given!r:.60}") from error


def unpack(t: str | DType, words: npt.ArrayLike) -> Array:
    """The inverse of ``pack``: words into values' bits, one an element."""
    t, words = dtype(t), np.ascontiguousarray(words)
    if words.dtype.kind in "OUS":
        raise DtypeError(f"unpack takes an array of words, got {words.dtype}")
    total = words.shape[-1] * words.dtype.itemsize * 8
    if total % t.bits:
        raise DtypeError(f"{total} bits are not a whole number of {t.name} values")
    if t.bits in (8, 16, 32, 64):
        return words.view(t.storage)
    single = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    split = single.reshape(*words.shape[:-1], total // t.bits, t.bits)
    return np.asarray((split << np.arange(t.bits, dtype=np.uint8)).sum(-1, dtype=np.uint8))


def pack_lanes(t: str | DType, codes: npt.ArrayLike) -> Array:
    """The lanes of a packed format (last axis) into one value: (…, 2) → (…)."""
    t, codes = dtype(t), np.asarray(codes)
    if codes.shape[-1:] != (t.lanes,):
        raise DtypeError(f"{t.name} packs {t.lanes} values, not an array of shape {codes.shape}")
    step = t.bits // t.lanes
    shifts = np.arange(t.lanes, dtype=np.uint64) * np.uint64(step)
    joined = np.bitwise_or.reduce(codes.astype(np.uint64) << shifts, axis=-1)
    return np.asarray(joined, t.storage)


def unpack_lanes(t: str | DType, values: npt.ArrayLike) -> Array:
    """The lanes of a packed format: (…) → (…, 2)."""
    t = dtype(t)
    element, step = dtype(t.element), t.bits // t.lanes
    shifts = np.arange(t.lanes, dtype=np.uint64) * np.uint64(step)
    lanes = np.asarray(values).astype(np.uint64)[..., None] >> shifts
    return (lanes & np.uint64((1 << element.bits) - 1)).astype(element.storage)
