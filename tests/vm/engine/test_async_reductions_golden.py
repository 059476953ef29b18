"""What an H200's reductions left: the virtual machine leaves it, on both evaluators."""

from __future__ import annotations

import pytest

from golden.golden_reductions import CASES, left, read, told
from ptx_kernels import simt
from rows import every_row

pytestmark = pytest.mark.vm

KEPT = read()


def test_every_case_is_kept() -> None:
    assert list(KEPT) == CASES


@every_row("case", CASES, ids=str, parts=3)
def test_the_bits_are_those_of_an_h200(case) -> None:
    said = told(case, left(case, simt.both), KEPT[case])
    assert not said, said
