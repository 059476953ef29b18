"""Products that are added to D in place on a GPU: the bits of a virtual machine, and of the kernel
that reads c.
"""

from __future__ import annotations

import numpy as np
import pytest

from gemm_cases.accumulation import ADDED_BY_COPIES, CASES, PreparedCalls, products

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_a_virtual_machine_s(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = PreparedCalls(monkeypatch)
    apart, joined = products(CASES[name](), "cuda")
    assert prepared.adds_by_copies is (name in ADDED_BY_COPIES)
    assert np.array_equal(apart, joined)
    assert np.array_equal(joined, products(CASES[name](), "vm")[1])
