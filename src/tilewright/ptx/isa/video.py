"""Video instructions: sums, differences, extremes, shifts and products of parts of registers
(``vadd`` … ``vset``), of two halves at once (``vadd2`` …) and of four bytes (``vadd4`` …).

Since sm_50 the hardware has but ``vabsdiff4``; ptxas writes the others out, and what it writes is
the meaning here. It is what the manual says, but for:

- ``d.h1`` gets the upper half of the result, not the lower.
- ``vadd``, ``vsub``, ``vabsdiff``, ``vmin`` and ``vmax`` saturate a part of ``d`` to the smaller of
  the limit and the result as an unsigned number: what is negative becomes the limit. All of a u32
  they saturate at 0 alone.
- Shifts saturate to all 32 bits, parts or not.
- ``.min`` and ``.max`` take the results of ``vadd`` and ``vsub``, and what shifts saturated, as 32
  bits, signed, and other results as 64 bits, not 34. They compare u32 as unsigned 64 bits.
- ``vset`` takes ``c`` for them as it does ``a``, not as u32.
- ``vmad`` takes its factors and ``c`` as s32 if they are whole registers, whatever their types.
"""

from __future__ import annotations

from collections.abc import Callable

from .compose import int_min_max, negative, signed
from .primitives import Primitives, Value
from .row import Form, Options, row

WORDS = "u32 s32"
TYPES: Options = {"D": WORDS, "A": WORDS, "B": WORDS}
FERMI: Options = {"ptx": "2.0", "target": "sm_20"}
KEPLER: Options = {"ptx": "3.0", "target": "sm_30"}
COMPARISONS = "eq ne lt le gt ge"


# --- one result -------------------------------------------------------------------------------


def _one(f: Form) -> str:
    """Operands: ``c`` for a second operation, or for the rest of the result."""
    second = "d:D{} = a:A.part, b:B.part, c:D"
    if f.op:
        return second.format("")
    return "d:D = a:A.part, b:B.part / " + second.format(".part")


def _compared(f: Form) -> str:
    return _one(f).replace(":D", ":A")


def _part(m: Primitives, type_: str, a: Value, selector: str) -> Value:
    """A part of a register, or all of it, in 64 bits."""
    if selector:
        a = m.split(a, _width(selector))[int(selector[1])]
    return m.sext(a, 64) if signed(type_) else m.zext(a, 64)


def _width(selector: str) -> int:
    return {"b": 8, "h": 16}[selector[0]] if selector else 32


def _clamp(m: Primitives, a: Value, type_: str, width: int) -> Value:
    """To the range of a signed or unsigned number of ``width`` bits."""
    low, high = (-1 << width - 1, (1 << width - 1) - 1) if signed(type_) else (0, (1 << width) - 1)
    at_least = int_min_max(m, "max", a, m.const(m.width(a), low), True)
    return int_min_max(m, "min", at_least, m.const(m.width(a), high), True)


def _low(m: Primitives, wide: Value) -> Value:
    """The lower 32 bits as a signed number."""
    return m.sext(m.trunc(wide, 32), 64)


def _ended(m: Primitives, f: Form, type_: str, wide: Value, c: Value) -> Value:
    """The second operation, or the result put in its place in ``c``."""
    if f.op == "add":
        return m.add(m.trunc(wide, 32), c)
    if f.op:
        wide = int_min_max(m, f.op, wide, _part(m, type_, c, ""), signed(type_))
    made = m.trunc(wide, 32)
    return _placed(m, f.dsel, made, c) if f.dsel else made


def _placed(m: Primitives, place: str, made: Value, c: Value) -> Value:
    width, index = _width(place), int(place[1])
    parts = list(m.split(c, width))
    parts[index] = m.split(made, width)[index if place == "h1" else 0]
    return m.join(*parts)


Operation = Callable[[Primitives, Value, Value], Value]

OPERATIONS: dict[str, Operation] = {
    "vadd": lambda m, a, b: m.add(a, b),
    "vsub": lambda m, a, b: m.sub(a, b),
    "vabsdiff": lambda m, a, b: _magnitude(m, m.sub(a, b)),
    "vmin": lambda m, a, b: int_min_max(m, "min", a, b, True),
    "vmax": lambda m, a, b: int_min_max(m, "max", a, b, True),
    "vavrg": lambda m, a, b: _average(m, m.add(a, b)),
}


def _magnitude(m: Primitives, a: Value) -> Value:
    return m.select(negative(m, a), m.sub(m.const(m.width(a), 0), a), a)


