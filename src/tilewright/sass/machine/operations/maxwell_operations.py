"""Integer instructions of sm_5x as functions of operand values; see ``integer_operations``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....errors import SassError
from ..thread_state import ThreadGroup
from . import float_bits
from .integer_operations import INTEGER_OPERATIONS, combined, lookup, ordered_compare
from .operand_reader import Reader, float_source, integer_source, word_source
from .operation_operands import Array, Operation, OperationOperands, signed, wide, word

_HALF = np.uint64(0xFFFF)
_HIGH = np.uint64(16)


def add(o: OperationOperands) -> Operation:
    """IADD, IADD3 and IADD32I, with the carry flag: .X reads it, a result's .CC writes it."""
    count = len(o.sources)
    reads = [word_source(x) for x in o.sources]
    negative = ["-" in x.marks for x in o.sources]
    halves = [_half(x.marks) for x in o.sources]
    chain = o.has("X")
    ones = 0 if chain else sum(negative)
    shift = {"LS": -16, "RS": 16}.get(next(iter(o.modifiers & {"LS", "RS"}), ""), 0)

    def run(group: ThreadGroup) -> list[Array]:
        terms = [_picked(reads[i](group), halves[i]) for i in range(count)]
        terms = [~t if negative[i] else t for i, t in enumerate(terms)]
        total = np.uint64(ones) + wide(terms[0]) + wide(terms[1])
        if chain:
            total = total + group.state.carry[group.rows]
        if count == 3:
            total = _shifted(total, shift) + wide(terms[2])
        _write_carry(group, o, total >> np.uint64(32) != 0)
        return [word(total)]

    return run


def _shifted(total: Array, shift: int) -> Array:
    """IADD3's partial sum, moved by .LS or .RS."""
    if not shift:
        return total
    return total << np.uint64(16) if shift < 0 else total >> np.uint64(16)


def _half(marks: str) -> int | None:
    return 1 if ".H1" in marks else 0 if ".H0" in marks else None


def _picked(value: Array, half: int | None) -> Array:
    if half is None:
        return value
    return value >> np.uint32(16) if half else value & np.uint32(0xFFFF)


def _write_carry(group: ThreadGroup, o: OperationOperands, carry: Array) -> None:
    if ".CC" in o.outputs[0].marks:
        flags = group.state.carry
        flags[group.rows] = np.where(group.mask, carry, flags[group.rows])


def scaled_add(o: OperationOperands) -> Operation:
    """ISCADD: (a << shift) + b."""
    a, b = (integer_source(x) for x in o.sources[:2])
    amount = np.uint64(int(o.sources[2].numbers[0]))

    def run(group: ThreadGroup) -> list[Array]:
        total = (wide(a(group)) << amount & np.uint64(0xFFFFFFFF)) + wide(b(group))
        _write_carry(group, o, total >> np.uint64(32) != 0)
        return [word(total)]

    return run


def multiply_halves(o: OperationOperands) -> Operation:
    """XMAD: a 16 × 16 bit product, shifted left by .PSL, plus c; .CBCC adds b << 16, .MRG puts b's
    low half into the upper half of the result.
    """
    a, b, c = (word_source(x) for x in o.sources[:3])
    first, second = (_half(x.marks) or 0 for x in o.sources[:2])
    kinds = [m for m in o.opcode.split(".")[1:] if m in ("U16", "S16")]
    signs = [k == "S16" for k in kinds[:1] * 2 if len(kinds) == 1] or [k == "S16" for k in kinds]
    signs = (signs or [False, False])[:2]

    def run(group: ThreadGroup) -> list[Array]:
        x, y, addend = a(group), b(group), wide(c(group))
        product = _factor(x, first, signs[0]) * _factor(y, second, signs[1])
        total = product.astype(np.uint64)
        if o.has("PSL"):
            total = total << _HIGH
        if o.has("CLO"):
            addend = addend & _HALF
        if o.has("CHI"):
            addend = addend >> _HIGH
        total = total + addend
        if o.has("CBCC"):
            total = total + ((wide(y) & _HALF) << _HIGH)
        if o.has("MRG"):
            total = total & _HALF | (wide(y) & _HALF) << _HIGH
        return [word(total)]

    return run


def _factor(value: Array, half: int, is_signed: bool) -> Array:
    part = (value >> np.uint32(16) if half else value & np.uint32(0xFFFF)).astype(np.int64)
    return np.where(part >> 15, part - (1 << 16), part) if is_signed else part


def logic(o: OperationOperands) -> Operation:
    """LOP and LOP32I: AND, OR, XOR, PASS_B; the predicate of .NZ and .Z."""
    a, b = o.integers(2)
    table = {"AND": 0xC0, "OR": 0xFC, "XOR": 0x3C, "PASS_B": 0xCC}
    function = next(t for name, t in table.items() if o.has(name))

    def run(group: ThreadGroup) -> list[Array]:
        x, y = a(group), b(group)
        result = lookup(function, x, y, y)
        flag = result == 0 if o.has("Z") else result != 0
        return [flag if x.kind == "P#" else result for x in o.outputs]

    return run


