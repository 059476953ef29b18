"""Sparse A: the stored elements of each chunk of a row, and the metadata with their positions.

Two of four neighbours in a row are stored, with two 2-bit indices; of 4-bit types two pairs of
eight neighbours, with two such indices; of tf32 one of two, with a 4-bit index, 0b0100 (the first)
or 0b1110 (the second). A matrix of metadata has one index for each stored element (4-bit types:
for each stored pair), the lowest first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import dtype
from ..errors import LayoutError, MetadataError
from ..number_conversion import decode
from .array_inputs import as_array, as_codes, as_integers, batch_shape, require_shape
from .instruction_form import MmaForm
from .sparsity import sparsity_pattern

Bits = npt.NDArray[Any]

FIRST, SECOND = 0b0100, 0b1110  # the indices of two tf32 numbers
ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)


def dense_columns(metadata: npt.ArrayLike, pattern: tuple[int, int], ordered: bool) -> Bits:
    """The column of dense A of each stored element: (…, M, stored K).

    MetadataError for two equal indices in a chunk, for decreasing indices of ``ordered`` metadata,
    and for an index that tf32 does not have. LayoutError and DtypeError for anything but a matrix
    of integers with whole chunks.
    """
    indices = as_integers(metadata, "indices of metadata").astype(np.int64)
    if indices.ndim < 2 or (pattern != (1, 2) and indices.shape[-1] % 2):
        expected = "(…, M, codes) with whole chunks"
        raise LayoutError(f"metadata must have shape {expected}, got {indices.shape}")
    if pattern == (1, 2):
        _reject((indices != FIRST) & (indices != SECOND), indices, "0b0100 or 0b1110", 1)
        return np.asarray(2 * np.arange(indices.shape[-1]) + (indices == SECOND))
    low, high = indices[..., 0::2], indices[..., 1::2]
    nibbles = low | high << 2
    _reject((indices < 0) | (indices > 3), indices, "an index of 2 bits", 1)
    if ordered:
        _reject(low >= high, nibbles, ", ".join(f"{n:#06b}" for n in ORDERED), 2)
    _reject(low == high, nibbles, "two different indices: not 0b0000, 0b0101, 0b1010, 0b1111", 2)
    chunks = np.arange(indices.shape[-1]) // 2 * 4
    if pattern == (2, 4):
        return chunks + indices
    pairs = 2 * (chunks + indices)
    return np.stack([pairs, pairs + 1], -1).reshape(*pairs.shape[:-1], -1)


def _reject(wrong: Bits, codes: Bits, allowed: str, step: int) -> None:
    """MetadataError for the first ``wrong`` code; a code covers ``step`` indices."""
    if not wrong.any():
        return
    at = tuple(int(x) for x in np.argwhere(wrong)[0])
    value = f"{int(codes[at]):#06b}"
    raise MetadataError(
        f"invalid metadata {value} in row {at[-2]}, index {at[-1] * step}",
        hint=f"allowed: {allowed}",
    )


def compress(i: MmaForm, dense: npt.ArrayLike) -> tuple[Bits, Bits]:
    """(stored elements, metadata) of A (…, M, K), which has A's NumPy type or its bits.

    Non-zero elements are stored in order; a chunk with fewer than the pattern stores also its first
    zeros. MetadataError for a chunk with more non-zero elements than the pattern; LayoutError and
    DtypeError.
    """
    stored, group, width = _chunks(i)
    a = require_shape(as_array(dense), (i.m, i.k), f"dense A of {i.opcode}")
    chunks = a.reshape(*a.shape[:-1], i.k // (group * width), group, width)
    nonzero = (decode(i.a, as_codes(chunks, dtype(i.a))) != 0).any(-1)
    excess = np.argwhere(nonzero.sum(-1) > stored)
    if len(excess):
        *_, row, number = excess[0].tolist()
        raise MetadataError(
            f"row {row}, columns {number * group * width} to {(number + 1) * group * width - 1}: "
            f"{int(nonzero[tuple(excess[0])].sum())} of {group} are not zero",
            hint=f"{i.opcode} stores {stored} of {group}" + (" pairs" if width > 1 else ""),
        )
    chosen = stored_positions(nonzero, stored)
    values = np.take_along_axis(chunks, chosen[..., None], -2)
    codes = np.where(chosen == 1, SECOND, FIRST) if group == 2 else chosen
    return values.reshape(*a.shape[:-1], -1), codes.reshape(*a.shape[:-1], -1).astype(np.uint8)


def stored_positions(nonzero: Bits, stored: int) -> Bits:
    """The positions of the stored elements of chunks (…, group), in order: those that are not zero,
    then the first zeros.
    """
    order = np.argsort(~nonzero, axis=-1, kind="stable")[..., :stored]
    return np.sort(order, axis=-1)


def expand(i: MmaForm, values: npt.ArrayLike, metadata: npt.ArrayLike) -> Bits:
    """Dense A (…, M, K) from its stored elements, of A's NumPy type or bits, and its metadata.

    Leading axes broadcast. Raises MetadataError, LayoutError and DtypeError.
    """
    _chunks(i)
    stored = require_shape(as_array(values), (i.m, i.stored_k), f"stored A of {i.opcode}")
    as_codes(stored, dtype(i.a))
    shape = (i.m, i.metadata_columns)
    codes = require_shape(as_array(metadata), shape, f"metadata of {i.opcode}")
    where = dense_columns(codes, sparsity_pattern(i.a, i.kind), i.ordered)
    full = (*batch_shape(stored, where), i.m, i.stored_k)
    dense = np.zeros((*full[:-1], i.k), stored.dtype)
    np.put_along_axis(dense, np.broadcast_to(where, full), np.broadcast_to(stored, full), -1)
    return dense


def _chunks(i: MmaForm) -> tuple[int, int, int]:
    """(stored, group, width): a pair of 4-bit elements counts as one of width 2."""
    if not getattr(i, "sparse", False):
        raise LayoutError(f"{i} has no sparse A", hint="use mma.sp or wgmma.mma_async.sp")
    stored, group = sparsity_pattern(i.a, i.kind)
    return (2, 4, 2) if (stored, group) == (4, 8) else (stored, group, 1)
