"""500 random products of sparse matrices, compared with f64: by kernel ``tma`` and, as other GPUs,
by ``multistage``. A sample runs always; ``test_random_sparse_gpu.py`` runs them on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from random_sparse import FP8, random_product
from rows import every_row


def check(seed: int) -> None:
    product = random_product(seed)
    other = "vm:RTX 4090" if product.case.type in FP8 else "vm:A100"
    product.check(product.run(lambda array: array, ("vm", other)[seed % 3 == 0]))


def test_a_sample() -> None:
    for seed in range(5):
        check(seed)


@pytest.mark.slow
@every_row("first", range(0, 500, 25), parts=20)
def test_all(first: int) -> None:
    for seed in range(first, first + 25):
        check(seed)


def test_every_type_and_option_occurs() -> None:
    products: list[Any] = [random_product(seed) for seed in range(60)]
    assert len({p.case.type for p in products}) == 7
    assert {p.w.transposed for p in products} == {False, True}
    assert {bool(p.case.batch) for p in products} == {False, True}
    assert {"c" in p.options for p in products} == {False, True}
