"""What an H200 gave for random scalar programs: the virtual machine gives it bit for bit."""

from __future__ import annotations

import pytest

from golden.golden_matrix import digest
from golden.golden_scalar import COUNT, read
from rows import every_row
from scalar.scalar_draw import operands, program
from scalar.scalar_runs import on_vm
from tilewright.vm.state.global_memory import GlobalMemory

pytestmark = pytest.mark.vm

FAMILIES, DIGESTS = read()
MEMORY, PART = GlobalMemory(), 50


def test_golden_file_has_every_program() -> None:
    assert len(DIGESTS) == COUNT


@every_row("first", range(0, COUNT, PART), parts=10)
def test_results_equal_the_h200(first: int) -> None:
    """A step at a time; every fiftieth as compiled code."""
    wrong = []
    for seed in range(first, first + PART):
        p = program(seed, FAMILIES)
        made = on_vm(p, operands(p, seed), MEMORY, compiled=seed == first)
        if digest(made) != DIGESTS[seed]:
            wrong.append(seed)
    assert not wrong
