"""Marlin's layout of 4- and 8-bit weights, read back into rows.

Marlin stores a K×N matrix as tiles of 16×64: a lane's elements of four ``mma`` B fragments of 16×16
lie together, so that one 16-byte load brings them. Scales and zero points are permuted within 64
columns in the order in which lanes use them. The source is Marlin's own packing function and the
one of vLLM's repacking (W4A16 and W8A16; not the variant for 8-bit activations).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ProblemError
from .array_access import Array, codes, info, new_array
from .checkpoint_readers import common_zero, fields, group_of, unsigned_type, weights, words
from .host_arrays import through_host
from .packed import Packed

TILE = 16
CHUNK = 64  # columns that are permuted together
_INTERLEAVE = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}


def weight_permutation(bits: int) -> Array:
    """The element of four row-major 16×16 tiles at each position of a chunk of 1024.

    Lane l has, of each tile, column l / 4 and then column l / 4 + 8, at rows 2 (l mod 4) + {0, 1,
    8, 9}. Elements of a word are interleaved.
    """
    lane, tile, half, pair = np.ix_(range(32), range(4), range(2), (0, 1, 8, 9))
    row, column = 2 * (lane % 4) + pair, lane // 4 + 8 * half
    order = (256 * tile + TILE * row + column).reshape(-1, len(_INTERLEAVE[bits]))
    return np.asarray(order[:, list(_INTERLEAVE[bits])].reshape(-1))


def scale_permutation(grouped: bool) -> Array:
    """The column at each position: of 64 with groups, of 32 with one scale for a column."""
    if grouped:
        return np.arange(64).reshape(8, 8).T.reshape(-1)
    first = np.array([0, 1, 8, 9, 16, 17, 24, 25])
    return np.asarray((2 * np.arange(4)[:, None] + first).reshape(-1))


def _unpermuted(values: Array, permutation: Array) -> Array:
    """The inverse of taking ``permutation`` in chunks of the last axis."""
    chunks = values.reshape(-1, permutation.size)
    result = np.empty_like(chunks)
    result[:, permutation] = chunks
    return result.reshape(values.shape)


@through_host
def read_marlin(b: Any, scales: Any, zeros: Any = None, bits: int = 4) -> Packed:
    """Weights in Marlin's layout.

    ``b``: s32 (K / 16, N · bits / 2); ``scales``: (K / group, N), permuted; ``zeros``: None for
    symmetric weights (the zero point is 8 or 128), or s32 (K / group, N · bits / 32), permuted and
    packed as vLLM does for AWQ. An element is (q − z) · s.

    Raises DtypeError and ProblemError for arrays that do not fit; N must be a multiple of 64.
    """
    type_ = unsigned_type(bits)
    q = fields(words("b", b), bits, 1)
    depth, columns = q.shape[0] * TILE, q.shape[1] // TILE
    given = info("scales", scales)
    if columns % CHUNK or len(given.shape) != 2 or given.shape[1] != columns:
        raise ProblemError(
            f"scales must have N = {columns} columns, a multiple of {CHUNK}, got {given}"
        )
    tiles = _unpermuted(q, weight_permutation(bits)).reshape(-1, columns // TILE, TILE, TILE)
    matrix = tiles.transpose(1, 3, 0, 2).reshape(columns, depth)
    group = group_of(depth, scales, 0)
    plain = _unpermuted(codes("scales", scales), scale_permutation(group < depth))
    zero: Any = 1 << (bits - 1)
    if zeros is not None:
        zero = common_zero(b, _zero_points(zeros, bits).T)
    scale = new_array(scales, np.ascontiguousarray(plain.T), info("scales", scales).dtype)
    return Packed(weights(b, matrix, type_), scale, type_, group, zero)


def _zero_points(zeros: Any, bits: int) -> Array:
    """(K / group, N), from words that are interleaved like the weights."""
    unpacked = _unpermuted(fields(words("zeros", zeros), bits, 1), np.array(_INTERLEAVE[bits]))
    return _unpermuted(unpacked, scale_permutation(True))
