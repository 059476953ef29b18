"""``mma`` against what an H200's tensor cores returned for tiles of every hostile kind.

The tiles were made and kept by ``benchmarks/mma_probe.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hostile import KINDS
from tilewright import mma

GOLDEN = np.load(Path(__file__).parents[2] / "data" / "mma_sm_90a.npz")


@pytest.mark.parametrize("row", mma.catalogue("sm_90a"), ids=str)
def test_every_bit_is_the_h200s(row: mma.Instruction) -> None:
    for kind in KINDS:
        a, b, c, d = (GOLDEN[f"{row.opcode}/{kind}/{name}"] for name in "abcd")
        assert np.array_equal(row(a, b, c), d), kind
