"""f32 instructions and conversions as functions of operand values; see ``integer_operations``."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .... import mufu
from ....errors import SassError
from ..thread_state import ThreadGroup
from . import float_bits
from .integer_operations import combined
from .operand_reader import float_source, predicate_source, word_source
from .operation_operands import Array, Operation, OperationOperands, word
from .packed_operations import PACKED_OPERATIONS

_ONE, _MINUS_ZERO = np.uint32(0x3F800000), np.uint32(0x80000000)
_MUFU = {"RCP": "rcp", "RSQ": "rsqrt", "SQRT": "sqrt", "EX2": "ex2", "LG2": "lg2", "TANH": "tanh"}


def multiply_add(o: OperationOperands) -> Operation:
    """FFMA."""
    a, b, c = (float_source(x) for x in o.sources[:3])
    return lambda group: [float_bits.fma(a(group), b(group), c(group), o.opcode)]


def multiply(o: OperationOperands) -> Operation:
    """FMUL: a · b + (−0), the zero that keeps the product's sign."""
    a, b = (float_source(x) for x in o.sources[:2])
    zero = np.full((1, 1), _MINUS_ZERO)
    scale = _scale(o)
    if scale is None:
        return lambda group: [float_bits.fma(a(group), b(group), zero, o.opcode)]
    return lambda group: [
        float_bits.fma(float_bits.fma(a(group), scale, zero), b(group), zero, o.opcode)
    ]


def _scale(o: OperationOperands) -> Array | None:
    """The power of two of FMUL's .D2 to .D8 and .M2 to .M8."""
    found = next((m for m in o.modifiers if m[0] in "DM" and m[1:] in ("2", "4", "8")), None)
    if found is None:
        return None
    factor = float(found[1:]) if found[0] == "M" else 1 / float(found[1:])
    return np.full((1, 1), factor, np.float32).view(np.uint32)


def add(o: OperationOperands) -> Operation:
    """FADD: 1 · a + b."""
    a, b = (float_source(x) for x in o.sources[:2])
    one = np.full((1, 1), _ONE)
    return lambda group: [float_bits.fma(a(group), one, b(group), o.opcode)]


def compare(o: OperationOperands) -> Operation:
    """FSETP."""
    a, b = (float_source(x) for x in o.sources[:2])
    names = o.opcode.split(".")
    other = o.predicates()[0]

    def run(group: ThreadGroup) -> list[Array]:
        x, y = a(group), b(group)
        if o.has("FTZ"):
            x, y = float_bits.flushed(x), float_bits.flushed(y)
        floats = (np.ascontiguousarray(v).view(np.float32) for v in np.broadcast_arrays(x, y))
        return combined(names, float_bits.compare(names[1], *floats), other(group))

    return run


def select(o: OperationOperands) -> Operation:
    """FSEL."""
    a, b = (float_source(x) for x in o.sources[:2])
    p = predicate_source(o.sources[2])
    return lambda group: [np.where(p(group), a(group), b(group))]


def minmax(o: OperationOperands) -> Operation:
    """FMNMX."""
    a, b = (float_source(x) for x in o.sources[:2])
    p = predicate_source(o.sources[2])
    return lambda group: [float_bits.minimum(a(group), b(group), p(group))]


def approximate(o: OperationOperands) -> Operation:
    """MUFU, through the package's bit-exact model of the unit."""
    a = float_source(o.sources[0])
    function = next((f for name, f in _MUFU.items() if o.has(name)), None)
    if function is None:
        raise SassError(f"MUFU must be {', '.join(_MUFU)} in the SASS machine, got {o.opcode}")
    return lambda group: [mufu.evaluate(function, np.ascontiguousarray(a(group)))]


def from_integer(o: OperationOperands) -> Operation:
    """I2F and I2FP: an integer to f32; one of 8 or 16 bits is a part of its register."""
    if o.modifiers & {"F64", "F16", "BF16"}:
        raise SassError(f"I2F must be to F32 in the SASS machine, got {o.opcode}")
    a = word_source(o.sources[0])
    mark = o.sources[0].marks
    if o.modifiers & {"U64", "S64"}:
        return _from_long(o)
    kind = next((m for m in o.modifiers if m[0] in "US" and m[1:].isdigit()), "S32")
    bits, part = int(kind[1:]), re.search(r"\.[BH]([1-3])", mark)
    low = bits * int(part[1]) if part else 0

    def run(group: ThreadGroup) -> list[Array]:
        value = a(group).astype(np.int64) >> low & (1 << bits) - 1
        if kind[0] == "S":
            value = value - (value >> bits - 1 << bits)
        value = np.abs(value) if "|" in mark else value
        value = -value if "-" in mark else value
        double = value.astype(np.float64)
        return [_rounded(double, float_bits.rounding(o.opcode))]

    return run


