"""The lowered m8n8k4 over the primitives, lane by lane, against what an H200 returned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import mma
from tilewright.ptx.isa.quadpair import lower_m8n8k4
from tilewright.vm.step.numpy_primitives import NumpyValues

pytestmark = pytest.mark.vm

GOLDEN = np.load(Path(__file__).parents[2] / "data" / "quadpair_sm_90a.npz")
FORMS = sorted({name.partition("/")[0] for name in GOLDEN.files})


@pytest.mark.parametrize("opcode", FORMS)
def test_shuffles_and_sums_give_the_h200s_bits(opcode: str) -> None:
    form = SimpleNamespace(entry=mma.instruction(opcode))
    pairs = zip(GOLDEN[f"{opcode}/in"], GOLDEN[f"{opcode}/out"], strict=True)
    for given, expected in pairs:
        words = tuple(given.T)
        made = lower_m8n8k4(NumpyValues(), form, words[:2], words[2:4], words[4:])
        assert np.array_equal(np.array(made).T, expected)
