"""Kernels of conversions, for any device that runs PTX, and operands that try to break them.

``batches(target)`` gives the legal forms in batches that share a source type; ``text`` is a kernel
of one batch, where thread g reads its operands from planes of 64-bit words ``inputs[plane, g]`` and
writes the result of form i to ``results[i, g]``; ``planes`` makes the operands; ``on_vm`` and
``on_gpu`` run it; ``exact_results`` says what must come out.
"""

from __future__ import annotations

import re
import struct
from functools import cache
from itertools import product

import numpy as np

from ptx_forms.forms_convert import operands
from references.conversions import FORMATS, decode, encode, expected, is_integer
from references.hostile import Stream
from tilewright import cuda
from tilewright.ptx.isa import ROWS, form
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.rules.requirements import lowest_target
from tilewright.target import Target
from tilewright.vm import Machine

PLANES, BLOCK = 6, 256
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


@cache
def forms(target: str) -> list[str]:
    """Every ``cvt`` (but ``cvt.pack``) that the target has, in the rows' order."""
    have, found = Target.parse(target), {}
    for row in ROWS["cvt"]:
        for words in product(*([""] * s.optional + list(s.choices) for s in row.slots)):
            opcode = ".".join(["cvt", *filter(None, words)])
            made = None if "pack" in words else find(opcode)
            if made is not None and all(runs(t, have) for _, t in made.needs()):
                found[opcode] = None
    return list(found)


@cache
def batches(target: str, size: int = 24) -> list[list[str]]:
    """The forms, those of one source type and number of operands together."""
    groups: dict[object, list[str]] = {}
    for opcode in forms(target):
        groups.setdefault((opcode.rpartition(".")[2], len(operands(opcode))), []).append(opcode)
    return [g[i : i + size] for g in groups.values() for i in range(0, len(g), size)]


def registers(opcode: str) -> list[str]:
    return re.findall(r"%[a-z]\d", ", ".join(operands(opcode)))


def text(opcodes: list[str], target: str = "sm_90a") -> str:
    """The kernel's module."""
    needs = (need for opcode in opcodes for need in form(opcode).needs())
    (major, minor), _ = lowest_target({("6.0", target), *needs})
    lines = [HEAD.format(version=f"{major}.{minor}", target=target)]
    for opcode in opcodes:
        dest, *sources = registers(opcode)
        lines.append("  mov.b64 %l8, %i;")
        for name in sources:
            lines.append(f"  ld.global.b{WIDTH[name[:2]]} {name}, [%l8]; add.u64 %l8, %l8, %n;")
        lines.append(f"  {opcode} {', '.join(operands(opcode))};")
        lines.append(f"  st.global.b{WIDTH[dest[:2]]} [%o], {dest}; add.u64 %o, %o, %n;")
    return "\n".join([*lines, "  ret;", "}", ""])


def sources(opcodes: list[str]) -> list[str]:
    """The types of a batch's source operands."""
    made = [opcodes[0].rpartition(".")[2]] * (len(registers(opcodes[0])) - 1)
    if any("rs" in o.split(".") or "scaled" in o for o in opcodes):
        made[-1] = "ue8m0x2" if "scaled" in opcodes[0] else "u32"
    return made


def size(name: str) -> int:
    """The bits of a source type; of e2m1x2 a whole register's."""
    fmt, packed, _ = name.partition("x")
    if packed:
        return 32 if fmt in ("f16", "bf16") else 16
    return int(name[1:]) if is_integer(name) else FORMATS[fmt].size


def planes(opcodes: list[str], count: int, rng: Stream) -> np.ndarray:
    """(PLANES, count) operands for a batch: random bits, special ones, near-ties of each format."""
    made = np.zeros((PLANES, count), np.uint64)
    for plane, name in enumerate(sources(opcodes)):
        made[plane] = sample(name, count, rng)
    return made


