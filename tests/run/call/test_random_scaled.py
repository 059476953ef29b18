"""1,000 random products of ``Scaled`` matrices: the reference's bits, and right against f64."""

from __future__ import annotations

import pytest

from references.random_scaled_products import PARTS, problems


@pytest.mark.vm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_products(part: int) -> None:
    for problem in problems(part):
        problem.check("vm")


@pytest.mark.gpu
@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_products_on_a_gpu(part: int) -> None:
    for problem in problems(part):
        problem.check("cuda")
