"""Weights that a prior kernel writes while the product that multiplies by them prefetches them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.quantization.weight_units import prepare_weights

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]

N, K, M = 2048, 4096, 16
CTAS, THREADS, DELAY = 64, 256, 20_000  # ns
ROUNDS = 40
PARAMS = {"to": "ptr s32", "of": "ptr s32", "words": "u32"}


@tilewright.kernel(params=PARAMS, block=THREADS)
def copy_late(k: Any, to: Any, of: Any, words: Any) -> None:
    """Copy words; the next kernel may start before."""
    k.launch_dependent_grids()
    k.wait_for_prior_grids()
    start = k.special("globaltimer")
    with k.while_(lambda: k.special("globaltimer") - start < DELAY):
        pass
    index = k.var(k.ctaid.x * THREADS + k.tid.x)
    with k.while_(lambda: index < words):
        (to + index).store(of[index])
        index += CTAS * THREADS


def test_a_product_multiplies_by_what_a_prior_kernel_writes() -> None:
    torch: Any = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((M, K)).astype(np.float16)).cuda()
    sets = []
    for _ in range(2):
        w = rng.standard_normal((N, K)).astype(np.float32)
        prepared = prepare_weights(tilewright.quantize_weight(w, "u4", 128), "f16")
        sets.append(replace(prepared, units=torch.from_numpy(prepared.units).cuda()))
    expected = [tilewright.matmul(x, w).clone() for w in sets]
    words = [w.units.view(torch.uint8).reshape(-1).view(torch.int32) for w in sets]
    written = replace(sets[0], units=torch.empty_like(sets[0].units))
    target = written.units.view(torch.uint8).reshape(-1).view(torch.int32)
    found = []
    for i in range(ROUNDS):
        copy_late[CTAS](target, words[i % 2], len(target), programmatic=True)
        found.append(tilewright.matmul(x, written))
    torch.cuda.synchronize()
    for i, d in enumerate(found):
        assert torch.equal(d, expected[i % 2]), i
