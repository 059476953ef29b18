"""``SparsePacked``: 2:4 sparse weights of 4 to 8 bits, of which a kernel converts the stored ones.

Two of each four neighbours of a row are stored, with the metadata of a ``Sparse24`` matrix of f16:
the tensor core multiplies the converted elements by wgmma.sp, with A in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DeviceError, MetadataError, ProblemError
from ..mma.metadata_blocks import (
    BLOCK_WORDS,
    block_grid,
    chunk_size,
    positions_table,
    unpack_metadata,
)
from .array_access import Array, codes, info, rounded_array, sizes
from .host_arrays import through_host
from .packed import Packed, check_array

METADATA_FORMAT = "f16"  # its metadata are those of bf16, too
CHUNK = chunk_size(METADATA_FORMAT)


@dataclass(frozen=True, eq=False, repr=False)
class SparsePacked(Packed):
    """Weights N×K (or a stack of such matrices), 2:4 sparse along K and packed.

    ``data``: the stored elements (N, K / 2 · bits / 8). ``metadata``: s32 words of these, as those
    of a ``Sparse24`` matrix of f16. ``scales``, ``zeros`` and ``group`` are those of the dense
    matrix: elements that are not stored are 0. There is no ``order``.

    >>> compress_24(quantize_weight(w, "u4", 128), prune="magnitude")
    SparsePacked(u4 4096×14336, f32 scales per 128, zeros 8)

    Raises what ``Packed`` raises, ProblemError for metadata of another shape, MetadataError for
    metadata on the CPU that are invalid.
    """

    array_names = (*Packed.array_names, "metadata")

    metadata: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        *lead, rows, depth = self._rows_and_depth
        if depth % CHUNK or self._group % CHUNK:
            raise ProblemError(
                f"K and the group of sparse weights must be multiples of {CHUNK}, got K = {depth}, "
                f"group {self._group}"
            )
        if self.order is not None:
            raise ProblemError("order must be None for sparse weights, got a permutation of K")
        expected = (*lead, *block_grid(METADATA_FORMAT, rows, depth), BLOCK_WORDS)
        check_array("metadata", self.metadata, ("s32",), expected)
        if info("metadata", self.metadata).device == "cpu":
            self._check_metadata()

    @property
    def _rows_and_depth(self) -> tuple[int, ...]:
        *lead, stored = super()._rows_and_depth
        return (*lead, 2 * stored)

    def _check_metadata(self) -> None:
        wrong = np.argwhere(~positions_table(METADATA_FORMAT)[1][self.metadata_chunks()])
        if len(wrong):
            *_, row, chunk = wrong[0].tolist()
            raise MetadataError(f"metadata of row {row}, chunk {chunk} of {sizes(self.shape)} must "
                                "be positions of two different elements")  # fmt: skip

    @property
    def stored(self) -> Packed:
        """The stored elements as packed weights N×(K / 2), of the same memory."""
        return Packed(
            self.data, self.scales, self.type, self._group // 2, self.zeros,
            global_scale=self.global_scale,
        )  # fmt: skip

    def metadata_chunks(self) -> Array:
        """The metadata (…, N, K / 4) of each chunk of a row, 4 bits each. Raises DeviceError for
        arrays on a GPU.
        """
        *_, rows, depth = self._rows_and_depth
        return unpack_metadata(METADATA_FORMAT, codes("metadata", self.metadata), rows, depth)

    def element_codes(self) -> Array:
        """The bits of the stored elements (…, N, K / 2), unpacked."""
        return self.stored.element_codes()

    def dequantize(self, dtype: str = "f32", *, device: Any = None) -> Any:
        """The dense matrix in f32, f16 or bf16, with ``shape``, an array of the library of
        ``scales``: stored elements as ``Packed`` has them, and zeros. There is no kernel: arrays on
        a GPU are computed on the CPU. Raises DeviceError if ``device`` is given.
        """
        if device not in (None, "cpu"):
            raise DeviceError(
                f"sparse weights are dequantized on the CPU, got device {device!r:.60}"
            )
        return _dequantized(self, dtype)

    def _rounded(self, dtype: str) -> Any:
        """``dequantize`` of arrays on the CPU."""
        values = self.stored._products()
        positions = positions_table(METADATA_FORMAT)[0][self.metadata_chunks()]
        chunks = np.zeros((*positions.shape[:-1], CHUNK), np.float32)
        np.put_along_axis(chunks, positions, values.reshape(positions.shape), -1)
        dense = chunks.reshape(self._rows_and_depth)
        dense = dense.swapaxes(-1, -2) if self.transposed else dense
        return rounded_array(self.scales, dense, dtype)

    def __repr__(self) -> str:
        return f"Sparse{super().__repr__()}"


@through_host
def _dequantized(weights: SparsePacked, dtype: str) -> Any:
    return weights._rounded(dtype)
