"""Which elements of a matrix to keep: permutations of the columns, transposable masks.

2:4 pruning keeps the two largest of each four neighbours. An order of the columns that puts large
elements into different fours keeps more of the magnitude; the product is the same if K of the other
matrix has this order, too.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ..errors import DtypeError, ProblemError
from ..mma.array_inputs import is_integer
from ..mma.metadata_blocks import chunk_size
from ..quantization.array_access import Array, info, numbers, sizes
from ..quantization.host_arrays import through_host
from .compression import share_of_magnitude
from .sparse24 import Sparse24, sparse_type

MASK_SIDE = 4  # rows and columns of the blocks of a transposable mask
SLAB = 1 << 22  # elements that are examined at once


class Permutation(NamedTuple):
    """An order of the columns: ``w[:, order]`` keeps the share ``kept`` of w's magnitude, w as it
    is ``kept_before``.
    """

    order: Any
    kept: float
    kept_before: float


@through_host
def search_permutation(w: Any, rounds: int = 40, seed: int = 0) -> Permutation:
    """An order of the columns of ``w`` (M, K) with which pruning by magnitude keeps more of it.

    A stripe is four columns (of f32: two) that are pruned together. Each round pairs all stripes at
    random, and divides the columns of each pair anew in the best of all ways (of 35; f32: 3): the
    exhaustive search of stripe groups of Pool and Yu, "Channel permutations for N:M sparsity"
    (NeurIPS 2021). The same ``seed`` gives the same order; more rounds never keep less. It is
    computed on the CPU; the order of a ``w`` on a GPU is an s64 array there. For chunks along the
    rows pass ``w.T``.

    >>> found = search_permutation(w); sparse = compress_24(w[:, found.order], "magnitude")
    >>> y = linear(x[:, found.order], sparse)

    Raises ProblemError for a shape that does not fit, DtypeError for a type that ``compress_24``
    does not take.
    """
    magnitude, size = _magnitudes(w)
    if not is_integer(rounds) or rounds < 0:
        raise ProblemError(f"rounds must be an integer of at least 0, got {rounds!r:.60}")
    if not is_integer(seed) or seed < 0:
        raise ProblemError(f"seed must be an integer of at least 0, got {seed!r:.60}")
    rng = np.random.default_rng(seed)
    stripes = np.arange(magnitude.shape[1]).reshape(-1, size)
    total = float(magnitude.sum()) or 1.0
    before = _kept(magnitude, stripes)
    for _ in range(rounds if len(stripes) > 1 else 0):
        pairs = rng.permutation(len(stripes))[: len(stripes) // 2 * 2].reshape(-1, 2)
        columns = stripes[pairs].reshape(len(pairs), 2 * size)
        stripes[pairs] = np.take_along_axis(
            columns, _best_division(magnitude, columns, size), 1
        ).reshape(len(pairs), 2, size)
    return Permutation(stripes.ravel(), _kept(magnitude, stripes) / total, before / total)


def transposable_mask(w: Any) -> Any:
    """A mask with which ``w`` (M, K) and its transpose are 2:4 sparse: of each 4×4 block two
    elements of each row and of each column are kept, those with the largest sum of magnitudes of
    all 90 ways. So the weights of a layer are sparse in the forward and in the backward pass
    (Hubara et al., "Accelerated sparse neural training", NeurIPS 2021). ``w`` is of a 16- or 8-bit
    type; the mask is computed on the CPU, and is where ``w`` is.

    >>> mask = transposable_mask(w); compress_24(w, mask); compress_24(w.T, mask.T)

    Raises ProblemError for a shape that does not fit, DtypeError for other types.
    """
    return _mask_bytes(w) != 0


@through_host
def _mask_bytes(w: Any) -> Array:
    """The mask as bytes of 0 and 1."""
    magnitude, size = _magnitudes(w)
    rows, columns = magnitude.shape
    if size != MASK_SIDE:
        raise DtypeError(f"w must be of a type that is 2:4 sparse, got {info('w', w)}")
    if rows % MASK_SIDE:
        raise ProblemError(
            f"w must have a multiple of {MASK_SIDE} rows, got {sizes(magnitude.shape)}"
        )
    patterns = block_patterns()
    mask = np.empty((rows, columns), np.uint8)
    step = max(1, SLAB // max(columns * len(patterns) // 16, 1) // MASK_SIDE) * MASK_SIDE
    for first in range(0, rows, step):
        slab = magnitude[first : first + step]
        blocks = slab.reshape(
            len(slab) // MASK_SIDE, MASK_SIDE, columns // MASK_SIDE, MASK_SIDE
        ).swapaxes(1, 2)
        sums = (
            blocks.reshape(*blocks.shape[:2], MASK_SIDE**2) @ patterns.reshape(len(patterns), -1).T
        )
        chosen = patterns[sums.argmax(-1)].swapaxes(1, 2)
        mask[first : first + step] = chosen.reshape(slab.shape) != 0
    return mask


def kept_magnitude(w: Any, sparse: Any) -> float:
    """The share of the magnitude of ``w`` that the ``Sparse24`` matrix ``sparse`` keeps. Raises
    ProblemError for another shape and for another value.
    """
    if not isinstance(sparse, Sparse24):
        raise ProblemError(f"sparse must be a Sparse24 matrix, got {type(sparse).__name__}")
    if info("w", w).shape != sparse.shape:
        raise ProblemError(f"w must have shape {sizes(sparse.shape)}, got {info('w', w)}")
    return share_of_magnitude(sparse.values, w)


@cache
def block_patterns() -> Array:
    """The 90 ways (90, 4, 4) to keep two elements of each row and each column of a 4×4 block."""
    rows = [
        [float(i in pair) for i in range(MASK_SIDE)] for pair in combinations(range(MASK_SIDE), 2)
    ]
    every = np.array(rows)[np.indices((len(rows),) * MASK_SIDE).reshape(MASK_SIDE, -1).T]
    return np.asarray(every[(every.sum(1) == 2).all(-1)])


def _magnitudes(w: Any) -> tuple[Array, int]:
    """|w| in f64, NaN as the largest number, and the columns of a stripe."""
    given = info("w", w)
    size = chunk_size(sparse_type("w", given.dtype))
    if len(given.shape) != 2 or given.shape[1] % size:
        raise ProblemError(
            f"w must be a matrix M×K with K a multiple of {size}, got {sizes(given.shape)}"
        )
    magnitude = np.abs(numbers("w", w).astype(np.float64))
    largest = float(np.finfo(np.float32).max)
    return np.nan_to_num(magnitude, False, largest, largest), size


def _kept(magnitude: Array, stripes: Array) -> float:
    """The magnitude that pruning keeps of these stripes."""
    chunks = magnitude[:, stripes.ravel()].reshape(len(magnitude), *stripes.shape)
    half = stripes.shape[1] // 2
    return float(np.partition(chunks, half - 1, -1)[..., half:].sum())


@cache
def _divisions(size: int) -> Array:
    """The ways to divide the columns of two stripes, a row each: those of the first, then those of
    the second; the first row leaves them as they are.
    """
    every = range(2 * size)
    firsts = [(0, *rest) for rest in combinations(every[1:], size - 1)]
    return np.array([[*first, *(i for i in every if i not in first)] for first in firsts])


def _best_division(magnitude: Array, columns: Array, size: int) -> Array:
    """For each pair of stripes (its ``columns``): the division that keeps most, the first one of
    equals.
    """
    divisions = _divisions(size)
    best = np.empty((len(columns), 2 * size), np.int64)
    step = max(1, SLAB // max(magnitude.shape[0] * len(divisions) * 2 * size // 8, 1))
    for first in range(0, len(columns), step):
        part = magnitude[:, columns[first : first + step]]  # (M, pairs, columns)
        kept = np.zeros((part.shape[1], len(divisions)))
        for i, division in enumerate(divisions):
            for half in (division[:size], division[size:]):
                kept[:, i] += _largest_half(part, half).sum(0)
        best[first : first + step] = divisions[kept.argmax(1)]
    return best


def _largest_half(part: Array, columns: Array) -> Array:
    """The sum of the largest half of some columns (two or four): (M, pairs)."""
    given = [part[..., i] for i in columns]
    if len(given) == 2:
        return np.asarray(np.maximum(*given))
    a, b, c, d = given
    of_each = np.maximum(a, b) + np.maximum(c, d)
    return np.asarray(np.maximum(np.maximum(a + b, c + d), of_each))
