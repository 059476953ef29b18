"""What matrix instructions compute, derived a second time: exact fractions in plain loops.

Written from the published rules that ``mma/generations.py`` names and from the PTX manual's words
on formats, metadata and scales, without tilewright's arithmetic. ``element`` is one element of D;
it wants an Instruction for its fields alone.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

NAN, INF = "nan", "inf"

# bits of the exponent, of the mantissa, the bias, and whether infinity and NaN exist
FORMATS = {
    "e2m1": (2, 1, 1, ()), "e2m3": (2, 3, 1, ()), "e3m2": (3, 2, 3, ()),
    "e4m3": (4, 3, 7, (NAN,)), "e5m2": (5, 2, 15, (INF, NAN)), "ue4m3": (4, 3, 7, (NAN,)),
    "f16": (5, 10, 15, (INF, NAN)), "bf16": (8, 7, 127, (INF, NAN)),
    "tf32": (8, 10, 127, (INF, NAN)), "f32": (8, 23, 127, (INF, NAN)),
    "f64": (11, 52, 1023, (INF, NAN)),
}  # fmt: skip

# Of each architecture: bits kept below the largest exponent, bits of A's row that one sum takes.
FACTS = {
    "sm_70": (23, 64), "sm_75": (24, 128), "sm_80": (24, 128), "sm_89": (24, 128),
    "sm_90a": (25, 256), "sm_100a": (25, 256), "sm_120a": (25, 256),
}  # fmt: skip
SMALL = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


class Number(NamedTuple):
    """``value`` is signed; ``negative`` is the sign of a zero or infinity too; ``exponent`` is
    what it is aligned by, None for a zero.
    """

    value: Fraction
    negative: bool = False
    exponent: int | None = None
    special: str = ""


@cache
def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def leading(size: Fraction) -> int:
    """The exponent of the leading place; far below all for zero."""
    if not size:
        return -(10**6)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    return exponent if size >= power(exponent) else exponent - 1


@cache
def number(name: str, bits: int) -> Number:
    """The number that bits of a format mean."""
    if name == "ue8m0":
        special = NAN if bits == 255 else ""
        return Number(power(bits - 127), False, bits - 127, special)
    exponents, mantissas, bias, specials = FORMATS[name]
    if name == "tf32":
        bits >>= 13
    field = bits >> mantissas & (2**exponents - 1)
    low = bits & (2**mantissas - 1)
    negative = name[0] != "u" and bits >> (exponents + mantissas) & 1 == 1
    if INF in specials and field == 2**exponents - 1:
        return Number(Fraction(0), negative, None, NAN if low else INF)
    if specials == (NAN,) and field == 2**exponents - 1 and low == 2**mantissas - 1:
        return Number(Fraction(0), negative, None, NAN)
    exponent = max(field, 1) - bias
    value = (Fraction(low, 2**mantissas) + (1 if field else 0)) * power(exponent)
    return Number(-value if negative else value, negative, exponent if value else None)


def times(x: Number, y: Number) -> Number:
    negative = x.negative != y.negative
    kinds = {x.special, y.special}
    zero = (x.value == 0 and not x.special) or (y.value == 0 and not y.special)
    if NAN in kinds or (INF in kinds and zero):
        return Number(Fraction(0), negative, None, NAN)
    if INF in kinds:
        return Number(Fraction(0), negative, None, INF)
    both = x.exponent is not None and y.exponent is not None
    return Number(x.value * y.value, negative, x.exponent + y.exponent if both else None)


def special_sum(terms) -> Number | None:
    """Infinity or NaN if a sum of these is none of the finite."""
    infinite = {t.negative for t in terms if t.special == INF}
    if any(t.special == NAN for t in terms) or len(infinite) == 2:
        return Number(Fraction(0), False, None, NAN)
    return Number(Fraction(0), infinite.pop(), None, INF) if infinite else None


def fused(terms, fraction: int, least: int) -> Number:
    """The sum of what is left of the terms above 2^(largest exponent - fraction)."""
    special = special_sum(terms)
    if special:
        return special
    top = max([least] + [t.exponent for t in terms if t.exponent is not None])
    unit = power(top - fraction)
    total = sum(int(t.value / unit) for t in terms) * unit  # int() cuts off toward zero
    return Number(total, total < 0)


def rounded(name: str, x: Number, mode: str, *, saturates: bool = False, kept: int = 99) -> int:
    """Bits of a format; overflow is an infinity, or the largest number if ``saturates``."""
    exponents, mantissas, bias, _ = FORMATS[name]
    sign = int(x.negative) << (exponents + mantissas)
    infinity = (2**exponents - 1) << mantissas
    if x.special == NAN:
        return {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}[name]
    if x.special == INF:
        return sign | infinity
    size = abs(x.value)
    exponent = max(leading(size), 1 - bias)
    steps = size / power(exponent - min(mantissas, kept))
    whole, rest = int(steps), steps - int(steps)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rz": False, "rm": rest > 0 and x.negative, "rp": rest > 0 and not x.negative,
    }[mode]  # fmt: skip
    code = (whole + up) * 2 ** max(0, mantissas - kept)
    code += (exponent + bias - 1) << mantissas
    if code >= infinity:
        code = infinity - 1 if saturates else infinity
    return sign | code


def added(name: str, x: int, y: int) -> int:
    """IEEE's sum, to nearest."""
    return fma(name, number(name, x), Number(Fraction(1), False, 0), number(name, y), "rn")


