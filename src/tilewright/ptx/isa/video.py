"""Video instructions: sums, differences, minima, shifts and products of bytes, halves or words
(``vadd`` … ``vset``), and SIMD forms on two halves (``vadd2`` …) or four bytes (``vadd4`` …).

Since sm_50 the hardware has only ``vabsdiff4``; ptxas lowers the others, and its lowering defines
the meaning here. It differs from the manual as follows:

- ``d.h1`` receives the upper half of the result, not the lower.
- ``vadd``, ``vsub``, ``vabsdiff``, ``vmin`` and ``vmax`` saturate a part of ``d`` to the unsigned
  minimum of the limit and the result: a negative result becomes the limit. A whole u32 register is
  saturated only at 0.
- Shifts saturate to 32 bits, also for a part of ``d``.
- ``.min`` and ``.max`` read the results of ``vadd`` and ``vsub``, and saturated results of shifts,
  as signed 32-bit numbers, other results as 64 bits, not 34. For u32 they compare unsigned 64 bits.
- For these, ``vset`` reads ``c`` with the type of ``a``, not as u32.
- ``vmad`` reads whole-register factors and ``c`` as s32, whatever their types.
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
    """Operands: ``c`` is the operand of a second operation, or is merged with the result."""
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
    """Clamp to the range of a signed or unsigned number of ``width`` bits."""
    low, high = (-1 << width - 1, (1 << width - 1) - 1) if signed(type_) else (0, (1 << width) - 1)
    at_least = int_min_max(m, "max", a, m.const(m.width(a), low), True)
    return int_min_max(m, "min", at_least, m.const(m.width(a), high), True)


def _low(m: Primitives, wide: Value) -> Value:
    """The lower 32 bits as a signed number."""
    return m.sext(m.trunc(wide, 32), 64)


def _ended(m: Primitives, f: Form, type_: str, wide: Value, c: Value) -> Value:
    """The second operation, or the result merged into ``c``."""
    if f.op == "add":
        return m.add(m.trunc(wide, 32), c)
    if f.op:
        wide = int_min_max(m, f.op, wide, _part(m, type_, c, ""), signed(type_))
    result = m.trunc(wide, 32)
    return _merged(m, f.dsel, result, c) if f.dsel else result


def _merged(m: Primitives, selector: str, result: Value, c: Value) -> Value:
    """``c`` with the selected part replaced by the result."""
    width, index = _width(selector), int(selector[1])
    parts = list(m.split(c, width))
    parts[index] = m.split(result, width)[index if selector == "h1" else 0]
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
    """Half of the sum; ties round up, or down for a negative sum."""
    up = m.add(total, m.const(m.width(total), 1))
    return m.ashr(m.select(negative(m, total), total, up), m.const(32, 1))


ARITHMETIC: Options = {"op": "add min max", **TYPES, **FERMI}


@row("vadd.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vsub.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vabsdiff.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vmin.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
@row("vmax.{D}.{A}.{B}[.sat][.{op}]", _one, **ARITHMETIC)
def arithmetic(m: Primitives, f: Form, a: Value, b: Value, c: Value = None) -> Value:
    """Sum, difference, minimum or maximum of two parts, saturated; then a second operation with
    ``c``, or the result replaces a part of ``c``.
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
    """``a`` shifted left or right by ``b``, clamped to 32 or modulo 32; then as ``vadd``."""
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
    """1 where the comparison of two parts holds, else 0; then as ``vadd``."""
    a, b = _part(m, f.A, a, f.asel), _part(m, f.B, b, f.bsel)
    return _ended(m, f, f.A, m.zext(m.cmp(f.cmp, a, b, True), 64), c)


def _signs(f: Form) -> str:
    """Why the signs of ``vmad``'s operands can't be combined, or an empty string."""
    product = f.aneg != f.bneg
    if f.po and (product or f.cneg):
        return f"{f.opcode} can't be combined with a negated product or a negated c"
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
    """The product of two parts, or its negative, plus or minus ``c`` (``.po``: plus 1), shifted
    right. It is signed, and saturated as such, if a factor is signed or anything is negated.
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
    """The selected halves or bytes of ``a`` and ``b``, the lowest first, extended to 32 bits."""
    width = 32 // int(f.mnemonic[-1])
    both, digits = m.split(a, width) + m.split(b, width), "76543210"[-64 // width :]
    half = len(digits) // 2

    def chosen(type_: str, order: str) -> list[Value]:
        extend = m.sext if signed(type_) else m.zext
        return [extend(both[int(digit)], 32) for digit in reversed(order)]

    first, second = f.asel[1:] or digits[half:], f.bsel[1:] or digits[:half]
    return chosen(f.A, first), chosen(f.B, second)


def _packed(m: Primitives, f: Form, lanes: list[Value], c: Value) -> Value:
    """``c`` with the results that the mask selects, or with ``.add`` plus those results."""
    selected = [not f.dsel or str(i) in f.dsel for i in range(len(lanes))]
    if not f.add:
        width = 32 // len(lanes)
        parts = zip(selected, lanes, m.split(c, width), strict=True)
        return m.join(*(m.trunc(x, width) if use else old for use, x, old in parts))
    for use, x in zip(selected, lanes, strict=True):
        c = m.add(c, x) if use else c
    return c


def _sat_or_add(f: Form) -> str:
    return ".sat and .add exclude each other" if f.sat and f.add else ""


SIMD: Options = {"constraint": _sat_or_add, **TYPES, **KEPLER}


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
    """Sums, differences, averages, minima or maxima of halves or bytes, saturated; they replace the
    parts of ``c``, or with ``.add`` are added to ``c``.
    """
    operation = OPERATIONS[f.mnemonic[:-1]]
    results = [operation(m, x, y) for x, y in zip(*_lanes(m, f, a, b), strict=True)]
    if f.sat:
        results = [_clamp(m, x, f.D, 32 // len(results)) for x in results]
    return _packed(m, f, results, c)


def _pairs_compared(f: Form) -> str:
    return _pairs(f).replace(":D", ":u32")


def _quads_compared(f: Form) -> str:
    return _quads(f).replace(":D", ":u32")


SETS: Options = {"A": WORDS, "B": WORDS, "cmp": COMPARISONS, **KEPLER}


@row("vset2.{A}.{B}.{cmp}[.add]", _pairs_compared, **SETS)
@row("vset4.{A}.{B}.{cmp}[.add]", _quads_compared, **SETS)
def vset_simd(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """1 for each pair of halves or bytes whose comparison holds, else 0; then as ``vadd2``."""
    pairs = zip(*_lanes(m, f, a, b), strict=True)
    return _packed(m, f, [m.zext(m.cmp(f.cmp, x, y, True), 32) for x, y in pairs], c)