def _average(m: Primitives, total: Value) -> Value:
    """Half of it; a half left over is rounded up, of a negative sum down."""
    up = m.add(total, m.const(m.width(total), 1))
    return m.ashr(m.select(negative(m, total), total, up), m.const(32, 1))


ARITHMETIC: Options = {"op": "add min max", **TYPES, **FERMI}


@row("vadd.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vsub.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vabsdiff.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vmin.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vmax.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
def arithmetic(m: Primitives, f: Form, a: Value, b: Value, c: Value = None) -> Value:
    """Sum, difference or extreme of two parts, saturated; then one more operation, with ``c``, or
    the result takes the place of a part of ``c``.
    """
    a, b = _part(m, f.A, a, f.asel), _part(m, f.B, b, f.bsel)
    wide = OPERATIONS[f.mnemonic](m, a, b)
    if f.sat:
        wide = _saturated(m, f, wide)
    if f.mnemonic in ("vadd", "vsub"):
        wide = _low(m, wide)
    return _ended(m, f, f.D, wide, c)


def _saturated(m: Primitives, f: Form, wide: Value) -> Value:
    if f.dsel:
        limit = (1 << _width(f.dsel) - signed(f.D)) - 1
        return int_min_max(m, "min", wide, m.const(64, limit), False)
    if signed(f.D):
        return _clamp(m, wide, f.D, 32)
    return int_min_max(m, "max", wide, m.const(64, 0), True)


def _shift(f: Form) -> str:
    return _one(f).replace("b:B", "b:u32")


SHIFTS: Options = {"mode": "clamp wrap", "op": "add min max", "D": WORDS, "A": WORDS, **FERMI}


@row("vshl.{D}.{A}.u32[.sat].{mode}[.{op}]", _shift, **SHIFTS)
@row("vshr.{D}.{A}.u32[.sat].{mode}[.{op}]", _shift, **SHIFTS)
def shift(m: Primitives, f: Form, a: Value, b: Value, c: Value = None) -> Value:
    """``a`` shifted left or right by ``b``: at most by 32, or modulo 32; then as ``vadd``."""
    n = m.trunc(_part(m, "u32", b, f.bsel), 32)
    n = _count(m, f, n)
    wide = (m.shl if f.mnemonic == "vshl" else m.ashr)(_part(m, f.A, a, f.asel), n)
    if f.sat:
        unused = m.const(32, 30)
        wide = _low(m, _clamp(m, m.ashr(m.shl(wide, unused), unused), f.D, 32))
    return _ended(m, f, f.D, wide, c)


def _count(m: Primitives, f: Form, n: Value) -> Value:
    if f.mode == "wrap":
        return m.and_(n, m.const(32, 31))
    return int_min_max(m, "min", n, m.const(32, 32), False)


@row(
    "vset.{A}.{B}.{cmp}[.{op}]",
    _compared,
    A=WORDS,
    B=WORDS,
    cmp=COMPARISONS,
    op="add min max",
    **FERMI,
)
def vset(m: Primitives, f: Form, a: Value, b: Value, c: Value = None) -> Value:
    """1 where two parts compare so, else 0; then as ``vadd``."""
    a, b = _part(m, f.A, a, f.asel), _part(m, f.B, b, f.bsel)
    return _ended(m, f, f.A, m.zext(m.cmp(f.cmp, a, b, True), 64), c)


def _signs(f: Form) -> str:
    """Why the signs of ``vmad``'s operands don't go together, or nothing."""
    product = f.aneg != f.bneg
    if f.po and (product or f.cneg):
        return f"{f.opcode} goes with no negated product and no negated c"
    return "either the product or c can be negated, not both" if product and f.cneg else ""


@row(
    "vmad.{D}.{A}.{B}[.po][.sat][.{scale}]",
    "d:D = -a:A.part, -b:B.part, -c:D",
    scale="shr7 shr15",
    constraint=_signs,
    **TYPES,
    **FERMI,
)
def vmad(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """The product of two parts, or its negative, plus or minus ``c`` (``.po``: and 1), shifted
    right; signed if any of the two is or anything was negated, and so saturated.
    """
    a, b = (_low(m, part) for part in (_part(m, f.A, a, f.asel), _part(m, f.B, b, f.bsel)))
    zero, product, c = m.const(64, 0), m.mul(a, b), m.sext(c, 64)
    negated = f.aneg != f.bneg
    product = m.sub(zero, product) if negated else product
    total = m.add(product, m.sub(zero, c) if f.cneg else c)
    total = m.add(total, m.const(64, 1)) if f.po else total
    is_signed = negated or bool(f.cneg) or "s32" in (f.A, f.B)
    if f.scale:
        total = (m.ashr if is_signed else m.lshr)(total, m.const(32, int(f.scale[3:])))
    return m.trunc(_clamp(m, total, "s32" if is_signed else "u32", 32) if f.sat else total, 32)


# --- two or four results ----------------------------------------------------------------------


def _pairs(f: Form) -> str:
    return "d:D.mask2 = a:A.halves(), b:B.halves(), c:D()"


def _quads(f: Form) -> str:
    return "d:D.mask4 = a:A.bytes(), b:B.bytes(), c:D()"


def _lanes(m: Primitives, f: Form, a: Value, b: Value) -> tuple[list[Value], list[Value]]:
    """The halves or bytes to be worked on, the lowest first, in 32 bits."""
    width = 32 // int(f.mnemonic[-1])
    both, digits = m.split(a, width) + m.split(b, width), "76543210"[-64 // width :]
    half = len(digits) // 2

    def chosen(type_: str, order: str) -> list[Value]:
        extend = m.sext if signed(type_) else m.zext
        return [extend(both[int(digit)], 32) for digit in reversed(order)]

    first, second = f.asel[1:] or digits[half:], f.bsel[1:] or digits[:half]
    return chosen(f.A, first), chosen(f.B, second)


def _gathered(m: Primitives, f: Form, lanes: list[Value], c: Value) -> Value:
    """``c`` plus the results, or with them in their places: those that the mask names."""
    named = [not f.dsel or str(i) in f.dsel for i in range(len(lanes))]
    if not f.add:
        width = 32 // len(lanes)
        parts = zip(named, lanes, m.split(c, width), strict=True)
        return m.join(*(m.trunc(x, width) if use else old for use, x, old in parts))
    for use, x in zip(named, lanes, strict=True):
        c = m.add(c, x) if use else c
    return c


def _either(f: Form) -> str:
    return ".sat goes without .add" if f.sat and f.add else ""


SIMD: Options = {"constraint": _either, **TYPES, **KEPLER}


@row("vadd2.{D}.{A}.{B}[.sat][.add]", _pairs, **SIMD)
@row("vsub2.{D}.{A}.{B}[.sat][.add]", _pairs, **SIMD)
@row("vavrg2.{D}.{A}.{B}[.sat][.add]", _pairs, **SIMD)
@row("vabsdiff2.{D}.{A}.{B}[.sat][.add]", _pairs, **SIMD)
@row("vmin2.{D}.{A}.{B}[.sat][.add]", _pairs, **SIMD)
@row("vmax2.{D}.{A}.{B}[.sat][.add]", _pairs, **SIMD)
@row("vadd4.{D}.{A}.{B}[.sat][.add]", _quads, **SIMD)
@row("vsub4.{D}.{A}.{B}[.sat][.add]", _quads, **SIMD)
@row("vavrg4.{D}.{A}.{B}[.sat][.add]", _quads, **SIMD)
@row("vabsdiff4.{D}.{A}.{B}[.sat][.add]", _quads, **SIMD)
@row("vmin4.{D}.{A}.{B}[.sat][.add]", _quads, **SIMD)
@row("vmax4.{D}.{A}.{B}[.sat][.add]", _quads, **SIMD)
def arithmetic_simd(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Sums, differences, averages or extremes of halves or bytes, saturated, in their places in
    ``c``; with ``.add``, ``c`` plus them all.
    """
    operation = OPERATIONS[f.mnemonic[:-1]]
    made = [operation(m, x, y) for x, y in zip(*_lanes(m, f, a, b), strict=True)]
    if f.sat:
        made = [_clamp(m, x, f.D, 32 // len(made)) for x in made]
    return _gathered(m, f, made, c)


def _pairs_compared(f: Form) -> str:
    return _pairs(f).replace(":D", ":u32")


def _quads_compared(f: Form) -> str:
    return _quads(f).replace(":D", ":u32")


SETS: Options = {"A": WORDS, "B": WORDS, "cmp": COMPARISONS, **KEPLER}


@row("vset2.{A}.{B}.{cmp}[.add]", _pairs_compared, **SETS)
@row("vset4.{A}.{B}.{cmp}[.add]", _quads_compared, **SETS)
def vset_simd(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """1 for each two halves or bytes that compare so, else 0; then as ``vadd2``."""
    pairs = zip(*_lanes(m, f, a, b), strict=True)
    return _gathered(m, f, [m.zext(m.cmp(f.cmp, x, y, True), 32) for x, y in pairs], c)
