"""What an H200's reductions left: the virtual machine leaves it, on both evaluators."""

from __future__ import annotations

import pytest

import simt
from golden_reductions import CASES, FILE, left, read, told

pytestmark = pytest.mark.skipif(
    not FILE.exists(),
    reason=f"no tests/data/{FILE.name}; benchmarks/reductions_probe.py --golden makes it on a GPU",
)
KEPT = read() if FILE.exists() else {}


def test_every_case_is_kept() -> None:
    assert list(KEPT) == CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_those_of_an_h200(case) -> None:
    said = told(case, left(case, simt.both), KEPT[case])
    assert not said, said
