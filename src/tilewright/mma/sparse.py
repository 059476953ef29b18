"""Sparse A: what is kept of each chunk of a row, and the metadata that says where it stood.

Of four neighbours in a row two are kept, and two 2-bit indices say which; of 4-bit types two pairs
of eight neighbours, with the same two indices; of two tf32 numbers one, and its 4-bit index is
0b0100 (the first) or 0b1110. A matrix of metadata has an index for each element kept (for each
pair of a 4-bit type), the lowest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..dtypes import decode
from ..errors import LayoutError, MetadataError
from .operands import chunk

if TYPE_CHECKING:
    from .instruction import Instruction

Bits = npt.NDArray[Any]

FIRST, SECOND = 0b0100, 0b1110  # which of two tf32 numbers
ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)


def positions(metadata: npt.ArrayLike, kept_of: tuple[int, int], ordered: bool) -> Bits:
    """The column of dense A that each stored element came from: (…, M, stored K).

    MetadataError where two indices of a chunk are the same, or stand in the wrong order for
    ``ordered`` metadata, or are none of tf32's two.
    """
    codes = np.asarray(metadata).astype(np.int64)
    if kept_of == (1, 2):
        _refuse((codes != FIRST) & (codes != SECOND), codes, "0b0100 or 0b1110", 1)
        return np.asarray(2 * np.arange(codes.shape[-1]) + (codes == SECOND))
    low, high = codes[..., 0::2], codes[..., 1::2]
    nibbles = low | high << 2
    _refuse((codes < 0) | (codes > 3), codes, "an index of 2 bits", 1)
    if ordered:
        _refuse(low >= high, nibbles, ", ".join(f"{n:#06b}" for n in ORDERED), 2)
    _refuse(low == high, nibbles, "two different indices: not 0b0000, 0b0101, 0b1010, 0b1111", 2)
    chunks = np.arange(codes.shape[-1]) // 2 * 4
    if kept_of == (2, 4):
        return chunks + codes
    pairs = 2 * (chunks + codes)
    return np.stack([pairs, pairs + 1], -1).reshape(*pairs.shape[:-1], -1)


def _refuse(wrong: Bits, codes: Bits, allowed: str, step: int) -> None:
    if not wrong.any():
        return
    at = tuple(int(x) for x in np.argwhere(wrong)[0])
    value = f"{int(codes[at]):#06b}"
    raise MetadataError(
        f"metadata {value} of row {at[-2]}, index {at[-1] * step}, selects nothing",
        hint=f"allowed is {allowed}",
    )


def compress(i: Instruction, dense: npt.ArrayLike) -> tuple[Bits, Bits]:
    """(what is kept, its metadata) of A (…, M, K), of A's NumPy type or its bits.

    Elements that are not zero are kept where they stand in order; chunks with fewer keep the
    lowest others too. MetadataError where a chunk has more than may be kept.
    """
    kept, of, width = _chunks(i)
    a = np.asarray(dense)
    if a.shape[-2:] != (i.m, i.k):
        raise LayoutError(f"dense A of {i.opcode} is {(i.m, i.k)}, not {a.shape}")
    wide = a.reshape(*a.shape[:-1], i.k // (of * width), of, width)
    live = (_numbers(i, wide) != 0).any(-1)
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
    codes = np.where(chosen == 1, SECOND, FIRST) if of == 2 else chosen
    return values.reshape(*a.shape[:-1], -1), codes.reshape(*a.shape[:-1], -1).astype(np.uint8)


def expand(i: Instruction, values: npt.ArrayLike, metadata: npt.ArrayLike) -> Bits:
    """Dense A (…, M, K) from what is kept of it and its metadata. Raises MetadataError."""
    stored = np.asarray(values)
    if stored.shape[-2:] != (i.m, i.stored_k):
        raise LayoutError(f"stored A of {i.opcode} is {(i.m, i.stored_k)}, not {stored.shape}")
    where = positions(metadata, chunk(i.a, i.kind), i.ordered)
    dense = np.zeros((*stored.shape[:-1], i.k), stored.dtype)
    np.put_along_axis(dense, np.broadcast_to(where, stored.shape), stored, -1)
    return dense


def _chunks(i: Instruction) -> tuple[int, int, int]:
    """(kept, of, width): pairs of 4-bit elements count as one of width 2."""
    if not i.sparse:
        raise LayoutError(f"{i.opcode} takes dense A", hint="mma.sp and wgmma.mma_async.sp do not")
    kept, of = chunk(i.a, i.kind)
    return (2, 4, 2) if (kept, of) == (4, 8) else (kept, of, 1)


def _numbers(i: Instruction, a: Bits) -> Bits:
    from_bits = a.dtype.kind == "u" and i.a not in ("u8", "u4")
    return decode(i.a, a) if from_bits else a
