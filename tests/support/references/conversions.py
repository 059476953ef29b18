"""What ``cvt`` gives, derived once more: exact fractions, one value at a time, slow and plain.

Nothing here is shared with the package's arithmetic. A number is (negative, magnitude), the
magnitude a Fraction, ``INF`` or ``NAN``; ``expected`` reads an opcode as the PTX manual does.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

INF, NAN = math.inf, None


class Format(NamedTuple):
    """Bits of exponent and mantissa, and what the highest codes are."""

    exponent: int
    mantissa: int
    specials: str = "inf nan"
    spare: int = 0  # bits below the mantissa
    nan: int = 0

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def size(self) -> int:
        return 1 + self.exponent + self.mantissa + self.spare

    @property
    def top(self) -> int:
        """The code of the largest finite magnitude."""
        codes = 1 << (self.exponent + self.mantissa)
        return codes - 1 - {"inf nan": 1 << self.mantissa, "nan": 1, "": 0}[self.specials]


FORMATS = {
    "f16": Format(5, 10, nan=0x7FFF),
    "bf16": Format(8, 7, nan=0x7FFF),
    "tf32": Format(8, 10, spare=13, nan=0x7FFFE000),
    "f32": Format(8, 23, nan=0x7FFFFFFF),
    "f64": Format(11, 52, nan=0xFFF8 << 48),
    "e4m3": Format(4, 3, "nan", nan=0x7F),
    "e5m2": Format(5, 2, nan=0x7F),
    "e2m3": Format(2, 3, ""),
    "e3m2": Format(3, 2, ""),
    "e2m1": Format(2, 1, ""),
}


def two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def decode(name: str, bits: int):
    """(negative, magnitude) of a format's bits."""
    if name == "ue8m0":
        return False, NAN if bits == 0xFF else two(bits - 127)
    if name == "s2f6":
        whole = bits - 256 if bits > 127 else bits
        return whole < 0, Fraction(abs(whole), 64)
    t = FORMATS[name]
    negative, code = bool(bits >> (t.size - 1) & 1), (bits & ((1 << (t.size - 1)) - 1)) >> t.spare
    if code > t.top:
        return negative, INF if "inf" in t.specials and code == t.top + 1 else NAN
    field, rest = code >> t.mantissa, code & ((1 << t.mantissa) - 1)
    significand = rest + (1 << t.mantissa) if field else rest
    return negative, significand * two(max(field, 1) - t.bias - t.mantissa)


