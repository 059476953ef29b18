"""1,000 random products with packed weights are right against f64 of the dequantized weights."""

from __future__ import annotations

import random

import pytest

from gemm_cases.mixed_problems import check_problem, random_kernel

pytestmark = pytest.mark.vm

PARTS, EACH = 25, 40
COLUMNS, LARGEST = 64, 700


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_problems(part: int) -> None:
    draw = random.Random(part)
    kernel = random_kernel(draw, COLUMNS)
    for _ in range(EACH):
        check_problem(draw, kernel, LARGEST, device="vm")


def test_a_sample() -> None:
    draw = random.Random(1000)
    kernel = random_kernel(draw, 16)
    for _ in range(5):
        check_problem(draw, kernel, 300, device="vm")