def fma(name: str, x: Number, y: Number, z: Number, mode: str) -> int:
    product = times(x, y)
    special = special_sum([product, z])
    if special:
        return rounded(name, special, mode)
    total = product.value + z.value
    negative = total < 0
    if total == 0:  # zeros of one sign keep it
        same = product.negative == z.negative
        negative = z.negative if same and product.value == z.value == 0 else mode == "rm"
    toward_zero = mode == "rz" or mode == ("rp" if negative else "rm")
    return rounded(name, Number(total, negative), mode, saturates=toward_zero)


# --- one element of D --------------------------------------------------------------------------


def element(i, arch: str, a, b, c: int, scale_a=(), scale_b=()) -> int:
    """The bits of one element of D: ``a`` and ``b`` are the bits that meet, ``c`` its start."""
    if i.d == "s32":
        return integer(i, a, b, c)
    if i.d == "f64":
        return chain(i, a, b, c)
    if i.shape == "m8n8k4" and arch not in ("sm_70", "sm_75"):
        return rounded_additions(i, a, b, c)
    if i.stype:
        return scaled(i, a, b, c, scale_a, scale_b)
    small = i.a in SMALL
    if small and not i.asynchronous and arch in ("sm_90a", "sm_100a"):
        return through_f16(i, arch, a, b, c)
    fraction, width = FACTS["sm_70" if i.shape == "m8n8k4" else arch]  # HMMA.884 is Volta's
    least = least_exponent(i, fraction)
    if small:
        fraction, size = (25 if arch == "sm_120a" else 13), width // 8
    else:
        size = width // {"f16": 16, "bf16": 16, "tf32": 32}[i.a]
    if i.family == "wmma" and i.a == "tf32":
        size = 4
    kind, mode, kept = sum_kind(i, fraction)
    takes_f16 = i.shape == "m8n8k4" or arch == "sm_70"  # HMMA.884.F32.F16, then .F32.F32
    addend = number(i.c, c) if takes_f16 else number(kind, widened(i.c, kind, c))
    total = 0
    for k in range(0, len(a), size):
        terms = [
            times(number(i.a, x), number(i.b, y))
            for x, y in zip(a[k : k + size], b[k : k + size], strict=True)
        ]
        total = fused_bits(kind, [*terms, addend], fraction, least, mode, kept)
        addend = number(kind, total)
    if i.satfinite and arch in ("sm_70", "sm_75"):
        return rounded(i.d, number(kind, saturated(kind, total)), "rn")
    return finished(i, kind, total)


