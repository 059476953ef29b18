"""What an H200 returned, kept as data: the virtual machine must return it too, to the last bit."""

from __future__ import annotations

import json

import pytest

from gemm_cases.problems import DIGESTS, ROWS, digest
from rows import every_row

pytestmark = pytest.mark.vm

KEPT = json.loads(DIGESTS.read_text())


def test_every_problem_is_kept() -> None:
    assert list(KEPT) == list(ROWS) and len(ROWS) == 40


@every_row("name", ROWS, parts=11)
def test_the_bits_are_those_of_an_h200(name: str) -> None:
    assert digest(name, "vm") == KEPT[name]
