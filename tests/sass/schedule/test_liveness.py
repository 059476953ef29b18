"""Which instructions end the life of what their registers held."""

from __future__ import annotations

import pytest

from tilewright.sass.control_code import ControlCode
from tilewright.sass.sass_text import parse_instruction
from tilewright.sass.schedule.kernel_instruction import KernelInstruction
from tilewright.sass.schedule.liveness import live_after

USE = "STG.E desc[UR14][R2.64], R5"


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("MOV R5, R7", False),
        ("LEA.HI.X R5, R7.reuse, R8.reuse, R9, 0x3, P1", False),
        ("IADD3.X R5, R7, R8, RZ, P0, !PT", False),
        ("SEL R5, R7, R8, P0", False),
        ("@P0 MOV R5, R7", True),
        ("@!PT MOV R5, R7", True),
        ("@P0 LEA.HI.X R5, R7, R8, R9, 0x3, P1", True),
        ("LDG.E R5, desc[UR14][R2.64], P0", True),
    ],
)
def test_a_result_under_a_guard_leaves_the_register_alive(line: str, stays: bool) -> None:
    lines = ["NOP", line, USE, "EXIT"]
    instructions = [KernelInstruction(parse_instruction(x), ControlCode()) for x in lines]
    after = live_after(90, instructions, {})
    assert (5 in after[0]) == stays
    assert {2, 3, 5} == after[1]