def sample(name: str, count: int, rng: Stream) -> np.ndarray:
    """Bits of ``count`` operands of a type."""
    fmt, packed, _ = name.partition("x")
    if packed and fmt in ("f16", "bf16"):
        halves = [sample(fmt, count, rng) for _ in range(2)]
        return halves[0] | halves[1] << np.uint64(16)
    made = rng.words(count) >> np.uint64(64 - size(name))
    if packed:
        return made
    special = integers(size(name), rng) if is_integer(name) else floats(fmt, rng)
    chosen = rng.choice(np.array(special, np.uint64), count)
    return np.where(rng.random(count) < 0.75, chosen, made)


def integers(bits: int, rng: Stream) -> list[int]:
    """Around powers of two and the ties of f16, bf16, f32 and f64."""
    made = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    for keep in (8, 11, 24, 53):
        for _ in range(12):
            n = int(rng.integers(1 << (keep - 1), 1 << keep, ())) * 2 + 1
            n = n << int(rng.integers(0, max(bits - keep, 1), ()))
            made += [n - 1, n, n + 1, -n, 1 - n]
    return [n % (1 << bits) for n in made]


def floats(fmt: str, rng: Stream) -> list[int]:
    """Specials; ties and neighbours of ties of every narrower format, halves of whole numbers."""
    t = FORMATS[fmt]
    top, sign = t.top << t.spare, 1 << (t.size - 1)
    made = [0, 1, top, top + 1, top + 2, t.nan, 1 << t.mantissa, (1 << t.mantissa) - 1]
    made.append((top + 1) | 1 << max(t.mantissa - 1, 0))
    made += [top + 1 + n for n in rng.integers(1, 1 << t.mantissa, 6).tolist()]  # NaNs
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


def on_vm(ptx: str, inputs: np.ndarray, results: np.ndarray, arch: str, on_step=None) -> np.ndarray:
    """What the virtual machine writes over ``results``."""
    machine, count = Machine(arch), inputs.shape[1]
    machine.load(ptx)
    places = machine.upload(inputs), machine.upload(results)
    block = min(count, BLOCK)
    machine.launch("k", count // block, block, [*places, count], on_step=on_step)
    return machine.download(places[1], results)


def on_gpu(ptx: str, inputs: np.ndarray, results: np.ndarray) -> np.ndarray:
    """What the GPU writes over ``results``."""
    gpu, made, count = cuda.gpu(), results.copy(), inputs.shape[1]
    places = gpu.alloc(inputs.nbytes), gpu.alloc(made.nbytes)
    try:
        for place, words in zip(places, (inputs, made), strict=True):
            gpu.upload(place, words)
        with gpu.load(cuda.compile(ptx, gpu.arch)) as module:
            block = min(count, BLOCK)
            gpu.launch(module["k"], count // block, block, struct.pack("<QQI", *places, count))
            gpu.wait()
            gpu.download(made, places[1])
    finally:
        for place in places:
            gpu.free(place)
    return made


def differences(opcodes: list[str], inputs: np.ndarray, theirs, ours) -> dict[str, str]:
    """Of each form whose bits differ how many do, and the first operands and results."""
    found = {}
    for opcode, one, other in zip(opcodes, theirs, ours, strict=True):
        wrong = np.flatnonzero(one != other)
        if len(wrong):
            i = wrong[0]
            operands = " ".join(f"{int(x):#x}" for x in inputs[: len(sources(opcodes)), i])
            how = f"GPU {int(one[i]):#x}, here {int(other[i]):#x}"
            found[opcode] = f"{len(wrong)} of {len(one)} differ; {operands}: {how}"
    return found


def exact_results(opcode: str, inputs: np.ndarray) -> np.ndarray:
    """The exact results for planes of operands; a signed one fills its register."""
    masks = [(1 << WIDTH[r[:2]]) - 1 for r in registers(opcode)]
    columns = [[int(x) & m for x in p] for p, m in zip(inputs, masks[1:], strict=False)]
    made = [expected(opcode, list(x)) for x in zip(*columns, strict=True)]
    dest = opcode.split(".")[-2]
    if dest == "s8":
        made = [x - 256 if x > 127 else x for x in made]
    return np.array([x & masks[0] for x in made], np.uint64)
