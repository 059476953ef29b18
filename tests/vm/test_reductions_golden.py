"""What an H200's reductions left: the virtual machine leaves it, on both evaluators."""

from __future__ import annotations

import pytest

import simt
from golden_reductions import CASES, left, read, told

KEPT = read()


def test_every_case_is_kept() -> None:
    assert list(KEPT) == CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_those_of_an_h200(case) -> None:
    said = told(case, left(case, simt.both), KEPT[case])
    assert not said, said
