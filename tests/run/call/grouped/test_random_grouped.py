"""Random calls of ``grouped_matmul``: the virtual machine and a GPU agree bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from random_grouped_calls import random_call
from tilewright.errors import ConfigError

GPU_CASES, COMPARED = 1000, 200


@pytest.mark.vm
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_calls(seed: int) -> None:
    call = random_call(seed)
    call.check(call.run("vm"))


@pytest.mark.gpu
@pytest.mark.sm("sm_90a")
@pytest.mark.slow
@pytest.mark.parametrize("block", range(GPU_CASES // 20))
def test_random_calls_on_a_gpu(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        call = random_call(seed)
        try:
            found = call.run("cuda")
        except ConfigError:  # a tile that does not fit the type or the alignment
            continue
        call.check(found)
        if seed % (GPU_CASES // COMPARED) == 0:
            assert np.array_equal(*(x.view(np.uint8) for x in (found, call.run("vm")))), seed
