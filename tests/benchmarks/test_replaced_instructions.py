"""FADDs of a kernel's machine code are replaced, and only while a benchmark says so."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from compare.replaced_instructions import REPLACEMENTS, replaced, replaced_adds

import tilewright
from ptxas import assemble
from rows import every_row
from tilewright.run.devices.cuda_device import CudaDevice
from tilewright.sass import CubinFile, decode_code, encoding_table

SUMS, TURNS = 4, 3
CHANGED = {"nop": "NOP", "write": "MOV", "imm": "FADD", "read": "FADD", "three": "FFMA"}


@tilewright.kernel(params={"data": "ptr f32", "out": "ptr f32"}, block=32)
def adds(k: Any, data: Any, out: Any) -> None:
    """Each sum has one number added again and again, by FADDs of registers."""
    row, *sums = (k.var("f32", data[i * 32 + k.tid.x]) for i in range(1 + SUMS))
    for _ in range(TURNS):
        for x in sums:
            k.add(x, row, into=x)
    for i, x in enumerate(sums):
        out[i * 32 + k.tid.x] = x


def opcodes(code: bytes, name: str) -> Counter[str]:
    file = CubinFile.parse(code)
    found = decode_code(encoding_table(file.sm), file.code(name))
    return Counter(x.text.opcode.partition(".")[0] for _, x in found if x.text)


@pytest.mark.tools
@every_row("kind", CHANGED)
def test_adds_of_the_most_frequent_number_are_replaced(kind: str) -> None:
    traced = adds.trace()
    code = assemble(traced.ptx, "sm_90a").code
    changed, count = replaced(code, traced.name, kind)
    before, after = opcodes(code, traced.name), opcodes(changed, traced.name)
    assert count == before["FADD"] == SUMS * TURNS
    assert after[CHANGED[kind]] - before[CHANGED[kind]] == count * (CHANGED[kind] != "FADD")
    assert after.total() == before.total() and len(changed) == len(code)


def test_the_device_is_itself_before_and_after() -> None:
    own = CudaDevice.assemble
    with pytest.raises(KeyError), replaced_adds({"434340": "nop"}, 1):
        assert CudaDevice.assemble is not own
        raise KeyError
    assert CudaDevice.assemble is own and set(CHANGED) < set(REPLACEMENTS)
