"""The search for a permutation, transposable masks, and the share of the magnitude they keep."""

from __future__ import annotations

from itertools import combinations

import ml_dtypes
import numpy as np
import pytest

from rows import every_row
from tilewright import compress_24, linear
from tilewright.errors import DtypeError, ProblemError
from tilewright.sparsity import kept_magnitude, search_permutation, transposable_mask
from tilewright.sparsity.pruning import block_patterns
from tilewright.sparsity.sparse_block import SparseBlock
from tilewright.sparsity.torch_layouts import to_cutlass

RNG = np.random.default_rng(11)


@every_row("type_", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8])
def test_a_permutation_keeps_more(type_: type) -> None:
    """Of columns of different magnitudes; the share is that of the compressed matrix."""
    scale = 2.0 ** RNG.integers(0, 6, 64)
    w = (RNG.standard_normal((48, 64)) * scale).astype(type_)
    found = search_permutation(w)
    assert sorted(found.order.tolist()) == list(range(64))
    assert found.kept > found.kept_before + 0.01
    sparse = compress_24(w[:, found.order], "magnitude")
    assert np.isclose(kept_magnitude(w[:, found.order], sparse), found.kept)
    assert np.isclose(kept_magnitude(w, compress_24(w, "magnitude")), found.kept_before)
    again, fewer = search_permutation(w), search_permutation(w, rounds=3)
    assert (again.order == found.order).all() and fewer.kept <= found.kept
    assert search_permutation(w, seed=1).order.tolist() != found.order.tolist()


def test_two_stripes_are_divided_in_the_best_way() -> None:
    """One round tries all ways to divide eight columns."""
    w = RNG.standard_normal((3, 8)).astype(np.float16)
    fours = list(combinations(range(8), 4))
    given = (w[:, [*four, *(i for i in range(8) if i not in four)]] for four in fours)
    best = max(kept_magnitude(x, compress_24(x, "magnitude")) for x in given)
    assert np.isclose(search_permutation(w, rounds=1).kept, best)


def test_a_layer_in_another_order_is_the_same_layer() -> None:
    w = (RNG.integers(-3, 4, (64, 64)) * 2.0 ** RNG.integers(0, 3, 64)).astype(np.float16)
    x = RNG.integers(-3, 4, (16, 64)).astype(np.float16)
    order = search_permutation(w).order
    sparse = compress_24(w[:, order], "magnitude")
    dense = np.empty_like(w)
    dense[:, order] = sparse.decompress()
    assert (linear(x[:, order], sparse, device="vm") == linear(x, dense, device="vm")).all()


def test_a_transposable_mask_is_the_best() -> None:
    w = RNG.standard_normal((32, 64)).astype(np.float16)
    mask = transposable_mask(w)
    forward, backward = compress_24(w, mask), compress_24(w.T, mask.T)
    assert (forward.decompress() == backward.decompress().T).all()
    blocks = np.abs(w.astype(np.float64)).reshape(8, 4, 16, 4).swapaxes(1, 2)
    best = (blocks[:, :, None] * block_patterns()).sum((-1, -2)).max(-1).sum()
    assert np.isclose(np.abs(w[mask].astype(np.float64)).sum(), best)
    assert block_patterns().shape == (90, 4, 4)
    assert (mask.reshape(8, 4, 16, 4).sum((1,)) == 2).all()
    assert (mask.reshape(8, 4, 16, 4).sum((3,)) == 2).all()


def test_values_that_are_not_numbers() -> None:
    w = np.zeros((4, 8), np.float16)
    w[0, 0], w[1, 5] = np.nan, np.inf
    mask = transposable_mask(w)
    assert mask[0, 0] and mask[1, 5] and mask.sum() == 16
    assert search_permutation(w).kept == search_permutation(np.zeros((4, 0), np.float16)).kept + 1


def test_errors() -> None:
    w = np.zeros((6, 8), np.float16)
    with pytest.raises(ProblemError, match="K a multiple of 4, got 4×6"):
        search_permutation(w[:4, :6])
    with pytest.raises(ProblemError, match="rounds must be an integer of at least 0"):
        search_permutation(w, rounds=-1)
    with pytest.raises(ProblemError, match="multiple of 4 rows, got 6×8"):
        transposable_mask(w)
    with pytest.raises(DtypeError, match="a type that is 2:4 sparse, got f32 4×8"):
        transposable_mask(np.zeros((4, 8), np.float32))
    for type_ in (np.float64, np.int32, bool, ml_dtypes.int4, ml_dtypes.float8_e8m0fnu):
        for function in (transposable_mask, search_permutation):
            with pytest.raises(DtypeError, match="w must be one of f16, bf16, f32, e4m3"):
                function(np.zeros((4, 8), type_))
    with pytest.raises(ProblemError, match="w must have shape 6×8"):
        kept_magnitude(w.T, compress_24(w))
    with pytest.raises(ProblemError, match="sparse must be a Sparse24 matrix, got ndarray"):
        kept_magnitude(w, w)
    with pytest.raises(ProblemError, match="seed must be an integer of at least 0"):
        search_permutation(w, seed=-1)


def test_a_matrix_without_columns_has_an_empty_mask() -> None:
    assert transposable_mask(np.zeros((4, 0), np.float16)).shape == (4, 0)


def test_axes_and_blocks_of_a_sparse_matrix_that_do_not_exist() -> None:
    sparse = compress_24(np.zeros((64, 64), np.float16))
    assert sparse.swapaxes(-1, 0).shape == sparse.swapaxes(0, 1).shape == (64, 64)
    for axes in ((0, 0), (5, 2), ("a", 1)):
        with pytest.raises(ProblemError, match="axes must be the last two"):
            sparse.swapaxes(*axes)
    for at in ((0.5, 0), ("a", 0), (1, 0)):
        with pytest.raises(ProblemError, match="block must be one of 1×4"):
            sparse.block(*at)
    for chunk in (99, -12, 4.5):
        with pytest.raises(ProblemError, match="integers from 0 to 15"):
            SparseBlock("f16", np.full((64, 16), chunk))
    with pytest.raises(ProblemError, match="matrix must be a Sparse24"):
        to_cutlass(np.zeros((64, 64), np.float16))