def sum_kind(i, fraction: int) -> tuple[str, str, int]:
    kind = "f32" if "f32" in (i.c, i.d) else "f16"
    return kind, "rn" if kind == "f16" else "rz", fraction if fraction < 23 else 99


def least_exponent(i, fraction: int) -> int:
    return (4 if i.c == i.d == "f16" else -108) - fraction


def fused_bits(kind, terms, fraction, least, mode, kept) -> int:
    bits = rounded(kind, fused(terms, fraction, least), mode, kept=kept)
    return 0 if bits == {"f16": 0x8000, "f32": 0x80000000}[kind] else bits  # no negative zero


def widened(source: str, kind: str, bits: int) -> int:
    return bits if source == kind else rounded(kind, number(source, bits), "rn")


def saturated(kind: str, bits: int) -> int:
    """HMMA's .SATFINITE: infinity becomes the largest number, NaN +0."""
    infinity = {"f16": 0x7C00, "f32": 0x7F800000}[kind]
    size = bits % {"f16": 2**15, "f32": 2**31}[kind]
    if size > infinity:
        return 0
    return bits - 1 if size == infinity else bits


def finished(i, kind: str, bits: int) -> int:
    if kind == i.d:
        return bits
    mode = "rz" if i.satfinite else "rn"
    return rounded(i.d, number(kind, bits), mode, saturates=i.satfinite)


def through_f16(i, arch: str, a, b, c: int) -> int:
    """fp8 as f16: a product from zero of the bytes 0 and 1 of each four, one of 2 and 3, and c."""
    fraction = FACTS[arch][0]
    kind, mode, kept = sum_kind(i, fraction)
    total = 0
    for first in (0, 2):
        terms = []
        for k in range(len(a)):
            if k % 4 in (first, first + 1):
                left, right = (as_f16(t, int(x)) for t, x in ((i.a, a[k]), (i.b, b[k])))
                terms.append(times(left, right))
        last = number(kind, total)
        total = fused_bits(kind, [*terms, last], fraction, least_exponent(i, fraction), mode, kept)
    return added(kind, total, c)


def as_f16(name: str, bits: int) -> Number:
    return number("f16", rounded("f16", number(name, bits), "rn"))


