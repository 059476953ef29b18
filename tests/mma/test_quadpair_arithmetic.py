"""The lowered m8n8k4 of f16 against what an H200 returned: registers in, registers out.

The warps kept are subnormal, of spread exponents, and full of NaNs and infinities; some tell the
order of the sums from all others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright import mma
from tilewright.mma.quadpair_arithmetic import lowered_sums

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "quadpair_sm_90a.npz")
FORMS = sorted({name.partition("/")[0] for name in GOLDEN.files})


def bits(*numbers: float, fmt: type = np.float16) -> np.ndarray:
    return np.array(numbers, fmt).view(f"u{np.dtype(fmt).itemsize}")


def test_all_layouts_and_types_are_kept() -> None:
    assert len(FORMS) == 12


@pytest.mark.parametrize("opcode", FORMS)
def test_every_bit_is_the_h200s(opcode: str) -> None:
    row = mma.instruction(opcode)
    parts = np.split(GOLDEN[f"{opcode}/in"], [2, 4], -1)
    a, b, c = (row.fragment(n).matrix(x) for n, x in zip("abc", parts, strict=True))
    columns = np.swapaxes(b, -1, -2)[..., None, :, :]
    d = lowered_sums(a[..., :, None, :], columns, c, row.c, row.d)
    assert np.array_equal(row.fragment("d").registers(d), GOLDEN[f"{opcode}/out"])


def test_an_f32_sum_is_a_chain_from_zero_then_c() -> None:
    """What c would have swallowed one by one survives in the chain."""
    tiny = bits(*[2.0**-12] * 4)
    d = lowered_sums(tiny, tiny, bits(1.0, fmt=np.float32)[0], "f32", "f32")
    assert d.view(np.float32) == 1 + 2.0**-22


def test_an_f16_sum_adds_pairs_to_c_from_the_left() -> None:
    a, b = bits(2.0**12, 0, -(2.0**12), 2.0**-8), bits(2.0**12, 0, 2.0**12, 2.0**-8)
    d = lowered_sums(a, b, bits(1.0)[0], "f16", "f16")
    assert d.view(np.float16) == 0  # 1 is lost in 2^24 + 1, 2^-16 in 2^24 - 2^-16


def test_minus_zero_comes_out_only_of_f16() -> None:
    """The f32 chain begins with +0; the f16 pairs don't."""
    minus, ones = bits(*[-0.0] * 4), bits(*[1.0] * 4)
    assert lowered_sums(minus, ones, bits(-0.0)[0], "f16", "f16") == 0x8000
    assert lowered_sums(minus, ones, bits(-0.0)[0], "f16", "f32") == 0
