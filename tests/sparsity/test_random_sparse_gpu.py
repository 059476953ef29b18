"""The random products of ``test_random_sparse.py`` on a GPU: the virtual machine's bits."""

from __future__ import annotations

import pytest

from random_sparse import random_product
from sparse_cases import on_gpu, same_bits

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("first", range(0, 500, 10))
def test_bits_of_the_virtual_machine(first: int) -> None:
    for seed in range(first, first + 10):
        product = random_product(seed)
        expected = product.run(lambda array: array, "vm")
        product.check(expected)
        assert same_bits(product.run(on_gpu, None), expected), product
