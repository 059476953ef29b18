"""Block scales of groups: how they lie in memory does not change a bit, whatever rows groups begin
at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from tilewright import Scaled, dtypes

pytestmark = pytest.mark.vm

SIZES, N, K, CAPACITY = (3, 0, 70, 1), 160, 256, 72  # groups begin at rows 0, 3 and 73
BLOCKS = ((1, 128), (128, 128)), ((1, 128), (128, 1))
CONFIGS = ("tma:128x64x128:2:3", "tma:64x32x128:1:3~", "tma:256x96x128:2:3/1x2~")


def _resident(array: Any, along_rows: bool) -> Resident:
    """The array with rows, or columns, at multiples of 16 bytes, and NaN behind them."""
    whole = array if along_rows else np.swapaxes(array, -2, -1)
    length = -(-whole.shape[-1] // 4) * 4 + 4
    memory = np.full((*whole.shape[:-1], length), np.nan, np.float32)
    memory[..., : whole.shape[-1]] = whole
    strides = (length, 1) if along_rows else (1, length)
    stack = (whole.shape[-2] * length,) if array.ndim == 3 else ()
    return Resident.of(memory).cut(array.shape, stack + strides)


def _transposed(stack: Resident) -> Resident:
    """Each matrix of a stack as its transpose."""
    (count, rows, columns), (batch, row, column) = stack.memory.shape, stack.memory.strides
    return stack.cut((count, columns, rows), (batch, column, row))


@pytest.mark.parametrize(
    "counts", [pytest.param(False, marks=pytest.mark.slow), True], ids=["offsets", "counts"]
)
@pytest.mark.parametrize(
    ("blocks", "config"),
    [
        (BLOCKS[0], CONFIGS[0]),
        pytest.param(BLOCKS[1], CONFIGS[0], marks=pytest.mark.slow),
        pytest.param(BLOCKS[0], CONFIGS[1], marks=pytest.mark.slow),
        (BLOCKS[1], CONFIGS[1]),
        pytest.param(BLOCKS[0], CONFIGS[2], marks=pytest.mark.slow),
    ],
)
def test_scales_contiguous_along_rows_or_k(blocks: Any, config: str, counts: bool) -> None:
    rng, ends = np.random.default_rng(5), np.cumsum(SIZES).astype(np.int32)
    e4m3 = dtypes.dtype("e4m3").numpy
    lead = (len(SIZES), CAPACITY) if counts else (int(ends[-1]),)
    a, b = (rng.standard_normal((*s, K)).astype(e4m3) for s in (lead, (len(SIZES), N)))
    sa = (rng.random((*lead, K // 128)) + 0.5).astype(np.float32)
    columns = -(-N // blocks[1][1])
    sb = (rng.random((len(SIZES), columns, K // 128)) + 0.5).astype(np.float32)
    sizes = {"counts": np.array(SIZES, np.int32)} if counts else {"offsets": ends}
    expected = tilewright.grouped_matmul(
        Scaled(a, sa, blocks[0]), Scaled(b.transpose(0, 2, 1), sb.transpose(0, 2, 1), blocks[1]),
        out=np.zeros((*lead, N), dtypes.dtype("bf16").numpy), config=config, device="vm", **sizes,
    )  # fmt: skip
    with registered():
        given = {name: Resident.of(x) for name, x in sizes.items()}
        right = Scaled(*(_transposed(Resident.of(x)) for x in (b, sb)), blocks[1])
        for along_rows in (False, True):
            left = Scaled(Resident.of(a), _resident(sa, along_rows), blocks[0])
            out = Resident.of(np.zeros((*lead, N), dtypes.dtype("bf16").numpy))
            tilewright.grouped_matmul(left, right, out=out, config=config, **given)
            assert np.array_equal(out.numpy().view(np.uint16), expected.view(np.uint16)), along_rows
