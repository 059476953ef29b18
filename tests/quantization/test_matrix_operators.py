"""``@`` and ``numpy.asarray`` of Scaled, Packed and Sparse24."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright

RNG = np.random.default_rng(0)
W = RNG.standard_normal((24, 128)).astype(np.float16)
MATRICES: dict[str, tuple[Any, Any]] = {
    "packed": (lambda: tilewright.quantize_weight(W, "u4", group=64), "dequantize"),
    "sparse": (lambda: tilewright.compress_24(W, prune="magnitude"), "decompress"),
}


@pytest.mark.vm
@pytest.mark.parametrize("name", MATRICES)
def test_an_array_times_a_matrix(name: str) -> None:
    matrix = MATRICES[name][0]()
    x = RNG.standard_normal((5, 128)).astype(np.float16)
    assert np.array_equal(x @ matrix.T, tilewright.matmul(x, matrix.T))
    with pytest.raises(TypeError):
        x * matrix  # no dense copy is made by accident


@pytest.mark.parametrize("name", MATRICES)
def test_asarray_is_the_dense_matrix(name: str) -> None:
    make, dense = MATRICES[name]
    matrix = make()
    assert np.array_equal(np.asarray(matrix), getattr(matrix, dense)())
    with pytest.raises(ValueError, match="is a new array"):
        np.asarray(matrix, copy=False)
