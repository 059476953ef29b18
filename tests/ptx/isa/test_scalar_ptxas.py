"""Random programs over all scalar instructions: ptxas takes them."""

from __future__ import annotations

import pytest

from ptxas import assemble
from rows import every_row
from scalar.scalar_draw import program, program_of
from scalar.scalar_forms import families
from scalar.scalar_programs import module

pytestmark = pytest.mark.tools


@every_row("quarter", range(4), parts=4)
def test_every_form_is_taken_with_operands_of_every_sort(quarter: int) -> None:
    opcodes = [opcode for opcodes in families() for opcode in opcodes][quarter::4]
    parts = [opcodes[at : at + 100] for at in range(0, len(opcodes), 100)]
    assemble(module([program_of(part, n) for n, part in enumerate(parts)]), "sm_90a")


def test_programs_are_taken() -> None:
    assemble(module([program(seed, families()) for seed in range(50)]), "sm_90a")
