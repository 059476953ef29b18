"""``grouped_matmul`` of two lists of matrices on a GPU: the virtual machine's bits, CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from references.problem_lists import random_list
from tilewright.errors import ConfigError

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]
CASES = 300


@pytest.mark.parametrize("block", range(CASES // 20))
def test_random_lists_have_the_bits_of_a_virtual_machine(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        call = random_list(seed)
        try:
            found = call.run("cuda")
        except ConfigError:  # a tile that does not fit the type
            continue
        call.check(found)
        if seed % 5 == 0:
            for x, y in zip(found, call.run("vm"), strict=True):
                assert np.array_equal(x.view(np.uint8), y.view(np.uint8)), seed


def test_matrices_in_device_memory_and_graphs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shapes = [(int(m), int(n) * 8, int(k) * 8) for m, n, k in rng.integers(1, 60, (20, 3))]
    given: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    a = [torch.randn(m, k, **given) for m, _, k in shapes]
    b = [torch.randn(n, k, **given).T for _, n, k in shapes]
    d = tilewright.grouped_matmul(a, b)
    out = [torch.zeros_like(x) for x in d]
    tilewright.grouped_matmul(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tilewright.grouped_matmul(a, b, out=out)
        captured = tilewright.grouped_matmul(a, b)  # its table is uploaded by the graph
    for x in a:
        x.mul_(2)
    graph.replay()
    for x, y, z in zip(d, out, captured, strict=True):
        assert torch.equal(2 * x, y) and torch.equal(y, z)
