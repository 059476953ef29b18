"""``compress_24``: a dense matrix → ``Sparse24``; pruning by magnitude or by a mask."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple, overload

import numpy as np

from ..dtypes import dtype
from ..errors import DeviceError, MetadataError, ProblemError
from ..lazy_imports import untraced
from ..mma.metadata_blocks import chunk_size, chunk_table, pack_metadata, positions_table
from ..quantization.array_access import (
    Array,
    ArrayInfo,
    codes,
    dense_info,
    info,
    new_array,
    numbers,
    sizes,
)
from ..quantization.host_arrays import through_host
from ..quantization.packed import Packed
from ..quantization.scaled import Scaled
from ..quantization.sparse_packed import CHUNK, METADATA_FORMAT, SparsePacked
from ..quantization.weight_types import pack_elements, weight_type
from . import compression_kernel
from .sparse24 import METADATA_TYPE, Sparse24, chunk_place, sparse_type


@overload
def compress_24(w: Scaled, prune: Any = None, *, device: Any = None) -> Scaled: ...
@overload
def compress_24(w: Packed, prune: Any = None, *, device: Any = None) -> SparsePacked: ...
@overload
def compress_24(w: Any, prune: Any = None, *, device: Any = None) -> Sparse24: ...


@untraced
def compress_24(w: Any, prune: Any = None, *, device: Any = None) -> Any:
    """The 2:4 sparse matrix of ``w`` (…, M, K), f16, bf16, e4m3, e5m2, s8 or u8, in ``w``'s
    library; f32 becomes tf32, which is 1:2 sparse.

    At most two of each four neighbours of a row (tf32: one of two) may be different from zero; NaN
    is. ``prune="magnitude"`` keeps the two of largest magnitude, the first ones of equal
    magnitudes. ``prune=mask``, Boolean of ``w``'s shape, keeps the elements where it is True. A
    chunk with fewer elements also stores its first zeros; a zero that is not stored loses its sign.
    ``kept`` of the result is the share of the magnitude that is left, of an array on the CPU.

    An array on a GPU is compressed there by a kernel, which takes contiguous rows of a multiple of
    16 bytes, and a mask that is there; an array on the CPU by NumPy, or by the kernel on ``device``
    (``"vm"``, ``"cuda"``), with the same bits.

    The data of a ``Scaled`` matrix are compressed, which keeps its scales; and so are the elements
    of ``Packed`` weights, whose magnitudes are those of the dequantized elements: on the CPU, also
    of arrays on a GPU.

    >>> compress_24(w, prune="magnitude").T              w of a linear layer N×K, as K×N

    Raises MetadataError for the first chunk with too many elements, ProblemError for a shape or K
    that does not fit, DtypeError for other types, DeviceError for a mask that is elsewhere.
    """
    if isinstance(w, Scaled):
        return _compress_scaled(w, prune, device)
    if isinstance(w, Packed):
        return _compress_packed(w, prune, device)
    given = dense_info("w", w)
    type_ = sparse_type("w", given.dtype)
    size = chunk_size(type_)
    if len(given.shape) not in (2, 3) or given.shape[-1] % size:
        raise ProblemError(
            f"w must be a matrix M×K or a stack of them, with K a multiple of {size}, got "
            f"{sizes(given.shape)}",
            hint="pad K with zeros",
        )
    if device is not None or given.device != "cpu":
        return _by_kernel(w, given, type_, prune, device)
    dense = codes("w", w)
    chunks = _chunks(dense, size)
    chosen = _choose(type_, magnitudes(type_, chunks), prune)
    values = np.take_along_axis(chunks, chosen.positions, -1)
    if prune is not None:
        values = np.where(chosen.kept, values, 0)
    stored = values.reshape(*dense.shape[:-1], dense.shape[-1] // 2).astype(dense.dtype)
    arrays = new_array(w, stored, given.dtype), new_array(w, chosen.words, METADATA_TYPE)
    kept = 1.0 if prune is None else share_of_magnitude(arrays[0], w)
    return Sparse24(*arrays, type_, kept=kept)


class _Chosen(NamedTuple):
    """What each chunk stores: (…, M, chunks, stored) positions, and whether these elements are kept
    (a chunk with fewer stores zeros besides); the words of metadata.
    """

    positions: Array
    kept: Array
    words: Array


def _chunks(dense: Array, size: int) -> Array:
    return dense.reshape(*dense.shape[:-1], dense.shape[-1] // size, size)


def _choose(type_: str, magnitude: Array, prune: Any) -> _Chosen:
    """What to store of chunks (…, M, chunks, size) with these magnitudes. Raises MetadataError for
    the first one with too many elements, and ProblemError for what ``prune`` must not be.
    """
    size = magnitude.shape[-1]
    every = _kept(magnitude, prune)
    bits = (every << np.arange(size, dtype=np.uint8)).sum(-1, dtype=np.uint8)
    metadata, fits = chunk_table(type_)
    if not fits[bits].all():
        _raise_excess(bits, np.argwhere(~fits[bits])[0], size, prune)
    positions = positions_table(type_)[0][metadata[bits]]
    words = pack_metadata(type_, metadata[bits]).view(np.uint32)
    return _Chosen(positions, np.take_along_axis(every, positions, -1), words)


@through_host
def share_of_magnitude(values: Any, w: Any) -> float:
    """The sum of the magnitudes of ``values``, as a share of that of ``w``: 1 if both are 0."""
    kept, whole = (
        float(np.abs(numbers("w", array).astype(np.float64)).sum()) for array in (values, w)
    )
    return kept / whole if whole else 1.0


def _compress_scaled(w: Scaled, prune: Any, device: Any) -> Scaled:
    columns, along_row = w.shape[-1], w.block[1]
    size = chunk_size(w.type)
    if along_row % size and along_row < columns:
        raise ProblemError(
            f"the scales of w must be those of whole chunks of {size} columns, got {w}"
        )
    return Scaled(compress_24(w.data, prune, device=device), w.scales, w.block)


@through_host
def _compress_packed(w: Packed, prune: Any, device: Any) -> SparsePacked:
    """Two elements of each chunk. Zeros that are stored besides must be representable."""
    if isinstance(w, SparsePacked):
        raise ProblemError(f"w must be dense, got {w}")
    if w.transposed or w.order is not None or w.shape[-1] % CHUNK:
        what = f"weights N×K without order, with K a multiple of {CHUNK}"
        raise ProblemError(f"packed w must be {what}, got {w}")
    if device is not None:
        raise ProblemError(f"device must be None for packed w, got {device!r:.60}")
    sizes_ = _chunks(np.abs(numbers("w", w.dequantize())), CHUNK)
    chosen = _choose(METADATA_FORMAT, magnitudes("tf32", sizes_.view(np.uint32)), prune)
    if prune is not None and not chosen.kept.all():
        raise ProblemError(f"the mask must keep {CHUNK // 2} of each {CHUNK} packed elements")
    elements = w.element_codes()
    stored = np.take_along_axis(_chunks(elements, CHUNK), chosen.positions, -1)
    packed = pack_elements(weight_type(w.type), stored.reshape(*elements.shape[:-1], -1))
    data, words = new_array(w.data, packed, "u8"), new_array(w.data, chosen.words, METADATA_TYPE)
    return SparsePacked(
        data, w.scales, w.type, w.group, w.zeros, global_scale=w.global_scale, metadata=words
    )


def _by_kernel(w: Any, given: ArrayInfo, type_: str, prune: Any, device: Any) -> Sparse24:
    if prune is None or isinstance(prune, str):
        if prune not in (None, "magnitude"):
            raise _prune_error(prune)
        form = compression_kernel.CompressionForm(type_, prune or "")
        return compression_kernel.launch(w, given, form, device)
    mask = _byte_mask(prune, given)
    form = compression_kernel.CompressionForm(type_, "mask")
    return compression_kernel.launch(w, given, form, device, mask)


def _byte_mask(mask: Any, given: ArrayInfo) -> Any:
    """A Boolean array as a contiguous one of bytes, where it is."""
    kind = str(getattr(mask, "dtype", ""))
    shape = tuple(getattr(mask, "shape", ()))
    if kind.rpartition(".")[2] != "bool" or shape != given.shape:
        found = f"{kind or type(mask).__name__} {sizes(shape)}"
        raise ProblemError(f"the mask must be Boolean of shape {sizes(given.shape)}, got {found}")
    whole = mask.byte().contiguous() if hasattr(mask, "byte") else mask.astype("uint8", order="C")
    where = info("the mask", whole).device
    if where != given.device:
        raise DeviceError(f"the mask must be on {given.device}, where w is, got {where}")
    return whole


def _prune_error(prune: Any) -> ProblemError:
    return ProblemError(f"prune must be None, 'magnitude' or a mask, got {prune!r:.60}")


def _kept(chunks: Array, prune: Any) -> Array:
    """Which elements are kept of chunks of magnitudes: (…, chunks, chunk size) of Booleans."""
    if prune is None:
        return np.asarray(chunks != 0)
    if isinstance(prune, str):
        if prune != "magnitude":
            raise _prune_error(prune)
        return _largest(chunks)
    mask = np.asarray(prune)
    shape = (*chunks.shape[:-2], chunks.shape[-2] * chunks.shape[-1])
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise ProblemError(
            f"the mask must be Boolean of shape {sizes(shape)}, got {mask.dtype} "
            f"{sizes(mask.shape)}"
        )
    return mask.reshape(chunks.shape)


def _largest(sizes: Array) -> Array:
    """Which half of each chunk is the largest, the first ones of equals: each pair is compared."""
    count = sizes.shape[-1]
    larger = np.zeros(sizes.shape, np.uint8)  # elements of the chunk that come before this one
    for first, second in combinations(range(count), 2):
        wins = sizes[..., second] > sizes[..., first]
        larger[..., first] += wins
        larger[..., second] += ~wins
    return np.asarray(larger < count // 2)


def magnitudes(type_: str, elements: Array) -> Array:
    """Integers in the order of the magnitudes of elements, which are codes; 0 for a zero, and the
    largest for NaN.
    """
    if type_ == "u8":
        return elements
    if type_ == "s8":
        return np.asarray(np.abs(elements.view(np.int8).astype(np.int16)))
    bits = 32 if type_ == "tf32" else dtype(type_).bits
    return np.asarray(elements & elements.dtype.type((1 << bits - 1) - 1))


def _raise_excess(bits: Array, where: Array, size: int, prune: Any) -> None:
    count = int(bits[tuple(where)]).bit_count()
    what = "are not zero" if prune is None else "are kept by the mask"
    raise MetadataError(
        f"{chunk_place(where, size)}: {count} of {size} {what}, at most {size // 2} may be",
        hint="prune='magnitude' keeps the largest",
    )
