"""320 random gated products with two matrices of packed weights on a GPU are right, with the bits
of two products; some have a machine's bits.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from gemm_cases.gated_problems import bits, check_pair, pair_product, random_pair_kernel

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]

PARTS, EACH, LARGEST = 40, 8, 3000
COLUMNS = 160
COMPARED = 4  # of so many parts one is compared with the virtual machine


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_problems(part: int) -> None:
    draw = random.Random(part)
    kernel = random_pair_kernel(draw, COLUMNS)
    for _ in range(EACH):
        check_pair(draw, kernel, LARGEST, device="cuda")
    if part % COMPARED == 1:
        x, pair, found = check_pair(draw, kernel, 300, device="cuda")
        there = pair_product(kernel, x, pair, device="vm", out_dtype="f32")
        for name, d in found.items():
            assert np.array_equal(bits(d), bits(there[name])), (kernel, name)
