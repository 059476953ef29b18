"""Kernels that move fragments: for each of some forms, memory in, registers out, or the reverse.

A form has 4 KB of its own in global memory, and the same in shared memory, copied before and back
after. Lane i's line of ldmatrix and stmatrix is where ``order`` says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptx_kernels.simt import both, kernel
from tilewright import mma
from tilewright.dtypes import dtype
from tilewright.mma import FragmentMove
from tilewright.ptx.rules.requirements import lowest_target

IMAGE = 4096  # bytes of memory for each form
BATCH = 10  # forms in a kernel
WORDS = 1024  # 32-bit words of registers for each form: 32 threads of at most 32
PROLOGUE = """
mov.u32 %r2, sm; mov.u32 %r3, 0;
L: shl.b32 %r4, %t, 4; add.u32 %r4, %r4, %r3; cvt.u64.u32 %rd0, %r4; add.u64 %rd0, %rd0, %a1;
ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd0]; add.u32 %r4, %r4, %r2;
st.shared.v4.b32 [%r4], {{%r5, %r6, %r7, %r8}};
add.u32 %r3, %r3, 512; setp.lt.u32 %p0, %r3, {bytes}; @%p0 bra L; bar.warp.sync -1;
mad.wide.u32 %rd1, %t, 4, %a3; ld.global.u32 %r9, [%rd1]; shl.b32 %r9, %r9, 4;
"""
EPILOGUE = """
bar.warp.sync -1; mov.u32 %r3, 0;
M: shl.b32 %r4, %t, 4; add.u32 %r4, %r4, %r3; cvt.u64.u32 %rd0, %r4; add.u64 %rd0, %rd0, %a4;
add.u32 %r4, %r4, %r2; ld.shared.v4.b32 {{%r5, %r6, %r7, %r8}}, [%r4];
st.global.v4.b32 [%rd0], {{%r5, %r6, %r7, %r8}};
add.u32 %r3, %r3, 512; setp.lt.u32 %p0, %r3, {bytes}; @%p0 bra M;
"""


@dataclass(frozen=True)
class Case:
    """A form, with a stride for wmma's: 0 leaves it out, ``constant`` writes it as an immediate."""

    move: FragmentMove
    stride: int = 0
    constant: bool = False

    @property
    def shared(self) -> bool:
        return self.move.space.startswith("shared") or not self.move.instruction

    def text(self, number: int) -> str:
        """The instruction between its loads and stores, for image ``number``."""
        move, word = self.move, self.move.fragment.word
        names = [f"%x{i}" for i in range(move.registers)]
        first, size = 4 * WORDS * number, word // 8
        places = [f"[%v+{first + 32 * size * i}]" for i in range(len(names))]
        pairs = list(zip(names, places, strict=True))
        loads = [f"ld.global.b{word} {x}, {at};" for x, at in pairs]
        stores = [f"st.global.b{word} {at}, {x};" for x, at in pairs]
        made, given = (f"mad.wide.u32 %v, %t, {size}, %a{i};" for i in (0, 2))
        held = f"{{{', '.join(names)}}}"
        stride = f", {self.stride if self.constant else '%s'}" if self.stride else ""
        if move.family == "movmatrix":
            lines = [given, *loads, f"{move.opcode} %x0, %x0;", made, *stores]
        elif move.loads:
            lines = [f"{move.opcode} {held}, [%m]{stride};", made, *stores]
        else:
            lines = [given, *loads, f"{move.opcode} [%m], {held}{stride};"]
        head = f"{{ .reg .b{word} {', '.join(names)}; .reg .b32 %s; .reg .b64 %m, %v;"
        return "\n".join([head, self._address(number), *lines, "}"])

    def _address(self, number: int) -> str:
        at = IMAGE * number
        if not self.shared:
            return f"add.u64 %m, %a1, {at}; mov.u32 %s, {self.stride};"
        own = "" if self.move.instruction else "add.u32 %s, %s, %r9;"
        text = f"mov.u32 %s, {at}; add.u32 %s, %s, %r2; {own} cvt.u64.u32 %m, %s;"
        if not self.move.space:
            text += "cvta.shared.u64 %m, %m;"
        return f"{text} mov.u32 %s, {self.stride};"


def matters(move: FragmentMove):
    """What addresses depend on."""
    f = move.fragment
    form = move.family, move.shape, move.trans, move.count
    return *form, f.layout, f.bits, f.dtype.bits, move.lines


