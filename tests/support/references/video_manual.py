"""Video instructions on Python integers, as the PTX manual's pseudocode has them ("Video
Instructions"), and ``DEVIATIONS``: where ptxas writes something else out, by name.

``video(f, a, b, c)`` is the register that a form with its marks writes: by default as ptxas makes
it, by the manual with ``deviations=()``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection

from tilewright.ptx.isa import Form

#: ``vadd`` … are ``vadd``, ``vsub``, ``vabsdiff``, ``vmin`` and ``vmax``.
DEVIATIONS = {
    "upper half": "d.h1 gets the upper half of the result",
    "unsigned limit": "vadd … saturate for a part of d to the smaller of the limit and the result "
    "as an unsigned number",
    "zero alone": "vadd … of u32 saturate all of d at 0 alone",
    "whole shift": "shifts saturate to 32 bits, for a part of d too",
    "wide shift": "shifts that don't saturate hand on 64 bits, not 34",
    "handed on": "vadd, vsub and shifts that saturate hand on 32 bits, signed",
    "unsigned order": ".min and .max of u32 compare 64 bits, unsigned",
    "set as a": "vset takes c for its .min and .max as it does a, not as u32",
    "signed factors": "vmad takes whole registers as s32, c too",
}
WIDTH = {"": 32, "h": 16, "b": 8}
PRIMARY: dict[str, Callable[[int, int], int]] = {
    "vadd": operator.add,
    "vsub": operator.sub,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
    "vshl": operator.lshift,
    "vshr": operator.rshift,
    "vavrg": lambda x, y: x + y + (x + y >= 0) >> 1,
}


def video(f: Form, a: int, b: int, c: int, deviations: Collection[str] = DEVIATIONS) -> int:
    if f.mnemonic[-1] in "24":
        return _lanes(f, a, b, c) % (1 << 32)
    return (_mad if f.mnemonic == "vmad" else _scalar)(f, a, b, c, deviations) % (1 << 32)


def cut(x: int, width: int, signed: bool) -> int:
    """The lower bits of a number, as a number."""
    x %= 1 << width
    return x - (1 << width) if signed and x >> (width - 1) else x


def clamp(x: int, width: int, signed: bool) -> int:
    return max(-signed << width - 1, min(x, (1 << width - signed) - 1))


def part(x: int, type_: str, selector: str) -> int:
    width = WIDTH[selector[:1]]
    return cut(x >> width * int(selector[1:] or 0), width, type_ == "s32")


# --- one result -------------------------------------------------------------------------------


def _scalar(f: Form, a: int, b: int, c: int, deviations: Collection[str]) -> int:
    x, y, signed = part(a, f.A, f.asel), part(b, f.B, f.bsel), f.D == "s32"
    if f.mnemonic == "vset":
        made, signed = int(getattr(operator, f.cmp)(x, y)), False
        if "set as a" in deviations:
            signed = f.A == "s32"
    elif f.mode:
        made = _shifted(f, x, y, deviations)
    else:
        made = PRIMARY[f.mnemonic](x, y)
    if f.sat:
        made = _saturated(f, made, signed, deviations)
    if (f.mnemonic in ("vadd", "vsub") or (f.mode and f.sat)) and "handed on" in deviations:
        made = cut(made, 32, True)
    return _second(f, made, c, signed, deviations) if f.op else _merged(f, made, c, deviations)


def _shifted(f: Form, x: int, y: int, deviations: Collection[str]) -> int:
    made = PRIMARY[f.mnemonic](x, min(y, 32) if f.mode == "clamp" else y & 31)
    return cut(made, 64 if "wide shift" in deviations and not f.sat else 34, True)


def _saturated(f: Form, made: int, signed: bool, deviations: Collection[str]) -> int:
    width = WIDTH[f.dsel[:1]]
    if f.mode:
        return clamp(made, 32 if "whole shift" in deviations else width, signed)
    if f.dsel and "unsigned limit" in deviations:
        return min(made % (1 << 64), (1 << width - signed) - 1)
    if not f.dsel and not signed and "zero alone" in deviations:
        return max(made, 0)
    return clamp(made, width, signed)


def _second(f: Form, made: int, c: int, signed: bool, deviations: Collection[str]) -> int:
    if f.op == "add":
        return made + c
    width = 0 if signed or "unsigned order" not in deviations else 64
    choose = min if f.op == "min" else max
    return choose(made, cut(c, 32, signed), key=lambda x: x % (1 << width) if width else x)


def _merged(f: Form, made: int, c: int, deviations: Collection[str]) -> int:
    width = WIDTH[f.dsel[:1]]
    at = width * int(f.dsel[1:] or 0)
    if f.dsel == "h1" and "upper half" in deviations:
        made >>= 16
    mask = (1 << width) - 1 << at
    return c & ~mask | made << at & mask


def _mad(f: Form, a: int, b: int, c: int, deviations: Collection[str]) -> int:
    x, y, negated = part(a, f.A, f.asel), part(b, f.B, f.bsel), f.aneg != f.bneg
    signed = "s32" in (f.A, f.B) or negated or bool(f.cneg)
    c = cut(c, 32, signed or "signed factors" in deviations)
    if "signed factors" in deviations:
        x, y = cut(x, 32, True), cut(y, 32, True)
    made = (-x * y if negated else x * y) + (-c if f.cneg else c) + bool(f.po)
    negative = signed or ("signed factors" in deviations and not f.scale)
    made = cut(made, 64, negative) >> int(f.scale[3:] or 0)
    return clamp(made, 32, signed) if f.sat else made


# --- two or four results ----------------------------------------------------------------------


def _lanes(f: Form, a: int, b: int, c: int) -> int:
    """All of it as the manual says."""
    count = int(f.mnemonic[-1])
    width, signed, total = 32 // count, f.D == "s32", c
    whole, default = a | b << 32, "76543210"[-2 * count :]
    first, second = f.asel[1:] or default[count:], f.bsel[1:] or default[:count]
    for i in range(count):
        if f.dsel and str(i) not in f.dsel:
            continue
        x, y = (
            cut(whole >> width * int(order[-1 - i]), width, type_ == "s32")
            for order, type_ in ((first, f.A), (second, f.B))
        )
        made = int(getattr(operator, f.cmp)(x, y)) if f.cmp else PRIMARY[f.mnemonic[:-1]](x, y)
        made = clamp(made, width, signed) if f.sat else made
        mask = (1 << width) - 1 << width * i
        total = total + made if f.add else total & ~mask | made << width * i & mask
    return total
