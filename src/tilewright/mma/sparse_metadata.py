"""Sparse A: what is kept of each chunk of a row, and the metadata that says where it stood.

Of four neighbours in a row two are kept, and two 2-bit indices say which; of 4-bit types two pairs
of eight neighbours, with the same two indices; of two tf32 numbers one, and its 4-bit index is
0b0100 (the first) or 0b1110. A matrix of metadata has an index for each element kept (for each
pair of a 4-bit type), the lowest first.
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

FIRST, SECOND = 0b0100, 0b1110  # which of two tf32 numbers
ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)


def dense_columns(metadata: npt.ArrayLike, kept_of: tuple[int, int], ordered: bool) -> Bits:
    """The column of dense A that each stored element came from: (…, M, stored K).

    MetadataError where two indices of a chunk are the same, or stand in the wrong order for
    ``ordered`` metadata, or are none of tf32's two. LayoutError, DtypeError for what is no matrix
    of integers, or has half a chunk.
    """
    found = as_integers(metadata, "indices of metadata").astype(np.int64)
    if found.ndim < 2 or (kept_of != (1, 2) and found.shape[-1] % 2):
        raise LayoutError(f"metadata is (…, M, codes), for whole chunks, not {found.shape}")
    if kept_of == (1, 2):
        _refuse((found != FIRST) & (found != SECOND), found, "0b0100 or 0b1110", 1)
        return np.asarray(2 * np.arange(found.shape[-1]) + (found == SECOND))
    low, high = found[..., 0::2], found[..., 1::2]
    nibbles = low | high << 2
    _refuse((found < 0) | (found > 3), found, "an index of 2 bits", 1)
    if ordered:
        _refuse(low >= high, nibbles, ", ".join(f"{n:#06b}" for n in ORDERED), 2)
    _refuse(low == high, nibbles, "two different indices: not 0b0000, 0b0101, 0b1010, 0b1111", 2)
    chunks = np.arange(found.shape[-1]) // 2 * 4
    if kept_of == (2, 4):
        return chunks + found
    pairs = 2 * (chunks + found)
    return np.stack([pairs, pairs + 1], -1).reshape(*pairs.shape[:-1], -1)


def _refuse(wrong: Bits, found: Bits, allowed: str, step: int) -> None:
    if not wrong.any():
        return
    at = tuple(int(x) for x in np.argwhere(wrong)[0])
    value = f"{int(found[at]):#06b}"
    raise MetadataError(
        f"metadata {value} of row {at[-2]}, index {at[-1] * step}, selects nothing",
        hint=f"allowed is {allowed}",
    )


def compress(i: MmaForm, dense: npt.ArrayLike) -> tuple[Bits, Bits]:
    """(what is kept, its metadata) of A (…, M, K), of A's NumPy type or its bits.

    Elements that are not zero are kept where they stand in order; chunks with fewer keep the
    lowest others too. MetadataError where a chunk has more than may be kept; LayoutError and
    DtypeError.
    """
    kept, of, width = _chunks(i)
    a = require_shape(as_array(dense), (i.m, i.k), f"dense A of {i.opcode} is")
    wide = a.reshape(*a.shape[:-1], i.k // (of * width), of, width)
    live = (decode(i.a, as_codes(wide, dtype(i.a))) != 0).any(-1)
    excess = np.argwhere(live.sum(-1) > kept)
    if len(excess):
        *_, row, number = excess[0].tolist()
        raise MetadataError(
            f"row {row}, columns {number * of * width} to {(number + 1) * of * width - 1}: "
            f"{int(live[tuple(excess[0])].sum())} of {of} are not zero",
            hint=f"{i.opcode} keeps {kept} of {of}" + (" pairs" if width > 1 else ""),
        )
    order = np.argsort(~live, axis=-1, kind="stable")[..., :kept]
    chosen = np.sort(order, axis=-1)
    values = np.take_along_axis(wide, chosen[..., None], -2)
    where = np.where(chosen == 1, SECOND, FIRST) if of == 2 else chosen
    return values.reshape(*a.shape[:-1], -1), where.reshape(*a.shape[:-1], -1).astype(np.uint8)


def expand(i: MmaForm, values: npt.ArrayLike, metadata: npt.ArrayLike) -> Bits:
    """Dense A (…, M, K) from what is kept of it, of A's NumPy type or its bits, and its metadata.

    Leading axes broadcast. Raises MetadataError, LayoutError and DtypeError.
    """
    _chunks(i)
    stored = require_shape(as_array(values), (i.m, i.stored_k), f"stored A of {i.opcode} is")
    as_codes(stored, dtype(i.a))
    said = require_shape(
        as_array(metadata), (i.m, i.metadata_columns), f"metadata of {i.opcode} is"
    )
    where = dense_columns(said, sparsity_pattern(i.a, i.kind), i.ordered)
    shape = (*batch_shape(stored, where), i.m, i.stored_k)
    dense = np.zeros((*shape[:-1], i.k), stored.dtype)
    np.put_along_axis(dense, np.broadcast_to(where, shape), np.broadcast_to(stored, shape), -1)
    return dense


def _chunks(i: MmaForm) -> tuple[int, int, int]:
    """(kept, of, width): pairs of 4-bit elements count as one of width 2."""
    if not getattr(i, "sparse", False):
        raise LayoutError(f"{i} has no sparse A", hint="mma.sp and wgmma.mma_async.sp have")
    kept, of = sparsity_pattern(i.a, i.kind)
    return (2, 4, 2) if (kept, of) == (4, 8) else (kept, of, 1)