def logic3(o: OperationOperands) -> Operation:
    """LOP3.LUT."""
    a, b, c = o.integers(3)
    table = int(o.sources[3].numbers[0])

    def run(group: ThreadGroup) -> list[Array]:
        result = lookup(table, a(group), b(group), c(group))
        return [result != 0 if x.kind == "P#" else result for x in o.outputs]

    return run


def shift(o: OperationOperands) -> Operation:
    """SHL and SHR: clamped at 32 bits, or modulo 32 with .W; SHR is arithmetic without .U32."""
    a, b = o.integers(2)
    left = o.opcode.startswith("SHL")

    def run(group: ThreadGroup) -> list[Array]:
        count = b(group).astype(np.int64)
        count = count & 31 if o.has("W") else np.minimum(count, 32)
        value = a(group).astype(np.int64) if left or o.has("U32") else signed(a(group))
        return [word(value << count if left else value >> count)]

    return run


def bit_field(o: OperationOperands) -> Operation:
    """BFE: ``(length << 8) + position`` select a field, sign-extended without .U32."""
    a, b = o.integers(2)

    def run(group: ThreadGroup) -> list[Array]:
        where = b(group).astype(np.int64)
        position, length = where & 255, np.minimum(where >> 8 & 255, 32)
        value = a(group).astype(np.int64) if o.has("U32") else signed(a(group))
        field = value >> np.minimum(position, 63) & (np.int64(1) << length) - 1
        if not o.has("U32"):
            top = np.where(length > 0, field >> np.maximum(length - 1, 0) & 1, 0)
            field = np.where(top, field - (np.int64(1) << length), field)
        return [word(field)]

    return run


def insert_field(o: OperationOperands) -> Operation:
    """BFI: a's low bits into a field of c."""
    a, b, c = o.integers(3)

    def run(group: ThreadGroup) -> list[Array]:
        where = b(group).astype(np.int64)
        position, length = where & 255, np.minimum(where >> 8 & 255, 32)
        mask = ((np.int64(1) << length) - 1) << np.minimum(position, 62)
        value = a(group).astype(np.int64) << np.minimum(position, 31)
        return [word(value & mask | c(group).astype(np.int64) & ~mask)]

    return run


def compare_select(o: OperationOperands) -> Operation:
    """ICMP: a where c ⋈ 0, else b."""
    a, b, c = o.integers(3)
    name = o.opcode.split(".")[1]

    def run(group: ThreadGroup) -> list[Array]:
        x = c(group).astype(np.int64) if o.has("U32") else signed(c(group))
        return [np.where(ordered_compare(name, x, np.zeros_like(x)), a(group), b(group))]

    return run


def compare_set(o: OperationOperands) -> Operation:
    """ISET and FSET: all ones (1.0 with .BF) where the comparison holds."""
    names = o.opcode.split(".")
    other = o.predicates()[0]
    value = np.uint32(0x3F800000 if o.has("BF") else 0xFFFFFFFF)
    reads: list[Reader] = [
        float_source(x) if names[0] == "FSET" else integer_source(x) for x in o.sources[:2]
    ]

    def run(group: ThreadGroup) -> list[Array]:
        x, y = (read(group) for read in reads)
        if names[0] == "FSET":
            floats = (np.ascontiguousarray(v).view(np.float32) for v in np.broadcast_arrays(x, y))
            result = float_bits.compare(names[1], *floats)
        else:
            extend = wide if o.has("U32") else signed
            result = ordered_compare(names[1], extend(x), extend(y))
        return [np.where(combined(names, result, other(group))[0], value, np.uint32(0))]

    return run


def predicate_set(o: OperationOperands) -> Operation:
    """PSETP and PSET: (a op b) op c."""
    a, b, c = o.predicates()
    names = o.opcode.split(".")[1:]
    joins = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}
    if len(names) < 2 or not set(names[:2]) <= joins.keys():
        raise SassError(f"{o.opcode} must combine predicates by AND, OR or XOR")
    first, second = joins[names[0]], joins[names[1]]

    def run(group: ThreadGroup) -> list[Array]:
        both = first(a(group), b(group))
        results = [second(both, c(group)), second(~both, c(group))]
        if o.outputs[0].kind == "R#":
            return [np.where(results[0], np.uint32(0xFFFFFFFF), np.uint32(0))]
        return results

    return run


def range_reduction(o: OperationOperands) -> Operation:
    """RRO.EX2: its result is only for MUFU.EX2, so it is kept as it is."""
    a = float_source(o.sources[0])
    return lambda group: [a(group)]


MAXWELL_OPERATIONS: dict[str, Callable[[OperationOperands], Operation]] = {
    **INTEGER_OPERATIONS,
    "IADD": add, "IADD3": add, "IADD32I": add, "ISCADD": scaled_add, "ISCADD32I": scaled_add,
    "XMAD": multiply_halves, "LOP": logic, "LOP32I": logic, "LOP3": logic3, "SHL": shift,
    "SHR": shift, "BFE": bit_field, "BFI": insert_field, "ICMP": compare_select,
    "ISET": compare_set, "FSET": compare_set, "PSETP": predicate_set, "PSET": predicate_set,
    "RRO": range_reduction, "MOV32I": INTEGER_OPERATIONS["MOV"],
}  # fmt: skip
