"""Machine code whose promotion has the next set's wgmmas spread over it.

ptxas issues the wgmmas of a k-block together, whatever stands between them in PTX. ``spread`` moves
all but the first into the FP32 instructions behind the wait for the set before, evenly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as dataclass_replace
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
ENDS = "BRA", "WARPGROUP", "BAR", "SYNCS", "EXIT", "CALL", "WARPSYNC"
LEAST = 32  # FP32 instructions of a promotion


def opcode(x: Any) -> str:
    return x.text.opcode if x.text is not None else "?"


def head(x: Any) -> str:
    return opcode(x).split(".")[0]


def shown(x: Any) -> str:
    return str(x.text)


def spread(code: bytes, name: str, wgmmas: int = 4, own: int = 1) -> tuple[bytes, int]:
    """The cubin and the number of places that were changed; the first ``own`` of the ``wgmmas``
    stay together.
    """
    file = CubinFile.parse(code)
    instructions = [x for _, x in decode_code(encoding_table(file.sm), file.code(name))]
    words = np.frombuffer(file.code(name), "<u8").reshape(-1, 2).copy()
    effects = [None if x.text is None else register_effects(file.sm, x.text) for x in instructions]
    none = next((i for i, x in enumerate(instructions)
                 if "DEPBAR" in shown(x) and "gsb0, 0x0" in shown(x)), None)  # fmt: skip
    changed = 0
    order = list(range(len(words)))
    for at, x in enumerate(instructions):
        if "DEPBAR" not in shown(x) or "gsb0, 0x1" not in shown(x) or none is None:
            continue
        moved = queued(instructions, at, wgmmas)[own:]
        region = region_of(instructions, at)
        fp32 = [i for i in region if head(instructions[i]) in FP32]
        if not moved or len(fp32) < LEAST or clashes(effects, moved, region):
            continue
        parts = len(moved) + 1
        behind = {fp32[len(fp32) * (n + 1) // parts - 1]: i for n, i in enumerate(moved)}
        made = [i for i in range(moved[0], at + 1) if i not in moved]
        for i in region:
            made.append(i)
            if i in behind:
                made.append(behind[i])
        order[moved[0] : region[-1] + 1] = made
        control = int(words[at, 1]) >> 41 << 41
        words[at, 0] = words[none, 0]
        words[at, 1] = control | int(words[none, 1]) & (1 << 41) - 1
        changed += 1
    index = file.index(TEXT + name)
    return file.with_data(index, words[order].tobytes()).build(), changed


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


def clashes(effects: list[Any], moved: list[int], region: list[int]) -> bool:
    """Whether an instruction of the region reads or writes what a wgmma of those writes, or
    writes what it reads.
    """
    for i in moved:
        for j in region:
            if effects[j] is None or effects[j].writes & (effects[i].reads | effects[i].writes):
                return True
            if effects[j].reads & effects[i].writes:
                return True
    return False


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
        control = dataclass_replace(instructions[i].control, reuse=0)
        raw = encode_instruction(table, text, control, 16 * (i + 1)).raw
        words[i] = raw & (1 << 64) - 1, raw >> 64
        changed += 1
    index = file.index(TEXT + name)
    return file.with_data(index, words.tobytes()).build(), changed