def cases(arch: str) -> list[Case]:
    """Of moves that are alike one, each time in another space and with another stride."""
    groups: dict[object, list[FragmentMove]] = {}
    for move in (m.on(arch) for m in mma.FRAGMENT_MOVES if m.arch == arch or arch != "sm_100a"):
        if move.in_version("8.8", arch):
            groups.setdefault(matters(move), []).append(move)
    made = []
    for i, group in enumerate(groups.values()):
        move = group[i % len(group)]
        made.append(Case(move))
        if move.instruction and arch != "sm_70":
            other = group[(i + 1) % len(group)]
            unit = 8 * other.pitch // other.fragment.bits
            longer = -(-other.leading // unit) * unit + unit * (1 + i % 3)
            made.append(Case(other, longer, constant=i % 2 == 0))
    return made


def batches(arch: str, selected=lambda move: True):
    found = [case for case in cases(arch) if selected(case.move)]
    return [found[i : i + BATCH] for i in range(0, len(found), BATCH)]


def bits_of(case: Case, image, order):
    """The bytes of an image that hold lines, one line after another, as (lines, bits)."""
    lines, elements = case.move.lines
    if not case.move.instruction:
        rows = image.reshape(-1, mma.fragment_moves.ROW_BYTES)[order[:lines]]
    else:
        pitch = (case.stride or elements) * case.move.fragment.dtype.bits // 8
        rows = image[: lines * pitch].reshape(lines, pitch)
    whole = np.unpackbits(rows, axis=1, bitorder="little")
    return whole[:, : elements * case.move.fragment.dtype.bits]


def lines_of(case: Case, image, order):
    t = dtype(case.move.fragment.type)
    single = bits_of(case, image, order).reshape(*case.move.lines, t.bits).astype(np.uint64)
    return (single << np.arange(t.bits, dtype=np.uint64)).sum(-1, dtype=np.uint64).astype(t.storage)


def held(case: Case, words):
    """The registers of a form: (32, count)."""
    word = case.move.fragment.word // 8
    return words.view(f"u{word}")[: 32 * case.move.registers].reshape(-1, 32).T


def run(cases: list[Case], images, registers, order, launch):
    """(registers loaded, global memory, shared memory) after the cases.

    ``images`` (cases, IMAGE) bytes, ``registers`` (cases, WORDS) of uint32, register by register,
    ``order`` 32 lines.
    """
    arch = cases[0].move.arch
    (major, minor), target = lowest_target(
        {*(n for c in cases for n in _needs(c.move)), ("6.0", arch)}
    )
    count = len(cases) * IMAGE
    body = PROLOGUE.format(bytes=count)
    body += "\n".join(case.text(i) for i, case in enumerate(cases)) + EPILOGUE.format(bytes=count)
    text = kernel(body, f".shared .align 128 .b8 sm[{count}];", target=target.name)
    text = text.replace(".version 8.6", f".version {major}.{minor}")
    made, after = np.zeros_like(registers), np.zeros_like(images)
    buffers = [made, images, registers, order.astype(np.uint32), after]
    made, images, _, _, after = launch(text, buffers, arch=arch)
    return made, images, after


def _needs(move: FragmentMove):
    versions, targets = zip(*move.needs, strict=True)
    return [("|".join(versions), "|".join(targets))]


def check(batch: list[Case], launch=both) -> None:
    """Every form of the batch does what its row says."""
    rng = np.random.default_rng(len(batch))
    images = rng.integers(0, 256, (len(batch), IMAGE), np.uint8)
    registers = rng.integers(0, 2**32, (len(batch), WORDS), np.uint32)
    order = rng.permutation(32)
    made, memory, shared = run(batch, images, registers, order, launch)
    for i, case in enumerate(batch):
        move = case.move
        after, other = (shared, memory) if case.shared else (memory, shared)
        np.testing.assert_array_equal(other[i], images[i], str(move))
        if move.loads:
            expected = move(lines_of(case, images[i], order))
            np.testing.assert_array_equal(held(case, made[i]), expected, str(move))
            np.testing.assert_array_equal(after[i], images[i], str(move))
        elif move.family == "movmatrix":
            np.testing.assert_array_equal(held(case, made[i]), move(held(case, registers[i])))
        else:
            expected = move(held(case, registers[i]))
            np.testing.assert_array_equal(lines_of(case, after[i], order), expected, str(move))
            bits_then, bits_now = (bits_of(case, x[i], order).sum() for x in (images, after))
            changed = np.unpackbits(images[i] ^ after[i]).sum()
            inside = (bits_of(case, images[i], order) ^ bits_of(case, after[i], order)).sum()
            assert changed == inside and bits_then != bits_now, f"{move}: between the lines"
