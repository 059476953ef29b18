"""What an H200 computes of f64 with NaNs: both evaluators give it bit for bit."""

from __future__ import annotations

import pytest

from golden.golden_f64 import FORMS, mismatch, read, results
from ptx_kernels import simt
from rows import every_row

pytestmark = pytest.mark.vm

KEPT = read()


def test_golden_file_has_every_form() -> None:
    assert list(KEPT) == FORMS


@every_row("opcode", FORMS, parts=3)
def test_results_equal_the_h200(opcode) -> None:
    difference = mismatch(opcode, results(opcode, simt.both), KEPT[opcode])
    assert not difference, difference
