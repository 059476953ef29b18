"""Broken PTX ends in typed errors, or in results."""

from __future__ import annotations

import pytest

from ptx_text.ptx_fuzz import fuzz, run

pytestmark = pytest.mark.vm


def test_mutated_texts() -> None:
    assert not list(fuzz(900, 0))


def test_mutated_kernels() -> None:
    assert not run(10, 0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_mutations() -> None:
    for seed in range(3):
        assert not list(fuzz(2000, seed))
    assert not list(fuzz(100_000, 3))
    assert not run(100, 0)
    assert not run(1000, 1)