def scaled(i, a, b, c: int, scale_a, scale_b) -> int:
    """mxf8f6f4: each product times 2^both. mxf4, mxf4nvf4: exact sums of 16, times both scales."""
    per = len(a) // len(scale_a)
    scales = [
        times(number(i.stype, int(x)), number(i.stype, int(y)))
        for x, y in zip(scale_a, scale_b, strict=True)
    ]
    products = [times(number(i.a, x), number(i.b, y)) for x, y in zip(a, b, strict=True)]
    if i.kind == "mxf8f6f4":
        terms = [times(p, scales[k // per]) for k, p in enumerate(products)]
        total = fused([*terms, number("f32", c)], 25, -133)
    else:
        terms = []
        for k in range(0, len(a), 16):
            group = products[k : k + 16]
            live = any(p.value for p in group)
            exact = sum(p.value for p in group)
            terms.append(times(Number(exact, exact < 0, 0 if live else None), scales[k // per]))
        total = fused([*terms, number("f32", c)], 35, -139)
    return rounded("f32", total, "rz")


def rounded_additions(i, a, b, c: int) -> int:
    """f16's m8n8k4 from sm_80 on: f32 additions."""
    products = [
        rounded("f32", times(number("f16", x), number("f16", y)), "rn")
        for x, y in zip(a, b, strict=True)
    ]
    start = widened(i.c, "f32", c)
    if i.d == "f32":
        total = 0
        for p in products:
            total = added("f32", total, p)
        return added("f32", start, total)
    first, second = added("f32", *products[:2]), added("f32", *products[2:])
    total = added("f32", added("f32", start, first), second)
    return rounded("f16", number("f32", total), "rn")


def chain(i, a, b, c: int) -> int:
    """f64: a NaN stays, made quiet: B's before C's before A's."""
    for x, y in zip(a, b, strict=True):
        old = [number("f64", v) for v in (y, c, x)]
        made = fma("f64", old[2], old[0], old[1], i.rounding or "rn")
        nans = [v for v, n in zip((y, c, x), old, strict=True) if n.special == NAN]
        c = nans[0] | 1 << 51 if nans else made
    return c


def integer(i, a, b, c: int) -> int:
    def value(name: str, bits: int) -> int:
        width = int(name[1:])
        return bits - 2**width if name[0] == "s" and bits >> (width - 1) else bits

    total = value("s32", c)
    for x, y in zip(a, b, strict=True):
        if i.a == "b1":
            total += x ^ y if i.operation == "xor" else x & y
        else:
            total += value(i.a, x) * value(i.b, y)
    if i.satfinite:
        total = min(max(total, -(2**31)), 2**31 - 1)
    return total % 2**32


# --- sparse A and registers --------------------------------------------------------------------


def columns(i, codes) -> list[int]:
    """The column of dense A that each stored element of a row stands in."""
    if i.a == "tf32":
        return [2 * n + (code == 0b1110) for n, code in enumerate(codes)]
    if i.a in ("s4", "u4") or (i.a == "e2m1" and i.kind in ("mxf4", "mxf4nvf4")):
        places = [(4 * (n // 2) + code) * 2 for n, code in enumerate(codes)]
        return [p + j for p in places for j in (0, 1)]
    return [4 * (n // 2) + code for n, code in enumerate(codes)]


def registers(i, name: str, matrix) -> list[list[int]]:
    """[lane][register] of A or B of the 8-bit and 4-bit kinds, as the manual's formulas have it.

    Bytes: 4 neighbours of a row in a register, fp4 in the middle of its byte. Packed fp4: 8.
    """
    packed = i.kind in ("mxf4", "mxf4nvf4") and i.a == "e2m1"
    run, bits = (8, 4) if packed else (4, 8)
    low = 2 if i.extent(name)[0] == "e2m1" and not packed else 0
    lanes = []
    for lane in range(32):
        group, member = divmod(lane, 4)
        words = []
        if name == "a":
            corners = [(r, k) for k in range(0, i.stored_k, 4 * run) for r in (0, 8)]
        else:
            corners = [(0, k) for k in range(0, i.k, 4 * run)]
        for row, first in corners:
            word = 0
            for j in range(run):
                k = first + member * run + j
                code = matrix[group + row][k] if name == "a" else matrix[k][group]
                word |= int(code) << low << (bits * j)
            words.append(word)
        lanes.append(words)
    return lanes


def scale_registers(i, name: str, matrix, byte: int, thread: int, noise) -> list[list[int]]:
    """Scales in the bytes and threads that the selectors name, ``noise`` in all others."""
    lanes = [[int(noise(lane))] for lane in range(32)]
    for lane in range(32):
        group, member = divmod(lane, 4)
        if name == "scale_a":  # threads 0 and 1, or 2 and 3, of a quad: rows g and g + 8
            chosen, row = member // 2 == thread, group + 8 * (member % 2)
            codes = matrix[row]
        else:
            chosen = member == thread
            codes = [line[group] for line in matrix]
        if chosen:
            word = lanes[lane][0]
            for j, code in enumerate(codes):
                word &= ~(0xFF << 8 * (byte + j))
                word |= int(code) << 8 * (byte + j)
            lanes[lane][0] = word
    return lanes


def metadata_registers(i, matrix) -> list[list[int]]:
    """2-bit indices: of a quad, threads 0 and 2 have row g, 1 and 3 row g + 8; 16 in each."""
    lanes = []
    for lane in range(32):
        group, member = divmod(lane, 4)
        row, first = group + 8 * (member % 2), 16 * (member // 2)
        lanes.append([sum(int(matrix[row][first + j]) << 2 * j for j in range(16))])
    return lanes
