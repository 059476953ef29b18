"""Golden results of an H200's asynchronous reductions: both evaluators return the same bits."""

from __future__ import annotations

import pytest

from golden.golden_reductions import CASES, left, mismatch, read
from ptx_kernels import simt
from rows import every_row

pytestmark = pytest.mark.vm

GOLDEN = read()


def test_every_case_has_golden_bits() -> None:
    assert list(GOLDEN) == CASES


@every_row("case", CASES, ids=str, parts=3)
def test_bits_equal_those_of_an_h200(case) -> None:
    difference = mismatch(case, left(case, simt.both), GOLDEN[case])
    assert not difference, difference
