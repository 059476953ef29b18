"""Machine code in which some FADDs are other instructions, for ``promotion_rate.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.run.devices.cuda_device import CudaDevice
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


@contextmanager
def replaced_adds(marks: Mapping[str, str], least: int) -> Iterator[None]:
    """Within, a kernel whose PTX has one of these marks is assembled with FADDs replaced, as the
    kind of the mark says; where there are less than ``least`` of them, their number is printed.
    """
    assemble = CudaDevice.assemble

    def patched(self: CudaDevice, traced: Any) -> Any:
        made = assemble(self, traced)
        kind = next((kind for mark, kind in marks.items() if mark in traced.ptx), None)
        if kind is None:
            return made
        code, changed = replaced(made.code, traced.name, kind)
        if changed < least:
            print(f"replaced: {changed}")
        return replace(made, code=code)

    CudaDevice.assemble = patched  # type: ignore[method-assign]
    try:
        yield
    finally:
        CudaDevice.assemble = assemble  # type: ignore[method-assign]


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
