"""Bitwise instructions: ``and`` to ``lop3``, shifts and ``prmt``.

Shift counts are unsigned and clamp at the width unless ``.wrap`` is written.
"""

from __future__ import annotations

from .primitives import Primitives, Value
from .row import Form, row

BITS = "pred b16 b32 b64"


@row("and.{T}", "d:T = a:T, b:T", T=BITS)
def and_(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Bitwise and."""
    return m.and_(a, b)


@row("or.{T}", "d:T = a:T, b:T", T=BITS)
def or_(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Bitwise or."""
    return m.or_(a, b)


@row("xor.{T}", "d:T = a:T, b:T", T=BITS)
def xor(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Bitwise exclusive or."""
    return m.xor(a, b)


@row("not.{T}", "d:T = a:T", T=BITS)
def not_(m: Primitives, f: Form, a: Value) -> Value:
    """Every bit flipped."""
    return m.not_(a)


@row("cnot.{T}", "d:T = a:T", T="b16 b32 b64")
def cnot(m: Primitives, f: Form, a: Value) -> Value:
    """1 where ``a`` is 0, else 0, as C's ``!``."""
    width = m.width(a)
    return m.zext(m.cmp("eq", a, m.const(width, 0)), width)


@row("shl.{T}", "d:T = a:T, n:u32", T="b16 b32 b64")
def shl(m: Primitives, f: Form, a: Value, n: Value) -> Value:
    """Left shift; a count ≥ the width gives 0."""
    return m.shl(a, n)


@row("shr.{T}", "d:T = a:T, n:u32", T="b16 b32 b64 u16 u32 u64 s16 s32 s64")
def shr(m: Primitives, f: Form, a: Value, n: Value) -> Value:
    """Right shift, filling with zeros or, for a signed type, with the sign."""
    return (m.ashr if f.T[0] == "s" else m.lshr)(a, n)


@row(
    "shf.{side}.{mode}.b32",
    "d:b32 = a:b32, b:b32, n:u32",
    side="l r",
    mode="clamp wrap",
    ptx="3.1",
    target="sm_32",
)
def shf(m: Primitives, f: Form, a: Value, b: Value, n: Value) -> Value:
    """Funnel shift of the 64 bits ``b:a``: high word of a left shift, low word of a right one."""
    if f.mode == "wrap":
        n = m.and_(n, m.const(32, 31))
    else:
        n = m.select(m.cmp("lt", n, m.const(32, 32)), n, m.const(32, 32))
    pair = m.join(a, b)
    return m.split(m.shl(pair, n), 32)[1] if f.side == "l" else m.split(m.lshr(pair, n), 32)[0]


def lookup(m: Primitives, table: int, inputs: tuple[Value, ...]) -> Value:
    """The truth table's value for each bit. The first input selects the upper or lower half of the
    table.
    """
    size = 1 << len(inputs)
    full = (1 << size) - 1
    if table in (0, full):
        return m.const(32, -1 if table else 0)
    first, rest = inputs[0], inputs[1:]
    half = (1 << size // 2) - 1
    high, low = table >> size // 2, table & half
    if high == low:
        return lookup(m, low, rest)
    if high == low ^ half:
        return (
            m.not_(first)
            if high == 0
            else first
            if low == 0
            else m.xor(first, lookup(m, low, rest))
        )
    where_set = m.and_(first, lookup(m, high, rest))
    return where_set if low == 0 else m.or_(where_set, m.and_(m.not_(first), lookup(m, low, rest)))


@row("lop3.b32", "d:b32 = a:b32, b:b32, c:b32, table:imm", ptx="4.3", target="sm_50")
def lop3(m: Primitives, f: Form, a: Value, b: Value, c: Value, table: int) -> Value:
    """Any function of three bits; bit ``4a + 2b + c`` of ``table`` is its value."""
    return lookup(m, table & 0xFF, (a, b, c))


@row(
    "lop3.{op}.b32",
    "d:b32|p:pred = a:b32, b:b32, c:b32, table:imm, q:pred",
    op="or and",
    ptx="8.2",
    target="sm_70",
)
def lop3_pred(
    m: Primitives, f: Form, a: Value, b: Value, c: Value, table: int, q: Value
) -> tuple[Value, Value]:
    """``lop3``, and the predicate "the result is not 0" combined with ``q``."""
    d = lookup(m, table & 0xFF, (a, b, c))
    p = m.cmp("ne", d, m.const(32, 0))
    return d, (m.or_ if f.op == "or" else m.and_)(p, q)


# The four selectors (c = 0 … 3) of prmt's modes, in the default mode's notation: a nibble a byte.
PRMT_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@row(
    "prmt.b32[.{mode}]",
    "d:b32 = a:b32, b:b32, c:b32",
    mode=" ".join(PRMT_MODES),
    ptx="2.0",
    target="sm_20",
)
def prmt(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Four of the eight bytes ``b:a``, each selected by a nibble of ``c``. The top bit of a nibble
    replicates the byte's sign.
    """
    if f.mode:
        c = _selector(m, PRMT_MODES[f.mode], c)
    pair = m.join(a, b)
    return m.join(*(_pick(m, pair, m.lshr(c, m.const(32, 4 * i))) for i in range(4)))


def _pick(m: Primitives, pair: Value, nibble: Value) -> Value:
    shift = m.shl(m.and_(nibble, m.const(32, 7)), m.const(32, 3))
    byte = m.trunc(m.lshr(pair, shift), 8)
    sign = m.cmp("ne", m.and_(nibble, m.const(32, 8)), m.const(32, 0))
    return m.select(sign, m.ashr(byte, m.const(32, 7)), byte)


def _selector(m: Primitives, four: tuple[int, ...], c: Value) -> Value:
    index, chosen = m.and_(c, m.const(32, 3)), m.const(32, four[3])
    for i in range(3):
        chosen = m.select(m.cmp("eq", index, m.const(32, i)), m.const(32, four[i]), chosen)
    return chosen