def exponent_of(x: Fraction) -> int:
    """The largest e with 2^e ≤ x."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if two(e) <= x else e - 1


def steps(x: Fraction, mode: str, negative: bool, random: tuple[int, int] = (0, 0)) -> int:
    """A magnitude rounded to a whole number."""
    whole, rest = divmod(x, 1)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
        "rs": math.floor(rest * two(random[1])) + random[0] >= two(random[1]),
    }[mode]
    return int(whole) + up


def encode(name: str, number, mode="rn", satfinite=False, random=(0, 0)) -> int:
    """The bits nearest to a number in the sense of ``mode``."""
    negative, x = number
    if name == "ue8m0":
        return _power(x, mode, satfinite)
    t = FORMATS[name]
    if x is NAN:
        return t.nan if "nan" in t.specials else t.top
    code = t.top + 1
    if x != INF:
        e = max(exponent_of(x), 1 - t.bias) if x else 1 - t.bias
        code = steps(x / two(e - t.mantissa), mode, negative, random)
        code += (e - (1 - t.bias)) << t.mantissa
        if code > t.top and mode in ("rz", "rp" if negative else "rm"):
            code = t.top  # the rounding points away from infinity
    code = min(code, t.top if satfinite or not t.specials else t.top + 1)
    if code > t.top and "inf" not in t.specials:
        return t.nan
    return code << t.spare | negative << (t.size - 1)


def _power(x, mode: str, satfinite: bool) -> int:
    if x is NAN:
        return 0xFF
    code = 256
    if x != INF:
        e = exponent_of(x) if x else -127
        code = max(e + (mode == "rp" and two(e) < x) + 127, 0)
    return min(code, 0xFE if satfinite else 0xFF)


# --- whole forms ------------------------------------------------------------------------------


class Form:
    """An opcode's words: ``cvt.rn.relu.f16x2.f32``."""

    def __init__(self, opcode: str) -> None:
        self.words = opcode.split(".")
        self.D, self.A = self.words[-2:]
        self.dest, self.source = (w.partition("x")[0] for w in (self.D, self.A))
        modes = {"rn", "rz", "rm", "rp", "rna", "rs", "rni", "rzi", "rmi", "rpi"}
        self.rounding = next((w for w in self.words if w in modes), "")
        self.scaled = any(w.startswith("scaled") for w in self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.words


def is_integer(name: str) -> bool:
    return name[0] in "us" and name[1:].isdigit()


def clamp(name: str, n: int) -> int:
    bits = int(name[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, n))


def scalar(f: Form, bits: int) -> int:
    """One operand to one result."""
    if is_integer(f.source):
        width = int(f.source[1:])
        n = bits - (1 << width) if f.source[0] == "s" and bits >> (width - 1) else bits
        if is_integer(f.dest):
            return (clamp(f.dest, n) if "sat" in f else n) % (1 << int(f.dest[1:]))
        return saturated(f, encode(f.dest, (n < 0, Fraction(abs(n))), f.rounding))
    if is_integer(f.dest):
        return to_integer(f, bits)
    if (f.dest, f.source) == ("f32", "bf16") and "ftz" not in f:
        return bits << 16
    if f.rounding == "rna":
        return tf32_away(bits, "satfinite" in f)
    if keeps_nan(f) and decode(f.source, bits)[1] is NAN:
        return saturated(f, propagated_nan(f, bits))
    if f.dest == f.source:
        return same(f, bits)
    number = flushed(f, decode(f.source, bits)) if f.dest != "f16" else decode(f.source, bits)
    if "ftz" in f and f.dest == "f32" and tiny(f, number):
        number = number[0], Fraction(0)
    return saturated(f, narrowed(f, number, f.rounding or "rn"))


def keeps_nan(f: Form) -> bool:
    """f64's own instructions: all but the plain copy."""
    return "f64" in (f.dest, f.source) and bool(f.rounding or f.dest != f.source)


def propagated_nan(f: Form, bits: int) -> int:
    """A NaN's sign, the highest bit of the payload set, and those of its others there is room for;
    ``.ftz`` multiplies an f32 by 1 first."""
    s, d = FORMATS[f.source], FORMATS[f.dest]
    if "ftz" in f and f.source == "f32":
        bits = s.nan
    payload = Fraction(bits % (1 << s.mantissa), 1 << s.mantissa)
    code = steps(payload * two(d.mantissa), "rz", False) | 1 << (d.mantissa - 1)
    return bits >> (s.size - 1) << (d.size - 1) | d.top + 1 | code


def flushed(f: Form, number):
    negative, x = number
    small = "ftz" in f and f.source == "f32" and x is not NAN and x < two(-126)
    return (negative, Fraction(0)) if small else number


def tiny(f: Form, number) -> bool:
    """Below 2^-126 after rounding to 24 bits, whatever the exponent."""
    negative, x = number
    if x is NAN or x == INF or x == 0:
        return False
    e = exponent_of(x)
    return steps(x / two(e - 23), f.rounding or "rn", negative) * two(e - 23) < two(-126)


def narrowed(f: Form, number, mode: str, random=(0, 0)) -> int:
    """With ``.relu`` and ``.satfinite``."""
    negative, x = number
    if "relu" in f and negative and x is not NAN:
        negative, x = False, Fraction(0)
    return encode(f.dest, (negative, x), mode, "satfinite" in f, random)


def saturated(f: Form, bits: int) -> int:
    if "sat" not in f:
        return bits
    negative, x = decode(f.dest, bits)
    if x is NAN or negative:
        return 0
    return encode(f.dest, (False, min(x, Fraction(1))))


def same(f: Form, bits: int) -> int:
    negative, x = flushed(f, decode(f.source, bits))
    if f.rounding and x is not NAN and x != INF:
        x = Fraction(steps(x, f.rounding[:2], negative))
    copied = not f.rounding and "ftz" not in f and f.source in ("f32", "f64")
    return saturated(f, bits if copied else encode(f.dest, (negative, x)))


def to_integer(f: Form, bits: int) -> int:
    width = int(f.dest[1:])
    negative, x = flushed(f, decode(f.source, bits))
    if x is NAN:
        return 1 << (width - 1) if f.source == "f64" or width == 64 else 0
    n = 1 << 70 if x == INF else steps(x, f.rounding[:2], negative)
    return clamp(f.dest, -n if negative else n) % (1 << width)


def tf32_away(bits: int, satfinite: bool) -> int:
    """The steps that ptxas writes."""
    if bits & 0x7FFFFFFF < 0x7F800000:
        bits += 0x1000
    bits &= 0xFFFFE000
    return bits - 0x2000 if satfinite and bits & 0x7FFFFFFF >= 0x7F800000 else bits


def fields(f: Form, rbits: int) -> tuple[int, ...]:
    """The random bits of each value."""
    high, low = rbits >> 16, rbits & 0xFFFF
    if f.dest == "f16":
        return high & 0x1FFF, low & 0x1FFF
    if f.dest == "bf16":
        return high, low
    if f.dest == "e2m1":
        b = rbits.to_bytes(4, "little")
        high, low = b[3] << 8 | b[1], b[2] << 8 | b[0]
    backwards = (int(f"{x:016b}"[::-1], 2) for x in (high, low))
    first, second = backwards
    return first, high, second, low


def width(name: str) -> int:
    """How much room a packed value has."""
    return {"f16": 16, "bf16": 16, "e2m1": 4}.get(name, 8)


def packed(f: Form, operands: list[int]) -> int:
    """Two or four values to one register."""
    scales = [127, 127]
    if f.scaled:
        scales = [operands[-1] >> 8, operands[-1] & 0xFF]
        operands = operands[:-1]
    randoms = [(0, 0)] * 4
    if "rs" in f:
        randoms = [(r, 13 if f.dest == "f16" else 16) for r in fields(f, operands[-1])]
        operands = operands[:-1]
    if f.A != "f32":
        room = width(f.source)
        operands = [operands[0] >> room, operands[0] & ((1 << room) - 1)]
    made = 0
    for i, bits in enumerate(operands):
        code = element(f, bits, scales[i % 2], randoms[i])
        made = made << width(f.dest) | code
    return made


def element(f: Form, bits: int, scale: int, random) -> int:
    if f.source in ("e2m3", "e3m2"):
        bits &= 0x3F
    negative, x = decode(f.source, bits)
    factor = decode("ue8m0", scale)[1]
    bad = x is NAN or factor is NAN
    if f.dest == "s2f6":
        if bad:
            return 127
        if x == INF:
            n = 1 << 20
        else:
            n = steps(x / factor * 64, "rn", negative)
        n = 0 if "relu" in f and negative else clamp("s8", -n if negative else n)
        return n % 256
    number = negative, NAN if bad else x if x == INF else x * factor
    return narrowed(f, number, f.rounding, random)


def expected(opcode: str, operands: list[int]) -> int:
    """The destination's bits for source operands (of a vector its parts)."""
    f = Form(opcode)
    return packed(f, operands) if "x" in f.D else scalar(f, operands[0])
