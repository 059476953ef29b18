"""Integer and predicate instructions as functions of operand values (uint32 arrays, bools).

Each builder takes the parsed instruction and returns a function of the group that gives the values
of the result operands, in their order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....errors import SassError
from ...sass_text import SassOperand
from ..thread_state import ThreadGroup
from .bit_operations import BIT_OPERATIONS
from .operand_reader import Reader, integer_source, word_source
from .operation_operands import Array, Operation, OperationOperands, signed, wide, word

_WORD = np.uint64(0xFFFFFFFF)


def _sum_terms(operand: SassOperand, in_chain: bool) -> tuple[Reader, int]:
    """A term of a sum that has a carry: −x is ~x + 1, and within a chain (.X) only ~x."""
    read = word_source(operand)
    if "-" in operand.marks:
        return (lambda group: ~read(group)), 0 if in_chain else 1
    if "~" in operand.marks:
        return (lambda group: ~read(group)), 0
    return read, 0


def add3(o: OperationOperands) -> Operation:
    """IADD3: three terms, up to two carries in and out."""
    chain = o.has("X")
    count = sum(x.kind not in ("P#", "UP#") for x in o.sources)
    terms = [_sum_terms(x, chain) for x in o.sources[:count]]
    ones = sum(n for _, n in terms)
    carries = o.predicates() if chain else []

    def run(group: ThreadGroup) -> list[Array]:
        total = np.full((1, 1), ones, np.uint64)
        for read, _ in terms:
            total = total + wide(read(group))
        for carry in carries:
            total = total + carry(group)
        high = total >> np.uint64(32)
        return _ordered(o, word(total), [high >= 1, high >= 2])

    return run


def _ordered(o: OperationOperands, value: Array, flags: list[Array]) -> list[Array]:
    """The value and flags in the order of the result operands."""
    rest = iter(flags)
    return [next(rest) if x.kind in ("P#", "UP#") else value for x in o.outputs]


def multiply_add(o: OperationOperands) -> Operation:
    """IMAD: low word, .HI, .WIDE; .U32 unsigned; .X adds a carry."""
    unsigned = o.has("U32")
    a, b = (word_source(x) for x in o.sources[:2])
    negative = ["-" in x.marks for x in o.sources[:3]]
    addend = o.sources[2]
    inverted = "~" in addend.marks
    low = word_source(addend)
    high = word_source(addend, 1) if o.has("WIDE") or o.has("HI") else None
    carry = o.predicates()[-1] if o.has("X") else None
    extend = wide if unsigned else signed

    def run(group: ThreadGroup) -> list[Array]:
        product = (extend(a(group)) * extend(b(group))).astype(np.uint64)
        if negative[0] != negative[1]:
            product = ~product + np.uint64(1)
        third = wide(low(group))
        if high is not None:
            third = third | wide(high(group)) << np.uint64(32)
        if inverted:
            third = ~third
        if negative[2]:
            third = ~third + np.uint64(1)
        total = product + third
        overflow = total < product
        if carry is not None:
            more = total + carry(group)
            overflow, total = overflow | (more < total), more
        if o.has("WIDE"):
            return [*_ordered(o, word(total), [overflow]), word(total >> np.uint64(32))]
        return _ordered(o, word(total >> np.uint64(32) if o.has("HI") else total), [overflow])

    return run


def dot4(o: OperationOperands) -> Operation:
    """IDP.4A and .2A: products of bytes, or of halves with two bytes, added to the third source."""
    a, b, c = o.integers(3)
    names = o.opcode.split(".")
    kinds = [n for n in names if n[0] in "SU" and n[1:].isdigit()]
    halves = "2A" in names
    start = 2 if halves and "HI" in names else 0

    def run(group: ThreadGroup) -> list[Array]:
        total = signed(c(group))
        x, y = a(group), b(group)
        for i in range(2 if halves else 4):
            first = _field(x, 16 * i if halves else 8 * i, 16 if halves else 8, kinds[0])
            total = total + first * _field(y, 8 * (i + start), 8, kinds[1])
        return [word(total)]

    return run


def _field(value: Array, shift: int, bits: int, kind: str) -> Array:
    """A bit field, sign-extended if its kind is S."""
    field = (value >> np.uint32(shift)).astype(np.int64) & (1 << bits) - 1
    return np.where(field >> bits - 1, field - (1 << bits), field) if kind[0] == "S" else field


def add_difference(o: OperationOperands) -> Operation:
    """VABSDIFF: |a − b| + c."""
    a, b, c = o.integers(3)
    extend = wide if o.has("U32") else signed

    def run(group: ThreadGroup) -> list[Array]:
        x, y = (extend(read(group)).astype(np.int64) for read in (a, b))
        return [word(np.abs(x - y) + signed(c(group)))]

    return run


def logic3(o: OperationOperands) -> Operation:
    """LOP3.LUT: any function of three words; its predicate is ``result ≠ 0``."""
    a, b, c = (integer_source(x) for x in o.sources[:3])
    table = int(o.sources[3].numbers[0])
    other = o.predicates()

    def run(group: ThreadGroup) -> list[Array]:
        result = lookup(table, a(group), b(group), c(group))
        flag = result != 0
        return _ordered(o, result, [flag | other[0](group) if other else flag])

    return run


def lookup(table: int, a: Array, b: Array, c: Array) -> Array:
    """Bitwise function whose bit 4a + 2b + c in ``table`` is the result."""
    total = np.zeros((1, 1), a.dtype)
    for i in range(8):
        if table >> i & 1:
            total = total | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return total


def predicate_logic3(o: OperationOperands) -> Operation:
    """PLOP3.LUT: a function of three predicates for each of two results."""
    a, b, c = o.predicates()
    tables = [int(x.numbers[0]) for x in o.sources if x.kind == "#"]
    return lambda group: [
        np.asarray(lookup(t, a(group), b(group), c(group))) for t in (*tables, 0)[:2]
    ]


def load_effective_address(o: OperationOperands) -> Operation:
    """LEA: (a << shift) + b, .HI takes the high word of {c, a} << shift. What is shifted is negated
    behind the shift, so that a borrow is right where nothing is left of it.
    """
    high, chain, extends = o.has("HI"), o.has("X"), o.has("SX32")
    a, second = o.sources[0], _sum_terms(o.sources[1], chain)
    values = [x for x in o.sources if x.kind not in ("P#", "UP#")]
    amount = int(values[-1].numbers[0])
    first, inverted = word_source(a), "-" in a.marks or "~" in a.marks
    ones = second[1] + int("-" in a.marks and not chain)
    third = word_source(o.sources[2]) if high and not extends else None
    carry = o.predicates()[-1] if chain else None

    def run(group: ThreadGroup) -> list[Array]:
        x = first(group)
        shifted = wide(x) << np.uint64(amount)
        if high:
            upper = (signed(x) >> 32).astype(np.uint64) if extends else wide(third(group)) if (
                third) else np.uint64(0)  # fmt: skip
            shifted = (wide(x) | upper << np.uint64(32)) << np.uint64(amount) >> np.uint64(32)
        shifted = ~shifted if inverted else shifted
        total = (shifted & _WORD) + wide(second[0](group)) + np.uint64(ones)
        if carry is not None:
            total = total + carry(group)
        return _ordered(o, word(total), [total >> np.uint64(32) != 0])

    return run


def compare_integers(o: OperationOperands) -> Operation:
    """ISETP: (a ⋈ b) op p and (not a ⋈ b) op p; .EX continues a comparison of lower words."""
    a, b = o.integers(2)
    names = o.opcode.split(".")
    extend = wide if o.has("U32") else signed
    others = o.predicates()

    def run(group: ThreadGroup) -> list[Array]:
        x, y = extend(a(group)), extend(b(group))
        if o.has("EX"):
            result = _extended(names[1], x, y, others[1](group))
        else:
            result = ordered_compare(names[1], x, y)
        return combined(names, result, others[0](group))

    return run


def _extended(name: str, x: Array, y: Array, lower: Array) -> Array:
    """A comparison of high words, given that of the low words (which was .U32)."""
    if name in ("EQ", "NE"):
        return np.asarray((x == y) & lower if name == "EQ" else (x != y) | lower)
    strict = ordered_compare({"GE": "GT", "LE": "LT"}.get(name, name), x, y)
    return np.asarray(strict | ((x == y) & lower))


def ordered_compare(name: str, x: Array, y: Array) -> Array:
    """LT EQ LE GT NE GE, and T and F."""
    table: dict[str, Callable[[Array, Array], Array]] = {
        "LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater,
        "NE": np.not_equal, "GE": np.greater_equal,
        "T": lambda p, q: np.asarray(p == p) | (q == q),
        "F": lambda p, q: np.asarray(p != p) & (q != q),
    }  # fmt: skip
    if name not in table:
        raise SassError(f"a comparison must be LT, EQ, LE, GT, NE or GE, got {name}")
    return np.asarray(table[name](x, y))


def combined(names: list[str], result: Array, other: Array) -> list[Array]:
    """Both results of a SETP: the comparison and its opposite, combined with a predicate."""
    joins = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}
    join = next((joins[n] for n in names if n in joins), np.logical_and)
    return [join(result, other), join(~result, other)]


def select(o: OperationOperands) -> Operation:
    """SEL, and FSEL through ``float_operations``: a where the predicate holds, else b."""
    a, b = o.integers(2)
    p = o.predicates()[0]
    return lambda group: [np.where(p(group), a(group), b(group))]


def move(o: OperationOperands) -> Operation:
    """MOV and its immediate form."""
    a = integer_source(o.sources[0])
    return lambda group: [a(group)]


def minmax(o: OperationOperands) -> Operation:
    """VIMNMX and IMNMX: the smaller where the predicate holds; U32 unsigned."""
    if any("16x2" in m for m in o.modifiers):
        return packed_minmax(o)
    a, b = o.integers(2)
    p = o.predicates()[0]
    extend = wide if o.has("U32") else signed

    def run(group: ThreadGroup) -> list[Array]:
        x, y = extend(a(group)), extend(b(group))
        return [word(np.where(p(group), np.minimum(x, y), np.maximum(x, y)))]

    return run


def packed_minmax(o: OperationOperands) -> Operation:
    """VIMNMX.S16x2 and .U16x2, of both halves."""
    a, b = o.integers(2)
    p = o.predicates()[0]
    kind = "U" if o.has("U16x2") else "S"

    def run(group: ThreadGroup) -> list[Array]:
        x, y, smaller = a(group), b(group), p(group)
        halves = []
        for shift in (0, 16):
            u, v = _field(x, shift, 16, kind), _field(y, shift, 16, kind)
            picked = np.where(smaller, np.minimum(u, v), np.maximum(u, v))
            halves.append(picked & 0xFFFF)
        return [word(halves[0] | halves[1] << 16)]

    return run


def add_minmax(o: OperationOperands) -> Operation:
    """VIADDMNMX: the smaller (or larger) of a + b and c."""
    a, b, c = o.integers(3)
    p = o.predicates()[0]
    extend = wide if o.has("U32") else signed

    def run(group: ThreadGroup) -> list[Array]:
        x, y = extend(a(group) + b(group)), extend(c(group))
        return [word(np.where(p(group), np.minimum(x, y), np.maximum(x, y)))]

    return run


def absolute(o: OperationOperands) -> Operation:
    """IABS."""
    a = o.integers(1)[0]
    return lambda group: [word(np.abs(signed(a(group))))]


INTEGER_OPERATIONS: dict[str, Callable[[OperationOperands], Operation]] = {
    "IADD3": add3, "VIADD": add3, "IMAD": multiply_add, "IDP": dot4, "LOP3": logic3,
    "PLOP3": predicate_logic3, "LEA": load_effective_address, "ISETP": compare_integers,
    "SEL": select, "MOV": move, "VIMNMX": minmax, "IMNMX": minmax, "VIADDMNMX": add_minmax,
    "IABS": absolute, "VABSDIFF": add_difference, **BIT_OPERATIONS,
}  # fmt: skip
