"""The machine code of each conversion has as many instructions as its PTX, but for constants."""

from __future__ import annotations

import pytest

from ptxas import assemble, ptxas
from rows import every_row
from tilewright.builder import Builder, Pointer, trace
from tilewright.quantization.conversions import CONVERSIONS, ElementConversion
from tilewright.sass import CubinFile, decode_code, encoding_table

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

# Of the kernel around the conversion: addresses, loads and stores, control flow; and constants.
AROUND = frozenset("NOP EXIT BRA LDC S2R ULDC LEA LDG STG IADD3 MOV UMOV".split())
CONSTANT = ("R#", "R#", "R#", "#")  # IMAD.U32 R, RZ, RZ, constant


def counted(row: ElementConversion) -> int:
    """The instructions of a word's conversion for sm_90a."""

    def body(k: Builder, given: Pointer, made: Pointer) -> None:
        made.store([k.view(x, "b32") for x in row.emit(k, given[0])])

    traced = trace(body, params={"given": "ptr u32", "made": "ptr b32 align 16"}, name="f")
    file = CubinFile.parse(assemble(traced.ptx, "sm_90a").code)
    found = 0
    for _, instruction in decode_code(encoding_table(90), file.code("f")):
        text = instruction.text
        if text is None:  # an instruction of bf16x2, which the table does not have
            found += 1
        elif text.opcode.partition(".")[0] not in AROUND:
            found += tuple(x.kind for x in text.operands) != CONSTANT
    return found


@every_row("row", CONVERSIONS, ids=lambda row: row.name)
def test_the_machine_code_is_the_recipe(row: ElementConversion) -> None:
    constants = 2  # at most, which PTX has as immediates
    assert row.instructions <= counted(row) <= row.instructions + constants
