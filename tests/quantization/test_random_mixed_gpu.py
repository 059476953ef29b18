"""1,000 random products with packed weights on a GPU are right; some have a machine's bits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gemm_cases.mixed_problems import check_problem, product, random_kernel

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]

PARTS, EACH, LARGEST = 100, 10, 3000
COMPARED = 10  # of so many parts one is compared with the virtual machine


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_problems(part: int) -> None:
    draw = random.Random(part)
    kernel = random_kernel(draw, 256, chosen=part % 3 == 0)
    for _ in range(EACH):
        check_problem(draw, kernel, LARGEST, device="cuda")
    if part % COMPARED == 1:
        x, packed, d = check_problem(draw, kernel, 300, device="cuda")
        there = product(kernel, x, packed, device="vm")
        assert np.array_equal(d.view(np.uint8), there.view(np.uint8)), kernel
