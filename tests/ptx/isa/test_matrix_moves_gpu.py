"""What moves fragments, on a GPU: memory and registers as ``tilewright.mma`` says."""

from __future__ import annotations

import pytest

from ptx_kernels.fragment_move_kernels import batches, check
from ptx_kernels.simt_gpu import on_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize("batch", batches("sm_90a"), ids=lambda b: str(b[0].move))
def test_a_move_matches_its_row(batch):
    check(batch, on_gpu)
