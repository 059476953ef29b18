"""Machine code in which some FADDs are other instructions, for ``promotion_rate.py``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from tilewright.sass import CubinFile
from tilewright.sass.code_listing import decode_code
from tilewright.sass.cubin_file import TEXT
from tilewright.sass.encoding_table import encoding_table
from tilewright.sass.sass_instruction import encode_instruction
from tilewright.sass.sass_text import parse_instruction

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
    sums = {
        i: [n.numbers[0] for n in x.text.operands]
        for i, x in enumerate(instructions)
        if x.text is not None and x.text.opcode == "FADD"
        and all(n.kind == "R#" for n in x.text.operands)
    }  # fmt: skip
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
