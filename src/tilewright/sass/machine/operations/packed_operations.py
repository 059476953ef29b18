"""Packed f16 and bf16 instructions, and f64 ones; see ``integer_operations``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .... import exact
from ....errors import SassError
from ....number_conversion import decode, encode
from ...sass_text import SassOperand
from ..thread_state import ThreadGroup
from . import float_bits
from .integer_operations import combined
from .operand_reader import Reader, word_source
from .operation_operands import Array, Operation, OperationOperands, word

Halves = Callable[[ThreadGroup], tuple[Array, Array]]  # low and high half, as doubles


def _format(o: OperationOperands) -> str:
    return "bf16" if any(m.startswith("BF16") for m in o.modifiers) else "f16"


def _half_sources(o: OperationOperands) -> list[Halves]:
    """The sources as pairs of halves; two immediates in a row are one source, high half first."""
    found: list[Halves] = []
    operands = list(o.sources)
    while operands:
        operand = operands.pop(0)
        if operand.kind == "#":
            high, low = (_immediate(x, _format(o)) for x in (operand, operands.pop(0)))
            pair = low, high
            found.append(lambda group, pair=pair: pair)  # type: ignore[misc]
        elif operand.kind not in ("P#", "UP#"):
            found.append(_halves(operand, _format(o)))
    return found


def _immediate(operand: SassOperand, fmt: str) -> Array:
    """An immediate as (1, 1) doubles; a NaN is written by its bits."""
    number = operand.numbers[0]
    bits = np.full((1, 1), 0 if isinstance(number, float) else number, np.uint32)
    return np.full((1, 1), number) if isinstance(number, float) else np.asarray(decode(fmt, bits))


def _halves(operand: SassOperand, fmt: str) -> Halves:
    read, marks = word_source(operand), operand.marks
    first, second = (1, 1) if ".H1_H1" in marks else (0, 0) if ".H0_H0" in marks else (0, 1)

    def value(word: Array, half: int) -> Array:
        number = decode(fmt, (word >> np.uint32(16 * half)) & np.uint32(0xFFFF))
        number = np.abs(number) if "|" in marks else number
        return -number if "-" in marks.split(".")[0] else number

    return lambda group: (value(read(group), first), value(read(group), second))


def _packed(fmt: str, low: Array, high: Array) -> Array:
    bits = [np.asarray(encode(fmt, x)).astype(np.uint32) for x in (low, high)]
    pairs = zip((low, high), bits, strict=True)
    first, second = (np.where(np.isnan(x), np.uint32(0x7FFF), b) for x, b in pairs)
    return np.asarray(first | second << np.uint32(16))


def _exact_sum(product: Array, addend: Array) -> Array:
    """product + addend as doubles, rounded to odd: a later rounding to 16 bits is the only one."""
    with exact.quiet():
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        inexact = (error != 0) & np.isfinite(total)
    return float_bits.to_odd(total, error, inexact) if inexact.any() else total


def half_arithmetic(o: OperationOperands) -> Operation:
    """HFMA2, HADD2 and HMUL2; HADD2.F32 gives the low half's sum as f32."""
    fmt, name = _format(o), o.opcode.split(".")[0]
    sources = _half_sources(o)

    def run(group: ThreadGroup) -> list[Array]:
        values = [source(group) for source in sources]
        results = []
        for half in (0, 1):
            a, b = values[0][half], values[1][half]
            with exact.quiet():
                if name == "HADD2":
                    results.append(_exact_sum(a, b))
                else:
                    addend = values[2][half] if name == "HFMA2" else np.full((1, 1), -0.0)
                    results.append(_exact_sum(a * b, addend))
        if o.has("F32"):
            return [np.ascontiguousarray(results[0].astype(np.float32)).view(np.uint32)]
        return [_packed(fmt, *results)]

    return run


def double_source(operand: SassOperand) -> Reader:
    """An f64 from a register pair, or an immediate that is its high word."""
    low = word_source(operand) if operand.kind != "#" else None
    high = word_source(operand, 1) if operand.kind != "#" else None
    fixed = None
    if operand.kind == "#":
        number = operand.numbers[0]
        fixed = np.full((1, 1), number if isinstance(number, float) else np.nan)

    def read(group: ThreadGroup) -> Array:
        if fixed is not None:
            return fixed
        assert low is not None and high is not None
        bits = low(group).astype(np.uint64) | high(group).astype(np.uint64) << np.uint64(32)
        value = np.ascontiguousarray(bits).view(np.float64)
        value = np.abs(value) if "|" in operand.marks else value
        return -value if "-" in operand.marks else value

    return read


def _words(value: Array) -> list[Array]:
    bits = np.ascontiguousarray(value, np.float64).view(np.uint64)
    bits = np.where(np.isnan(value), np.uint64(0x7FF8000000000000), bits)
    return [word(bits), word(bits >> np.uint64(32))]


def double_arithmetic(o: OperationOperands) -> Operation:
    """DADD, DMUL and DFMA, rounded to nearest."""
    if float_bits.rounding(o.opcode) != "rn":
        raise SassError(f"f64 arithmetic must round to nearest in the SASS machine, got {o.opcode}")
    reads = [double_source(x) for x in o.sources]
    name = o.opcode.split(".")[0]

    def run(group: ThreadGroup) -> list[Array]:
        values = np.broadcast_arrays(*(read(group) for read in reads))
        if name == "DFMA":
            a, b, c = (np.ascontiguousarray(v).ravel().view(np.uint64) for v in values)
            bits = exact.fma("f64", a, b, c).astype(np.uint64).reshape(values[0].shape)
            return _words(bits.view(np.float64))
        with exact.quiet():
            return _words(values[0] + values[1] if name == "DADD" else values[0] * values[1])

    return run


def compare_doubles(o: OperationOperands) -> Operation:
    """DSETP."""
    a, b = (double_source(x) for x in o.sources[:2])
    names, other = o.opcode.split("."), o.predicates()[0]

    def run(group: ThreadGroup) -> list[Array]:
        x, y = np.broadcast_arrays(a(group), b(group))
        return combined(names, float_bits.compare(names[1], x, y), other(group))

    return run


def convert_float(o: OperationOperands) -> Operation:
    """F2F between f32 and f64."""
    kinds = [m for m in o.opcode.split(".")[1:] if m in ("F64", "F32", "F16", "BF16")]
    if sorted(kinds) != ["F32", "F64"]:
        raise SassError(f"F2F must be between F32 and F64 in the SASS machine, got {o.opcode}")
    if kinds[0] == "F64":
        read = word_source(o.sources[0])
        return lambda group: _words(
            np.ascontiguousarray(read(group)).view(np.float32).astype(np.float64)
        )
    double = double_source(o.sources[0])
    return lambda group: [np.ascontiguousarray(double(group).astype(np.float32)).view(np.uint32)]


PACKED_OPERATIONS: dict[str, Callable[[OperationOperands], Operation]] = {
    **dict.fromkeys(("HFMA2", "HADD2", "HMUL2"), half_arithmetic),
    **dict.fromkeys(("DADD", "DMUL", "DFMA"), double_arithmetic),
    "DSETP": compare_doubles, "F2F": convert_float,
}  # fmt: skip
