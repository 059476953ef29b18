"""Kernels that move fragments: for each of some forms, memory in, registers out, or the reverse.

A form has 4 KB of its own in global memory, and the same in shared memory, copied before and back
after. Lane i's line of ldmatrix and stmatrix is where ``order`` says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simt import both, kernel
from tilewright.mma import Move
from tilewright.ptx.needs import lowest

IMAGE = 4096  # bytes of memory for each form
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

    move: Move
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


def run(cases: list[Case], images, registers, order):
    """(registers loaded, global memory, shared memory) after the cases, on both evaluators.

    ``images`` (cases, IMAGE) bytes, ``registers`` (cases, WORDS) of uint32, register by register,
    ``order`` 32 lines.
    """
    arch = cases[0].move.arch
    (major, minor), target = lowest({*(n for c in cases for n in _needs(c.move)), ("6.0", arch)})
    count = len(cases) * IMAGE
    body = PROLOGUE.format(bytes=count)
    body += "\n".join(case.text(i) for i, case in enumerate(cases)) + EPILOGUE.format(bytes=count)
    text = kernel(body, f".shared .align 128 .b8 sm[{count}];", target=target.name)
    text = text.replace(".version 8.6", f".version {major}.{minor}")
    made, after = np.zeros_like(registers), np.zeros_like(images)
    buffers = [made, images, registers, order.astype(np.uint32), after]
    made, images, _, _, after = both(text, buffers, arch=arch)
    return made, images, after


def _needs(move: Move):
    versions, targets = zip(*move.needs, strict=True)
    return [("|".join(versions), "|".join(targets))]
