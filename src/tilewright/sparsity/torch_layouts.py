"""Conversion from and to torch's ``SparseSemiStructuredTensor``.

Its CUTLASS form has the stored elements (M, K / 2) and metadata of 16 or 32 bits in the order of
CUTLASS's sparse kernels for Ampere. Its cuSPARSELt form is one opaque array, whose order is not
published: it is converted through the dense matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DtypeError, ProblemError
from ..mma.metadata_blocks import pack_metadata
from ..quantization.array_access import Array, codes, info, new_array, sizes
from .compression import compress_24
from .sparse24 import METADATA_TYPE, Sparse24

_TYPES = {"f16": "s16", "bf16": "s16", "s8": "s32"}  # the words of metadata


def from_torch(tensor: Any) -> Sparse24:
    """A torch ``SparseSemiStructuredTensor`` as a ``Sparse24`` on the CPU.

    Raises ProblemError for another value, DtypeError for elements other than f16, bf16, s8.
    """
    packed = getattr(tensor, "packed", None)
    if packed is None or not hasattr(tensor, "to_dense"):
        raise ProblemError(
            f"tensor must be a SparseSemiStructuredTensor, got {type(tensor).__name__}"
        )
    meta = getattr(tensor, "meta", None)
    if meta is None:  # cuSPARSELt
        found: Sparse24 = compress_24(tensor.to_dense().cpu())
        return found
    return from_cutlass(packed.cpu(), meta.cpu())


def to_torch(matrix: Sparse24, kind: Any, device: Any = "cuda") -> Any:
    """The matrix, of torch tensors on the CPU, as a torch ``SparseSemiStructuredTensor`` on
    ``device``. ``kind``: ``torch.sparse.SparseSemiStructuredTensorCUTLASS`` or
    ``…CUSPARSELT``, whose tensors are made by cuSPARSELt from the dense matrix.

    >>> weights = to_torch(sparse, torch.sparse.SparseSemiStructuredTensorCUTLASS)

    Raises ProblemError for another kind and what ``to_cutlass`` raises, DeviceError for a matrix on
    a GPU.
    """
    name = getattr(kind, "__name__", "")
    if name.endswith("CUSPARSELT") and hasattr(kind, "from_dense"):
        return kind.from_dense(matrix.decompress().to(device))
    if not name.endswith("CUTLASS"):
        raise ProblemError(
            f"kind must be a class SparseSemiStructuredTensorCUTLASS or …CUSPARSELT, got {kind!r}"
        )
    values, metadata = (array.to(device) for array in to_cutlass(matrix))
    return kind(
        matrix.shape, packed=values, meta=metadata, packed_t=None, meta_t=None,
        compressed_swizzled_bitmask=None,
    )  # fmt: skip


def from_cutlass(values: Any, metadata: Any) -> Sparse24:
    """Stored elements (M, K / 2) and CUTLASS's metadata (M, words) as a ``Sparse24``.

    Words are s16 (of 8 elements) for f16 and bf16, s32 (of 16) for s8. Raises ProblemError for
    shapes that do not fit, DtypeError for other types, MetadataError.
    """
    given, words = info("values", values), info("metadata", metadata)
    per_word = _chunks_per_word(given.dtype)
    if words.dtype != _TYPES[given.dtype]:
        raise DtypeError(
            f"metadata of {given.dtype} must be {_TYPES[given.dtype]}, got {words.dtype}"
        )
    rows, columns = _cutlass_shape(given.dtype, given.shape)
    if words.shape != (rows, columns):
        raise ProblemError(
            f"metadata must have shape {sizes((rows, columns))}, got {sizes(words.shape)}"
        )
    flat = np.ascontiguousarray(codes("metadata", metadata)).reshape(-1)
    in_rows = flat[_offsets(rows, columns, per_word)]
    chunks = in_rows[..., None] >> (4 * np.arange(per_word)).astype(in_rows.dtype) & 15
    packed = pack_metadata(given.dtype, chunks.reshape(rows, -1).astype(np.uint8))
    own = new_array(values, packed.view(np.uint32), METADATA_TYPE)
    return Sparse24(values, own, given.dtype)


def to_cutlass(matrix: Any) -> tuple[Any, Any]:
    """The stored elements and CUTLASS's metadata, as ``torch.sparse.SparseSemiStructuredTensor``
    has them: the inverse of ``from_cutlass``. Raises what that raises.
    """
    if not isinstance(matrix, Sparse24) or matrix.transposed:
        raise ProblemError(f"matrix must be a Sparse24 that is not transposed, got {matrix!r:.60}")
    type_ = info("values", matrix.values).dtype
    per_word = _chunks_per_word(type_)
    rows, columns = _cutlass_shape(type_, tuple(matrix.values.shape))
    chunks = matrix.metadata_chunks().reshape(rows, columns, per_word)
    word = np.uint16 if per_word == 4 else np.uint32
    shifted = chunks.astype(word) << (4 * np.arange(per_word)).astype(word)
    flat = np.empty(rows * columns, word)
    flat[_offsets(rows, columns, per_word)] = np.bitwise_or.reduce(shifted, -1)
    metadata = new_array(matrix.values, flat.reshape(rows, columns), _TYPES[type_])
    return matrix.values, metadata


def _chunks_per_word(type_: str) -> int:
    if type_ not in _TYPES:
        raise DtypeError(f"CUTLASS's form has elements of {', '.join(_TYPES)}, got {type_}")
    return 8 if _TYPES[type_] == "s32" else 4


def _cutlass_shape(type_: str, values: tuple[int, ...]) -> tuple[int, int]:
    """Rows and words per row of the metadata."""
    per_word = _chunks_per_word(type_)
    if len(values) != 2 or values[0] % 32 or values[1] % (4 * per_word):
        raise ProblemError(
            f"values must have a multiple of 32 rows and of {4 * per_word} columns, got "
            f"{sizes(values)}"
        )
    return values[0], values[1] // (2 * per_word)


def _offsets(rows: int, columns: int, per_word: int) -> Array:
    """Where the word of each (row, column) is stored: rows 8 apart are neighbours within groups of
    32 rows (s8: 16), the off-diagonal words of each 2×2 are exchanged, and pairs of columns are
    stored one pair after another.
    """
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    group = 32 if per_word == 4 else 16
    row = row // group * group + row % 8 * (group // 8) + row % group // 8
    swap = (column & 1) - (row & 1)  # 1: upper right, -1: lower left
    row, column = row + swap, column - swap
    return np.asarray(column // 2 * rows * 2 + row * 2 + column % 2)
