"""Broken PTX ends in typed errors, or in results."""

from __future__ import annotations

import pytest

from ptx_fuzz import fuzz, run


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_texts_gone_wrong(seed: int) -> None:
    assert not list(fuzz(2000, seed))


def test_kernels_gone_wrong() -> None:
    assert not run(100, 0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_gone_wrong() -> None:
    assert not list(fuzz(100_000, 3))
    assert not run(1000, 1)
