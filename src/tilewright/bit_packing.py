"""Packing of values into words (registers), and of lanes into one value of a packed format."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import DType, dtype
from .errors import DtypeError

Array = npt.NDArray[Any]


def pack(t: str | DType, codes: npt.ArrayLike, word: npt.DTypeLike = np.uint32) -> Array:
    """Pack the bits of values into words, the first value in the lowest bits.

    (…, n) → (…, n * bits / word's bits). Raises DtypeError if the values don't fill whole words.
    """
    t, codes, word_type = dtype(t), np.asarray(codes), _word(word)
    if not codes.ndim or (codes.dtype.kind not in "iub" and codes.size):
        raise DtypeError(f"pack takes an array of integers, got {codes.dtype} of {codes.shape}")
    count, size = codes.shape[-1], 8 * word_type.itemsize
    if count * t.bits % size:
        raise DtypeError(f"{count} values of {t.name} do not fill words of {size} bits")
    if t.bits in (8, 16, 32, 64):
        return np.ascontiguousarray(codes.astype(t.storage)).view(word_type)
    if t.bits == 4:
        nibbles = codes.astype(np.uint8)
        both = nibbles[..., ::2] & 15 | nibbles[..., 1::2] << 4
        return np.ascontiguousarray(both).view(word_type)
    single = codes[..., None].astype(np.uint8) >> np.arange(t.bits, dtype=np.uint8) & 1
    flat = single.reshape(*codes.shape[:-1], count * t.bits)
    return np.ascontiguousarray(np.packbits(flat, axis=-1, bitorder="little")).view(word_type)


def _word(word: npt.DTypeLike) -> np.dtype[Any]:
    try:
        return np.dtype(word)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"a word must be a NumPy dtype, got {word!r:.60}") from error


def unpack(t: str | DType, words: npt.ArrayLike) -> Array:
    """The inverse of ``pack``: the bits of each value as an element."""
    t, words = dtype(t), np.ascontiguousarray(words)
    if words.dtype.kind in "OUS":
        raise DtypeError(f"unpack takes an array of words, got {words.dtype}")
    total = words.shape[-1] * words.dtype.itemsize * 8
    if total % t.bits:
        raise DtypeError(f"{total} bits are not a whole number of {t.name} values")
    if t.bits in (8, 16, 32, 64):
        return words.view(t.storage)
    if t.bits == 4:
        both = words.view(np.uint8)
        result = np.empty((*both.shape, 2), np.uint8)
        result[..., 0], result[..., 1] = both & 15, both >> 4
        return result.reshape(*words.shape[:-1], total // t.bits)
    single = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    split = single.reshape(*words.shape[:-1], total // t.bits, t.bits)
    return np.asarray((split << np.arange(t.bits, dtype=np.uint8)).sum(-1, dtype=np.uint8))


def pack_lanes(t: str | DType, codes: npt.ArrayLike) -> Array:
    """The lanes of a packed format (last axis) into one value: (…, 2) → (…)."""
    t, codes = dtype(t), np.asarray(codes)
    if codes.shape[-1:] != (t.lanes,):
        raise DtypeError(f"{t.name} packs {t.lanes} values, not an array of shape {codes.shape}")
    step = t.bits // t.lanes
    shifts = np.arange(t.lanes, dtype=np.uint64) * np.uint64(step)
    joined = np.bitwise_or.reduce(codes.astype(np.uint64) << shifts, axis=-1)
    return np.asarray(joined, t.storage)


def unpack_lanes(t: str | DType, values: npt.ArrayLike) -> Array:
    """The lanes of a packed format: (…) → (…, 2)."""
    t = dtype(t)
    element, step = dtype(t.element), t.bits // t.lanes
    shifts = np.arange(t.lanes, dtype=np.uint64) * np.uint64(step)
    lanes = np.asarray(values).astype(np.uint64)[..., None] >> shifts
    return (lanes & np.uint64((1 << element.bits) - 1)).astype(element.storage)
