"""What an H200 computes of f64 with NaNs: both evaluators give it bit for bit."""

from __future__ import annotations

import pytest

from golden.golden_f64 import FORMS, read, results, told
from ptx_kernels import simt
from rows import every_row

pytestmark = pytest.mark.vm

KEPT = read()


def test_every_form_is_kept() -> None:
    assert list(KEPT) == FORMS


@every_row("opcode", FORMS, parts=3)
def test_the_bits_are_those_of_an_h200(opcode) -> None:
    said = told(opcode, results(opcode, simt.both), KEPT[opcode])
    assert not said, said
