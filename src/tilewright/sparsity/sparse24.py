"""``Sparse24``: a 2:4 sparse matrix, its stored elements and the metadata with their positions.

Of each four neighbours of a row (of tf32: two) two (one) are stored. A row is a row of weights of a
linear layer, so the matrix is N×K; ``.T`` is the K×N matrix that ``matmul`` multiplies by. The
metadata are in the order in which kernel ``tma`` reads them (``mma.metadata_blocks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import DeviceError, DtypeError, MetadataError, ProblemError
from ..mma.array_inputs import is_integer
from ..mma.metadata_blocks import (
    BLOCK_CHUNKS,
    BLOCK_ROWS,
    BLOCK_WORDS,
    FILLER,
    block_grid,
    chunk_size,
    positions_table,
    unpack_metadata,
)
from ..quantization.array_access import Array, codes, info, new_array, sizes
from ..quantization.matrix_operators import MatrixOperators
from ..quantization.scaled import required, typed
from .sparse_block import SparseBlock

TYPES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
METADATA_TYPE = "s32"


def sparse_type(name: str, given: str) -> str:
    """The sparse type of dense elements of the type ``given``: f32 is tf32. Raises DtypeError for
    types that are not compressed; ``name``: of the argument.
    """
    type_ = {"f32": "tf32"}.get(given, given)
    if type_ not in TYPES:
        allowed = ", ".join({"tf32": "f32"}.get(type_, type_) for type_ in TYPES)
        raise DtypeError(f"{name} must be one of {allowed}, got {given}")
    return type_


def chunk_place(where: Iterable[Any], size: int) -> str:
    """Where the chunk (row, number in the row), or (matrix of a stack, row, number), is."""
    *lead, row, chunk = map(int, where)
    of_stack = "".join(f"matrix {number}, " for number in lead)
    return f"{of_stack}row {row}, columns {chunk * size} to {(chunk + 1) * size - 1}"


@dataclass(frozen=True, eq=False, repr=False)
class Sparse24(MatrixOperators):
    """A 2:4 sparse matrix M×K (or a stack of such matrices); of tf32 1:2.

    ``values``: the stored elements (M, K / 2), row-major, of f16, bf16, f32 (for tf32), e4m3, e5m2,
    s8 or u8. ``metadata``: s32 words (blocks of 64 rows, blocks of 64 along K, 128), in the order
    of ``mma.metadata_blocks``; the number of blocks along K is rounded up to a multiple of 4.
    ``type``: the elements' type; None is that of ``values``. ``kept``: the share of the dense
    matrix' magnitude that pruning has kept, if it is known.

    >>> compress_24(w, prune="magnitude")
    Sparse24(f16 4096×14336)

    Raises ProblemError for shapes that do not fit, DtypeError for other types, DeviceError for
    arrays on different devices, and MetadataError for metadata that are invalid. Arrays on a GPU
    are not read, and so not checked: invalid metadata there choose unspecified elements of the
    other matrix, and never an address.
    """

    values: Any
    metadata: Any
    type: str | None = None
    transposed: bool = False
    kept: float | None = None

    def __post_init__(self) -> None:
        values, metadata = info("values", self.values), info("metadata", self.metadata)
        default = {"f32": "tf32"}.get(values.dtype, values.dtype)
        type_ = default if self.type is None else self.type
        if type_ not in TYPES:
            raise DtypeError(f"the elements must be one of {', '.join(TYPES)}, got {type_!r:.60}")
        object.__setattr__(self, "type", type_)
        if type_ != default:
            stored = {"tf32": "f32"}.get(type_, type_)
            raise DtypeError(f"values of {type_} must be {stored}, got {values.dtype}")
        if metadata.dtype != METADATA_TYPE:
            raise DtypeError(f"metadata must be {METADATA_TYPE}, got {metadata.dtype}")
        chunk = self._stored_per_chunk
        if len(values.shape) not in (2, 3) or values.shape[-1] % chunk:
            whole = f"(M, K / 2) with whole chunks of {chunk}"
            raise ProblemError(f"values must have shape {whole}, got {sizes(values.shape)}")
        *lead, rows, columns = self._rows_and_depth
        expected = (*lead, *block_grid(type_, rows, columns), BLOCK_WORDS)
        if metadata.shape != expected:
            raise ProblemError(
                f"metadata of {type_} {sizes((*lead, rows, columns))} must have shape "
                f"{sizes(expected)}, got {sizes(metadata.shape)}"
            )
        if metadata.device != values.device:
            raise DeviceError(
                f"metadata must be on {values.device}, where values is, got {metadata.device}"
            )
        if values.device == "cpu":
            self._check_metadata()

    @property
    def _format(self) -> str:
        assert self.type is not None
        return self.type

    @property
    def _stored_per_chunk(self) -> int:
        return chunk_size(self._format) // 2

    @property
    def _rows_and_depth(self) -> tuple[int, ...]:
        """The shape of the matrix as it is stored: (…, M, K)."""
        *lead, length = self.values.shape
        return (*lead, 2 * length)

    def _check_metadata(self) -> None:
        """Raise MetadataError for the first chunk of a row whose metadata are invalid."""
        valid = positions_table(self._format)[1]
        both = valid[np.arange(256) & 15] & valid[np.arange(256) >> 4]
        if both[codes("metadata", self.metadata).view(np.uint8)].all():
            return
        chunks = self.metadata_chunks()
        wrong = np.argwhere(~valid[chunks])
        if not len(wrong):
            return  # beyond the matrix: no element is multiplied there
        size = chunk_size(self._format)
        allowed = ", ".join(f"{code:#06b}" for code in np.flatnonzero(valid))
        raise MetadataError(
            f"metadata of {chunk_place(wrong[0], size)} must be one of {allowed}, got "
            f"{int(chunks[tuple(wrong[0])]):#06b}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """(…, M, K), or (…, K, M) if transposed."""
        *lead, rows, depth = self._rows_and_depth
        return (*lead, depth, rows) if self.transposed else (*lead, rows, depth)

    @property
    def T(self) -> Sparse24:
        """The transposed matrix (or matrices), of the same memory."""
        return replace(self, transposed=not self.transposed)

    def swapaxes(self, first: int, second: int) -> Sparse24:
        """``T``, if these are the last two axes. Raises ProblemError for others."""
        last = {len(self.shape) - 1, -1}, {len(self.shape) - 2, -2}
        if not any(first in a and second in b for a, b in (last, last[::-1])):
            raise ProblemError(f"the axes must be the last two, got {first} and {second}")
        return self.T

    @property
    def nbytes(self) -> int:
        """Bytes of the values and the metadata."""
        size = {"tf32": 4, "f16": 2, "bf16": 2}.get(self._format, 1)
        count = int(np.prod(self.values.shape)) * size
        return count + int(np.prod(self.metadata.shape)) * 4

    def __repr__(self) -> str:
        device = info("values", self.values).device
        where = "" if device == "cpu" else f" on {device}"
        return f"Sparse24({self.type} {sizes(self.shape)}){where}"

    def _dense(self) -> Any:
        return self.decompress()

    def metadata_chunks(self) -> Array:
        """The metadata (…, M, K / 4) of each chunk of a row (tf32: K / 2), 4 bits each. Raises
        DeviceError for arrays on a GPU.
        """
        *_, rows, depth = self._rows_and_depth
        return unpack_metadata(self._format, codes("metadata", self.metadata), rows, depth)

    def block(self, row: int = 0, k: int = 0) -> SparseBlock:
        """A block of 64 rows by 16 chunks of the matrix (of a stack: of the first one): the one
        with this number along M and along K, to be drawn. Raises ProblemError, DeviceError.
        """
        chunks = self.metadata_chunks()
        chunks = chunks.reshape(-1, *chunks.shape[-2:])[:1]
        down, across = block_grid(self._format, *self._rows_and_depth[-2:])
        numbered = is_integer(row) and is_integer(k) and 0 <= row < down and 0 <= k < across
        if not len(chunks) or not numbered:
            raise ProblemError(f"the block must be one of {down}×{across}, got {row}, {k}")
        full = np.full((down * BLOCK_ROWS, across * BLOCK_CHUNKS), FILLER, np.uint8)
        full[: chunks.shape[1], : chunks.shape[2]] = chunks[0]
        rows, columns = (
            slice(i * n, (i + 1) * n) for i, n in ((row, BLOCK_ROWS), (k, BLOCK_CHUNKS))
        )
        return SparseBlock(self._format, full[rows, columns])

    def decompress(self) -> Any:
        """The dense matrix, an array of the library of ``values``: f32 of tf32. Raises DeviceError
        for arrays on a GPU.
        """
        stored, type_ = codes("values", self.values), info("values", self.values).dtype
        size = chunk_size(self._format)
        positions = positions_table(self._format)[0][self.metadata_chunks()]
        chunks = np.zeros((*positions.shape[:-1], size), stored.dtype)
        np.put_along_axis(chunks, positions, stored.reshape(positions.shape), -1)
        dense = chunks.reshape(self._rows_and_depth)
        return new_array(self.values, dense.swapaxes(-1, -2) if self.transposed else dense, type_)

    def to_arrays(self) -> dict[str, Any]:
        """NumPy arrays of integers and text, for ``numpy.savez`` and the like. Raises DeviceError
        for arrays on a GPU.
        """
        return {
            "values": codes("values", self.values),
            "metadata": codes("metadata", self.metadata),
            "type": np.array(self.type),
            "transposed": np.array(self.transposed),
            "kept": np.array(np.nan if self.kept is None else self.kept),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], like: Any = None) -> Sparse24:
        """The inverse of ``to_arrays``: NumPy arrays in the same memory, or copies in the library
        of the array ``like``. Raises ProblemError if an array is missing.
        """
        given = required(arrays, ("values", "metadata", "type", "transposed"))
        type_ = str(given["type"])
        values = typed(given["values"], {"tf32": "f32"}.get(type_, type_), like)
        metadata = typed(given["metadata"], METADATA_TYPE, like)
        kept = float(given["kept"]) if "kept" in given else np.nan
        share = None if np.isnan(kept) else kept
        return cls(values, metadata, type_, bool(given["transposed"]), share)
