"""Kernels of conversions, for any device that runs PTX, and operands that try to break them.

``batches(target)`` gives the legal forms in batches that share a source type; ``text`` is a kernel
of one batch, where thread g reads its operands from planes of 64-bit words ``inputs[plane, g]`` and
writes the result of form i to ``results[i, g]``; ``planes`` makes the operands; ``wanted`` says
what must come out.
"""

from __future__ import annotations

import re
import zlib
from itertools import product

import numpy as np

from conversions import FORMATS, decode, encode, expected, is_integer
from forms_convert import operands
from tilewright.errors import UnknownInstruction
from tilewright.ptx.isa import ROWS, form
from tilewright.target import Target

PLANES = 6
WIDTH = {"%c": 8, "%h": 16, "%r": 32, "%f": 32, "%l": 64, "%d": 64}
PLACES = ["tf32", "bf16", "f16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "f32"]

HEAD = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 inputs, .param .u64 results, .param .u32 count)
{{
  .reg .b64 %i, %o, %n; .reg .b32 %g, %x, %y, %m;
  .reg .b8 %c<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %l<9>;
  .reg .f64 %d<9>;
  ld.param.u64 %i, [inputs]; ld.param.u64 %o, [results]; ld.param.u32 %m, [count];
  mov.u32 %x, %ctaid.x; mov.u32 %y, %ntid.x; mov.u32 %g, %tid.x; mad.lo.u32 %g, %x, %y, %g;
  mul.wide.u32 %n, %m, 8;
  mad.wide.u32 %i, %g, 8, %i; mad.wide.u32 %o, %g, 8, %o;
"""


def runs(needed: str, target: Target) -> bool:
    return any(target.runs(one) for one in needed.split("|"))


def forms(target: str) -> list[str]:
    """Every ``cvt`` (but ``cvt.pack``) that the target has, in the rows' order."""
    have, found = Target.parse(target), {}
    for row in ROWS["cvt"]:
        for words in product(*([""] * s.optional + list(s.choices) for s in row.slots)):
            opcode = ".".join(["cvt", *filter(None, words)])
            try:
                made = form(opcode)
            except UnknownInstruction:
                continue
            if "pack" not in words and all(runs(t, have) for _, t in made.needs()):
                found[opcode] = None
    return list(found)


def batches(target: str, size: int = 24) -> list[list[str]]:
    """The forms, those of one source type and number of operands together."""
    groups: dict[object, list[str]] = {}
    for opcode in forms(target):
        groups.setdefault((opcode.rpartition(".")[2], len(operands(opcode))), []).append(opcode)
    return [g[i : i + size] for g in groups.values() for i in range(0, len(g), size)]


def registers(opcode: str) -> list[str]:
    return re.findall(r"%[a-z]\d", ", ".join(operands(opcode)))


def text(opcodes: list[str], target: str = "sm_90a", version: str = "8.6") -> str:
    """The kernel's module."""
    lines = [HEAD.format(version=version, target=target)]
    for opcode in opcodes:
        dest, *sources = registers(opcode)
        lines.append("  mov.b64 %l8, %i;")
        for name in sources:
            lines.append(f"  ld.global.b{WIDTH[name[:2]]} {name}, [%l8]; add.u64 %l8, %l8, %n;")
        lines.append(f"  {opcode} {', '.join(operands(opcode))};")
        lines.append(f"  st.global.b{WIDTH[dest[:2]]} [%o], {dest}; add.u64 %o, %o, %n;")
    return "\n".join([*lines, "  ret;", "}", ""])


def planes(opcodes: list[str], count: int, seed: int = 0) -> np.ndarray:
    """(PLANES, count) operands for a batch: random bits, special ones, near-ties of each format."""
    source = opcodes[0].rpartition(".")[2]
    rng = np.random.default_rng([seed, zlib.crc32(" ".join(opcodes).encode())])
    sources = [source] * (len(registers(opcodes[0])) - 1)
    if any("rs" in o.split(".") or "scaled" in o for o in opcodes):
        sources[-1] = "ue8m0x2" if "scaled" in opcodes[0] else "u32"
    made = np.zeros((PLANES, count), np.uint64)
    for plane, name in enumerate(sources):
        made[plane] = sample(name, count, rng)
    return made


def sample(name: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Bits of ``count`` operands of a type."""
    fmt, packed, _ = name.partition("x")
    if packed and fmt in ("f16", "bf16"):
        halves = [sample(fmt, count, rng) for _ in range(2)]
        return halves[0] | halves[1] << np.uint64(16)
    if packed:
        return rng.integers(0, 1 << 16, count).astype(np.uint64)
    bits = int(name[1:]) if is_integer(name) else FORMATS[fmt].size
    made = rng.integers(0, 1 << 64, count, np.uint64) >> np.uint64(64 - bits)
    special = integers(bits, rng) if is_integer(name) else floats(fmt, rng)
    chosen = rng.choice(np.array(special, np.uint64), count)
    return np.where(rng.random(count) < 0.75, chosen, made)


def integers(bits: int, rng: np.random.Generator) -> list[int]:
    """Around powers of two and the ties of f16, bf16, f32 and f64."""
    made = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    for keep in (8, 11, 24, 53):
        for _ in range(12):
            n = int(rng.integers(1 << (keep - 1), 1 << keep)) * 2 + 1
            n = n << int(rng.integers(0, max(bits - keep, 1)))
            made += [n - 1, n, n + 1, -n, 1 - n]
    return [n % (1 << bits) for n in made]


def floats(fmt: str, rng: np.random.Generator) -> list[int]:
    """Specials; ties and neighbours of ties of every narrower format, halves of whole numbers."""
    t = FORMATS[fmt]
    top, sign = t.top << t.spare, 1 << (t.size - 1)
    made = [0, 1, top, top + 1, top + 2, t.nan, 1 << t.mantissa, (1 << t.mantissa) - 1]
    made.append((top + 1) | 1 << max(t.mantissa - 1, 0))
    for place in PLACES:
        to = FORMATS[place]
        if to.mantissa >= t.mantissa:
            continue
        codes = [0, 1, to.top, to.top - 1, 1 << to.mantissa, *rng.integers(0, to.top, 12).tolist()]
        for code in codes:
            low, high = (decode(place, (code + i) << to.spare)[1] for i in (0, 1))
            if code >= to.top:
                high = low + (low - decode(place, (code - 1) << to.spare)[1])
            near = encode(fmt, (False, (low + high) / 2))
            made += [near - 1, near, near + 1, encode(fmt, (False, low))]
    whole = rng.integers(0, 1 << 20, 8)
    for power in (0, 8, 16, 31, 32, 63, 64):
        made += [int(np.float64(2.0**power).view(np.uint64))] if fmt == "f64" else []
    made += [
        encode(fmt, (False, decode("f64", int(np.float64(w + 0.5).view(np.uint64)))[1]))
        for w in (*whole, 0, 1, 2, 126, 127, 254, 255, 32767, 65535, 2147483647)
    ]
    made = [max(0, x) for x in made]
    return [*made, *(x | sign for x in made)]


def wanted(opcode: str, inputs: np.ndarray) -> np.ndarray:
    """The exact results for planes of operands; a signed one fills its register."""
    masks = [(1 << WIDTH[r[:2]]) - 1 for r in registers(opcode)]
    columns = [[int(x) & m for x in p] for p, m in zip(inputs, masks[1:], strict=False)]
    made = [expected(opcode, list(x)) for x in zip(*columns, strict=True)]
    dest = opcode.split(".")[-2]
    if dest == "s8":
        made = [x - 256 if x > 127 else x for x in made]
    return np.array([x & masks[0] for x in made], np.uint64)
