"""Machine code whose promotion has the next set's wgmmas spread over it.

ptxas issues the wgmmas of a k-block together, whatever stands between them in PTX. ``spread`` moves
all but the first into the FP32 instructions behind the wait for the set before, evenly.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.sass import CubinFile
from tilewright.sass.code_listing import decode_code
from tilewright.sass.cubin_file import TEXT
from tilewright.sass.encoding_table import encoding_table
from tilewright.sass.machine.register_effects import register_effects
from tilewright.sass.sass_instruction import encode_instruction
from tilewright.sass.sass_text import parse_instruction

FP32 = "FFMA", "FMUL", "FADD"
ENDS = "BRA", "WARPGROUP", "BAR", "EXIT", "CALL"
LEAST = 32  # FP32 instructions of a promotion


def opcode(x: Any) -> str:
    return x.text.opcode if x.text is not None else "?"


def head(x: Any) -> str:
    return opcode(x).split(".")[0]


def shown(x: Any) -> str:
    return str(x.text)


class Block:
    """The instructions of a promotion, in their order, and what was changed in them."""

    def __init__(self, file: CubinFile, name: str) -> None:
        self.sm, self.table = file.sm, encoding_table(file.sm)
        self.instructions = [x for _, x in decode_code(self.table, file.code(name))]
        self.words = np.frombuffer(file.code(name), "<u8").reshape(-1, 2).copy()
        self.effects = [self.effects_of(x) for x in self.instructions]
        self.order = list(range(len(self.words)))
        used = {n for x in self.effects if x for file_, n in x.reads | x.writes if file_ == "UR"}
        self.free = list(range(max(used) + 1, 62))

    def effects_of(self, x: Any) -> Any:
        if x.text is None:
            return None
        found = register_effects(self.sm, x.text)
        if head(x) != "QGMMA":
            return found
        first = min(n for file, n in found.reads if file == "UR")  # two descriptors of 64 bits
        return replace(found, reads=found.reads | {("UR", first + i) for i in range(4)})

    def written(self, i: int) -> set[Any]:
        return set(self.effects[i].writes)

    def rename(self, i: int, old: int, new: int, result: bool) -> None:
        """Let instruction ``i`` write, or read, uniform register ``new`` instead of ``old``."""
        x = self.instructions[i]
        operands = str(x.text).partition(" ")
        first, comma, rest = operands[2].partition(",")
        pattern, to = rf"\bUR{old}\b", f"UR{new}"
        if result:
            first = re.sub(pattern, to, first)
        elif head(x) in ("SYNCS", "ST", "STS"):
            first, rest = (re.sub(pattern, to, part) for part in (first, rest))
        else:
            rest = re.sub(pattern, to, rest)
        text = parse_instruction(f"{operands[0]} {first}{comma}{rest}")
        made = encode_instruction(self.table, text, x.control, 16 * (i + 1))
        self.instructions[i], self.effects[i] = made, self.effects_of(made)
        self.words[i] = made.raw & (1 << 64) - 1, made.raw >> 64

    def set_stall(self, i: int, stall: int, yields: bool = False) -> None:
        word = int(self.words[i, 1]) & ~(31 << 41)
        self.words[i, 1] = word | (stall | (not yields) << 4) << 41

    def stall(self, i: int) -> int:
        return int(self.words[i, 1]) >> 41 & 15


AHEAD = 8  # FP32 instructions between a descriptor and its wgmma


def spread(
    code: bytes, name: str, wgmmas: int = 4, own: int = 1, slow: bool = False
) -> tuple[bytes, int]:
    """The cubin and the number of places that were changed; the first ``own`` of the ``wgmmas``
    stay together. ``slow``: what stood before a moved instruction stalls as long as both did.
    """
    file = CubinFile.parse(code)
    block = Block(file, name)
    instructions = block.instructions
    none = next((i for i, x in enumerate(instructions)
                 if "DEPBAR" in shown(x) and "gsb0, 0x0" in shown(x)), None)  # fmt: skip
    changed = 0
    for at, x in enumerate(instructions):
        if "DEPBAR" not in shown(x) or "gsb0, 0x1" not in shown(x) or none is None:
            continue
        every = queued(instructions, at, wgmmas)
        region = region_of(instructions, at)
        fp32 = [i for i in region if head(instructions[i]) in FP32]
        if not every or len(fp32) < LEAST:
            continue
        changed += moved_apart(block, at, every, own, region, fp32, slow)
        control = int(block.words[at, 1]) >> 41 << 41
        block.words[at, 0] = block.words[none, 0]
        block.words[at, 1] = control | int(block.words[none, 1]) & (1 << 41) - 1
    index = file.index(TEXT + name)
    return file.with_data(index, block.words[block.order].tobytes()).build(), changed


def moved_apart(
    block: Block, wait: int, every: list[int], own: int, region: list[int], fp32: list[int],
    slow: bool,
) -> int:  # fmt: skip
    """Move the wgmmas of a promotion but the first ``own``, with their descriptors."""
    moved, begin, end = every[own:], every[own - 1] + 1, region[-1]
    feeders = {i: descriptors(block, i, begin) for i in moved}
    gone = set(moved) | {j for i in moved for j in feeders[i]}
    parts = len(moved) + 1
    behind: dict[int, list[int]] = {}
    for n, i in enumerate(moved):
        place = len(fp32) * (n + 1) // parts - 1
        while block.instructions[fp32[place]].text.reuse:
            place += 1
        behind.setdefault(fp32[place - AHEAD], []).extend(feeders[i])
        behind.setdefault(fp32[place], []).append(i)
    made: list[int] = []
    for i in range(begin, end + 1):
        if i not in gone:
            made.append(i)
            made += behind.get(i, [])
        elif slow and made and made[-1] not in gone:
            block.set_stall(made[-1], min(15, block.stall(made[-1]) + block.stall(i)))
    for i in gone:
        block.set_stall(i, 2)
    rename_clashes(block, made, gone)
    block.order[begin : end + 1] = made
    return 1


def descriptors(block: Block, wgmma: int, begin: int) -> list[int]:
    """The UIADD3.64 from ``begin`` on that write what a wgmma reads."""
    needed = {r for r in block.effects[wgmma].reads if r[0] == "UR"}
    found = []
    for j in range(wgmma - 1, begin - 1, -1):
        hit = block.written(j) & needed
        if hit:
            needed -= hit
            if opcode(block.instructions[j]) == "UIADD3.64":
                found.append(j)
    return found[::-1]


def rename_clashes(block: Block, made: list[int], gone: set[int]) -> None:
    """Give other uniform registers to what now overwrites those that a moved wgmma still reads."""
    places = {i: made.index(i) for i in gone}
    for at, i in enumerate(made):
        passed = [j for j in gone if j < i and places[j] > at]  # moved behind this one
        needed = {r for j in passed for r in block.effects[j].reads | block.written(j)}
        clash = {r for r in block.written(i) & needed if r[0] == "UR"}
        if i in gone or not clash:
            continue
        ((_, old),) = clash
        new = block.free.pop(0)
        block.rename(i, old, new, True)
        for j in made[at + 1 :]:
            if j not in gone and ("UR", old) in block.effects[j].reads:
                block.rename(j, old, new, False)
            if j not in gone and ("UR", old) in block.written(j):
                break
        else:
            following = range(max(made) + 1, len(block.instructions))
            first = next(
                j for j in following if ("UR", old) in {*block.effects[j].reads, *block.written(j)}
            )
            if ("UR", old) in block.effects[first].reads:
                raise SystemExit(f"UR{old} is read behind the promotion")


def queued(instructions: list[Any], wait: int, wgmmas: int) -> list[int]:
    """The numbers of the wgmmas that stand before a wait, in its basic block."""
    found: list[int] = []
    for i in range(wait - 1, -1, -1):
        if head(instructions[i]) == "QGMMA":
            found.append(i)
        if head(instructions[i]) in ENDS or len(found) == wgmmas:
            break
    return found[::-1] if len(found) == wgmmas else []


def region_of(instructions: list[Any], wait: int) -> list[int]:
    """The numbers of the instructions behind a wait, up to the end of its basic block."""
    found = []
    for i in range(wait + 1, len(instructions)):
        if head(instructions[i]) in (*ENDS, "QGMMA"):
            break
        found.append(i)
    return found


REPLACEMENTS = {
    "nop": "NOP", "write": "MOV R{t}, 0x3f800000", "imm": "FADD R{t}, R{t}, 1",
    "read": "FADD RZ, R{t}, R{row}", "three": "FFMA R{t}, R{t}, R{row}, R{t}",
    "move": "MOV R{t}, R{row}",
}  # fmt: skip


def replaced(code: bytes, name: str, kind: str) -> tuple[bytes, int]:
    """The cubin with FADDs of one of the two registers that most of them read replaced, and their
    number: ``t`` is the sum, ``row`` what is added.
    """
    file = CubinFile.parse(code)
    table = encoding_table(file.sm)
    instructions = [x for _, x in decode_code(table, file.code(name))]
    words = np.frombuffer(file.code(name), "<u8").reshape(-1, 2).copy()
    sums = {i: [n.numbers[0] for n in x.text.operands] for i, x in enumerate(instructions)
            if head(x) == "FADD" and all(n.kind == "R#" for n in x.text.operands)}  # fmt: skip
    read = Counter(n for operands in sums.values() for n in operands[1:] if n != operands[0])
    rows = {n for n, _ in read.most_common(2)}
    changed = 0
    for i, (t, *sources) in sums.items():
        row = next((n for n in sources if n in rows and n != t), None)
        if row is None:
            continue
        text = parse_instruction(REPLACEMENTS[kind].format(t=t, row=row))
        control = replace(instructions[i].control, reuse=0)
        raw = encode_instruction(table, text, control, 16 * (i + 1)).raw
        words[i] = raw & (1 << 64) - 1, raw >> 64
        changed += 1
    index = file.index(TEXT + name)
    return file.with_data(index, words.tobytes()).build(), changed