def _from_long(o: OperationOperands) -> Operation:
    """A 64-bit integer to f32: its upper bits with a sticky bit are exact as a double."""
    low, high = (word_source(o.sources[0], i) for i in (0, 1))

    def run(group: ThreadGroup) -> list[Array]:
        value = low(group).astype(np.uint64) | high(group).astype(np.uint64) << np.uint64(32)
        negative = (value >> np.uint64(63) != 0) & (not o.has("U64"))
        value = np.where(negative, ~value + np.uint64(1), value)
        head = value >> np.uint64(16)
        head = head | ((value & np.uint64(0xFFFF)) != 0)
        double = np.where(value >> np.uint64(48), head * 65536.0, value.astype(np.float64))
        return [_rounded(np.where(negative, -double, double), float_bits.rounding(o.opcode))]

    return run


def _rounded(value: Array, mode: str) -> Array:
    """Doubles to f32 bits in a rounding mode."""
    single = value.astype(np.float32)
    if mode != "rn":
        over = single.astype(np.float64) > value
        under = single.astype(np.float64) < value
        down = {"rm": over, "rz": over & (value > 0), "rp": np.zeros_like(over)}[mode]
        up = {"rp": under, "rz": under & (value < 0), "rm": np.zeros_like(over)}[mode]
        single = np.where(down, np.nextafter(single, np.float32(-np.inf)), single)
        single = np.where(up, np.nextafter(single, np.float32(np.inf)), single)
    return np.ascontiguousarray(single, np.float32).view(np.uint32)


def to_integer(o: OperationOperands) -> Operation:
    """F2I of f32: truncated or rounded, saturated; NaN gives 0, or with .NTZ's types the limit."""
    if o.modifiers & {"F64", "F16", "BF16", "S8", "U8", "S16", "U16"}:
        raise SassError(f"F2I must be of F32 in the SASS machine, got {o.opcode}")
    a = float_source(o.sources[0])
    unsigned = o.has("U32")
    if o.modifiers & {"U64", "S64"}:
        return _to_long(o)
    low, high = (0, (1 << 32) - 1) if unsigned else (-(1 << 31), (1 << 31) - 1)
    modes = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}
    step = next((f for name, f in modes.items() if o.has(name)), np.rint)

    def run(group: ThreadGroup) -> list[Array]:
        value = np.ascontiguousarray(a(group)).view(np.float32).astype(np.float64)
        whole = np.clip(step(np.where(np.isnan(value), 0.0, value)), low, high)
        return [word(whole.astype(np.int64))]

    return run


def _to_long(o: OperationOperands) -> Operation:
    """f32 to a 64-bit integer, truncated or to nearest, saturated."""
    a = float_source(o.sources[0])
    step = np.trunc if o.has("TRUNC") else np.rint
    limit = 2.0**64 if o.has("U64") else 2.0**63

    def run(group: ThreadGroup) -> list[Array]:
        value = np.ascontiguousarray(a(group)).view(np.float32).astype(np.float64)
        whole = step(np.where(np.isnan(value), 0.0, value))
        inside = np.where(np.abs(whole) < limit, whole, 0.0)
        bits = np.where(inside < 0, (-inside).astype(np.uint64), inside.astype(np.uint64))
        bits = np.where(inside < 0, ~bits + np.uint64(1), bits)
        top = np.uint64(int(limit) - 1)
        bits = np.where(whole >= limit, top, bits)
        low = np.uint64(0) if o.has("U64") else np.uint64(1 << 63)
        bits = np.where(whole <= (0.0 if o.has("U64") else -limit), low, bits)
        return [word(bits), word(bits >> np.uint64(32))]

    return run


def round_to_integer(o: OperationOperands) -> Operation:
    """FRND of f32."""
    a = float_source(o.sources[0])
    modes = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}
    step = next((f for name, f in modes.items() if o.has(name)), np.rint)
    return lambda group: [
        step(np.ascontiguousarray(a(group)).view(np.float32)).astype(np.float32).view(np.uint32)
    ]


def check_division(o: OperationOperands) -> Operation:
    """FCHK: whether a / b needs the slow path: an operand or the quotient is near a limit. Which
    quotients the hardware holds for safe is not known; both paths give the same bits.
    """
    a, b = (float_source(x) for x in o.sources[:2])

    def run(group: ThreadGroup) -> list[Array]:
        x, y = (v(group).astype(np.int64) >> 23 & 255 for v in (a, b))
        safe = (x > 30) & (x < 220) & (y > 30) & (y < 220) & (np.abs(x - y) < 100)
        return [~safe]

    return run


FLOAT_OPERATIONS: dict[str, Callable[[OperationOperands], Operation]] = {
    "FFMA": multiply_add, "FMUL": multiply, "FADD": add, "FSETP": compare, "FSEL": select,
    "FMNMX": minmax, "MUFU": approximate, "I2F": from_integer, "I2FP": from_integer,
    "FCHK": check_division, "F2I": to_integer, "FRND": round_to_integer, "FFMA32I": multiply_add,
    "FMUL32I": multiply, "FADD32I": add, **PACKED_OPERATIONS,
}  # fmt: skip
