"""Every register-to-register instruction, compiled and stepped: the same bits on hostile operands.

Kernels are made from the rows: each takes its operands from memory, runs some twenty forms, every
other one under a guard, and stores what they gave. The forms are those seen in the wild and a few
of each row.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel
from rows import every_row
from tilewright.ptx.isa import ROWS, Form, OperandSpec, form
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.isa.row import ListedRow
from tilewright.ptx.rules.requirements import lowest_target
from tilewright.ptx.types import bits
from tilewright.vm.program.unsupported_features import UNSUPPORTED_FEATURES

pytestmark = pytest.mark.vm

WILD = Path(__file__).parents[2] / "data" / "opcodes_in_the_wild.txt"
THREADS, BATCH, OF_A_ROW = 64, 20, 4
SOURCES = 4
IMMEDIATE = 0x96  # of lop3: a xor b xor c


def plain(f: Form) -> bool:
    """Whether it has results, neither touches memory nor steers, and runs on a target of today."""
    if f.features & UNSUPPORTED_FEATURES or f.row.removed:
        return False
    return not f.effects - {"relaxed", "pack"} and any(s.dest for s in f.signatures[0])


def of_rows() -> list[str]:
    """A few legal forms of each row."""
    found = []
    for row in (r for rows in ROWS.values() for r in rows if not isinstance(r, ListedRow)):
        rng = np.random.default_rng(zlib.crc32(row.syntax.encode()))
        for _ in range(OF_A_ROW):
            words = [row.mnemonic]
            for slot in row.slots:
                if not slot.optional or rng.random() < 0.4:
                    words.append(rng.choice(slot.choices))
            if find(".".join(words)):
                found.append(".".join(words))
    return found


SPECIAL = {
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x3C00, 0x7C00, 0xFC00, 0x7E01, 0x3F80, 0x7F80, 0x3FF, 0x80],
    32: [0, 1, 31, 32, 33, 0x7FFFFFFF, 1 << 31, 0xFFFFFFFF, 0x3F800000, 0xBF800000, 0x7F800000,
         0xFF800000, 0x7FC00001, 0x00800000, 0x007FFFFF, 0x4F000000, 0x7F7FFFFF, 0x3F000000],
    64: [0, 1, 63, 64, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 0x3FF << 52, 0x7FF << 52, 1 << 52,
         (1 << 52) - 1, 0x7FF8 << 48 | 1, 0x41E << 52, 0xC1E << 52, 0x380 << 52, 0x43F << 52],
}  # fmt: skip


def operands(seed: int) -> list[np.ndarray]:
    """For each source two words a thread: random, or special 16, 32 and 64 bits at a time."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(SOURCES):
        words = rng.integers(0, 2**64, 2 * THREADS, np.uint64)
        for width, values in SPECIAL.items():
            parts = words.view(f"u{width // 8}")
            hit = rng.random(len(parts)) < 0.3
            parts[hit] = rng.choice(np.array(values, parts.dtype), hit.sum())
        words[::5] = rng.integers(-40, 40, len(words[::5])).view(np.uint64)  # counts and small ones
        made.append(words)
    return made


def width_of(spec: OperandSpec, relaxed: bool) -> int:
    width = bits(spec.type) if spec.type else 32
    return 16 if width == 8 and relaxed else width


class Snippet:
    """One form as PTX text: registers of its own, loads, the instruction, stores."""

    def __init__(self, opcode: str, which: int, guard: bool) -> None:
        signatures = form(opcode).signatures
        self.relaxed = "relaxed" in form(opcode).effects
        self.lines: list[str] = []
        self.after: list[str] = []
        self.place = 16 * 8 * which
        self.sources = 0
        given = [self.operand(s, i) for i, s in enumerate(signatures[which % len(signatures)])]
        text = ", ".join(given).replace(", |", "|")
        self.lines.append(f"{'@%p63 ' if guard else ''}{opcode} {text};")

    def operand(self, spec: OperandSpec, index: int) -> str:
        if spec.kind == "imm":
            return str(IMMEDIATE)
        if spec.kind == "address":
            return "[%rd10]"
        names = [f"x{index}_{i}" for i in range(max(1, spec.count))]
        width = width_of(spec, self.relaxed)
        self.lines.append(f".reg .{'pred' if width == 1 else f'b{width}'} {', '.join(names)};")
        for i, name in enumerate(names):
            self.store(name, width) if spec.dest else self.load(name, width, i)
        text = f"{{{', '.join(names)}}}" if spec.count else names[0]
        if not spec.dest:
            self.sources += 1
        return ("|" if spec.second else "") + text

    def load(self, name: str, width: int, part: int) -> None:
        where = f"[%rd{1 + self.sources % SOURCES}+{0 if width == 128 else 8 * (part % 2)}]"
        if width == 1:
            self.lines.append(f"ld.global.u32 %r63, {where}; and.b32 %r63, %r63, 1;")
            self.lines.append(f"setp.ne.u32 {name}, %r63, 0;")
        else:
            self.lines.append(f"ld.global.b{width} {name}, {where};")

    def store(self, name: str, width: int) -> None:
        where, self.place = f"[%rd10+{self.place}]", self.place + 16
        if width == 1:
            self.after.append(f"selp.u32 %r63, 1, 0, {name}; st.global.u32 {where}, %r63;")
        else:
            self.after.append(f"st.global.b{width} {where}, {name};")

    def __str__(self) -> str:
        return "{ " + " ".join(self.lines + self.after) + " }"


def batches() -> dict[tuple[str, str, str], list[str]]:
    """Opcodes that need the same version and target, from sm_90 on, some twenty at a time."""
    groups: dict[tuple[str, str], list[str]] = {}
    for opcode in dict.fromkeys(WILD.read_text().split() + of_rows()):
        if not plain(form(opcode)):
            continue
        operands_ = (spec.needs for specs in form(opcode).signatures for spec in specs)
        needs = {("7.8", "sm_90"), *form(opcode).needs(), *filter(None, operands_)}
        (major, minor), target = lowest_target(needs)
        groups.setdefault((f"{major}.{minor}", target.name), []).append(opcode)
    return {
        (group[i], *key): group[i : i + BATCH]
        for key, group in groups.items()
        for i in range(0, len(group), BATCH)
    }


@every_row(("which", "batch"), lambda: batches().items(), ids=lambda w: w[0], parts=8)
def test_both_evaluators_agree(which, batch):
    _, version, target = which
    step = 16 * 8 * BATCH
    body = f"mad.wide.u32 %rd10, %t, {step}, %a0; and.b32 %r62, %t, 3; setp.ne.u32 %p63, %r62, 1;"
    for i in range(SOURCES):
        body += f"mad.wide.u32 %rd{1 + i}, %t, 16, %a{1 + i};\n"
    for i, opcode in enumerate(batch):
        body += f"{Snippet(opcode, i, guard=i % 2 == 1)}\n"
    text = kernel(body, target=target).replace(".version 8.6", f".version {version}")
    out = np.zeros(step * THREADS, np.uint8)
    results, *_ = both(text, [out, *operands(len(batch))], block=THREADS, arch=target)
    assert results.any()
