"""``Scaled``: a matrix of 8-bit elements and the scales of its blocks, as one value.

    element (i, j)  =  (data[i, j] − zeros[i / rows, j / columns]) · scales[i / rows, j / columns]

The arrays may be of any library, with any strides; they are kept as they are, without copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..errors import DeviceError, DtypeError, ProblemError
from ..lazy_imports import deferred, provided
from . import scale_blocks
from .array_access import Array, ArrayInfo, codes, info, new_array, numbers, rounded_array, sizes
from .matrix_operators import MatrixOperators
from .scale_blocks import Block

if TYPE_CHECKING:
    from . import dequantize_kernel
else:
    dequantize_kernel = deferred(".dequantize_kernel", __package__)

DATA_TYPES = ("e4m3", "e5m2", "s8", "u8")
SCALE_TYPES = ("f32", "bf16", "ue8m0")
ZERO_TYPES = ("s8", "u8", "s32")


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(MatrixOperators):
    """A matrix R×C, or a stack of matrices, of 8-bit elements with scales.

    ``data``: e4m3, e5m2, s8 or u8, or a ``Sparse24`` matrix of them. ``scales``: f32, bf16 or ue8m0
    (powers of two), one for each block, an array of ⌈R / rows⌉ × ⌈C / columns⌉ (of one element for
    a whole tensor; one dimension suffices for rows or columns). ``block``: "tensor", "row" (or
    "token"), "column", a group size along the last axis, or (rows, columns); None takes it from the
    scales' shape. Afterwards ``block`` is (rows, columns). ``zeros``: None, or zero points of s8
    and u8 arrays, s8, u8 or s32, as many as there are scales. The sums along K that a product with
    zero points needs of ``b`` are kept here in calls with ``static="b"``.

    Scales may be anything: zero, negative, an infinity, NaN. The result is what the arithmetic of
    ``dequantize`` gives.

    >>> Scaled(data, scales, block=(1, 128))
    Scaled(e4m3 4096×7168, f32 scales per 1×128)

    Raises ProblemError for shapes that do not fit, DtypeError for other types, DeviceError for
    arrays on different devices.
    """

    data: Any
    scales: Any
    block: Any = None
    zeros: Any = None
    sums: dict[int, Any] = field(default_factory=dict, init=False)  # along an axis of ``data``
    transposed: bool = field(default=False, init=False)  # whether ``sums`` are of the transpose

    def __post_init__(self) -> None:
        data, scales = info("data", self.data), info("scales", self.scales)
        _check_type("data", data.dtype, DATA_TYPES)
        _check_type("scales", scales.dtype, SCALE_TYPES)
        if len(data.shape) not in (2, 3):
            raise ProblemError(f"data must be 2-D, or 3-D for a stack, got shape {data.shape}")
        if scales.device != data.device:
            raise DeviceError(
                f"scales must be on {data.device}, where data is, got {scales.device}"
            )
        block = self._block(data.shape, scales.shape)
        object.__setattr__(self, "block", block)
        expected = scale_blocks.grid_shape(data.shape, block)
        object.__setattr__(self, "scales", self._grid("scales", expected))
        if self.zeros is not None:
            self._check_zeros(data)
            object.__setattr__(self, "zeros", self._grid("zeros", expected))

    def _check_zeros(self, data: ArrayInfo) -> None:
        zeros = info("zeros", self.zeros)
        if self.is_sparse:
            raise ProblemError("data with zeros must be an array, got a sparse matrix")
        _check_type("data with zeros", data.dtype, ("s8", "u8"))
        _check_type("zeros", zeros.dtype, ZERO_TYPES)
        if zeros.device != data.device:
            raise DeviceError(f"zeros must be on {data.device}, where data is, got {zeros.device}")

    def _grid(self, name: str, expected: tuple[int, ...]) -> Any:
        """Scales or zero points with this shape, unless there is one of them."""
        array = getattr(self, name)
        shape = tuple(array.shape)
        if prod(shape) == 1 == prod(expected) or shape == expected:
            return array
        per_row_or_column = len(shape) == 1 and 1 in expected[-2:]
        if not per_row_or_column or prod(shape) != prod(expected):
            raise ProblemError(
                f"{name} must have shape {sizes(expected)} for data of {sizes(self.shape)} in "
                f"blocks of {sizes(self.block)}, got {sizes(shape)}"
            )
        return array.reshape(expected)

    def _block(self, data: tuple[int, ...], scales: tuple[int, ...]) -> Block:
        if self.block is not None:
            return scale_blocks.block_shape(self.block, data)
        if prod(scales) == 1:
            return scale_blocks.block_shape("tensor", data)
        return scale_blocks.inferred_block(data, scales)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ``data``."""
        return tuple(self.data.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions of ``data``."""
        return len(self.shape)

    @property
    def type(self) -> str:
        """The format of the elements: ``"e4m3"``."""
        return info("data", self.data).dtype

    @property
    def is_sparse(self) -> bool:
        """Whether ``data`` is a 2:4 sparse matrix."""
        return hasattr(self.data, "decompress")

    @property
    def granularity(self) -> str:
        """What a scale applies to: ``tensor``, ``row``, ``column`` or a block, ``1×128``."""
        return scale_blocks.block_text(self.block, self.shape)

    @property
    def T(self) -> Scaled:
        """The transposed matrix (or matrices), of the same memory."""
        scales, zeros = (
            x if x is None or len(x.shape) < 2 else x.swapaxes(-1, -2)
            for x in (self.scales, self.zeros)
        )
        made = Scaled(self.data.swapaxes(-1, -2), scales, self.block[::-1], zeros)
        object.__setattr__(made, "sums", self.sums)
        object.__setattr__(made, "transposed", not self.transposed)
        return made

    def reshape(self, *shape: Any) -> Scaled:
        """The same value if ``shape`` is its shape; the rows of a stack with blocks of one row as a
        matrix. Raises ProblemError otherwise: blocks would change.
        """
        requested = tuple(shape[0]) if len(shape) == 1 and np.ndim(shape[0]) else shape
        rows, columns = prod(self.shape[:-1]), self.shape[-1]
        if requested != self.shape:
            of_rows = self.ndim == 3 and self.block[0] == 1 and not self.is_sparse
            if of_rows and requested in ((rows, columns), (-1, columns)):
                grids = (x if x is None else x.reshape(rows, -1) for x in (self.scales, self.zeros))
                scales, zeros = grids
                return Scaled(self.data.reshape(rows, columns), scales, self.block, zeros)
            raise ProblemError(
                f"a Scaled must keep its shape {sizes(self.shape)}, got {sizes(requested)}",
                hint="reshape the array before it is quantized",
            )
        return self

    def __repr__(self) -> str:
        data, scales = info("data", self.data), info("scales", self.scales)
        where = "" if data.device == "cpu" else f" on {data.device}"
        sparse = "sparse " if self.is_sparse else ""
        unit = self.granularity
        per = f"{scales.dtype} scale{'' if unit == 'tensor' else 's'} per {unit}"
        zeros = "" if self.zeros is None else ", zero points"
        return f"Scaled({sparse}{data}, {per}{zeros}){where}"

    def dequantize(self, dtype: str = "f32", *, device: Any = None) -> Any:
        """The matrix in f32, f16 or bf16, an array of the library of ``data``.

        An element is f32(data − zero point) · f32(scale), exact conversions and one product rounded
        to nearest even, then rounded to ``dtype``. Arrays on a GPU are dequantized by a kernel,
        arrays on the CPU by NumPy, or by the kernel on ``device`` (``"vm"``, ``"cuda"``).

        Raises DtypeError for other types, and ProblemError for arrays that the kernel does not
        read: data that is sparse, not contiguous, or has rows of no multiple of 8 elements.
        """
        given = info("data", self.data)
        if device is not None or given.device != "cpu":
            if self.is_sparse:
                raise ProblemError("data must be dense to be dequantized by a kernel, got sparse")
            if self._is_column_major:
                return self.T.dequantize(dtype, device=device).swapaxes(-1, -2)
            return dequantize_kernel.launch_scaled(self, given, dtype, device)
        return rounded_array(self.data, self._products(), dtype)

    @property
    def _is_column_major(self) -> bool:
        """Whether the columns of ``data`` are contiguous, and the rows are not."""
        row, column = provided("arrays").view(self.data).strides[-2:]
        return bool(row == 1 < column)

    def _products(self) -> Array:
        """The elements in f32. Raises DeviceError for arrays on a GPU."""
        values = numbers("data", self.data.decompress() if self.is_sparse else self.data)
        if self.zeros is not None:
            zeros = numbers("zeros", self.zeros).astype(np.int64)
            values = values.astype(np.int64) - scale_blocks.expand(zeros, self.shape, self.block)
        values = values.astype(np.float32)
        scales = numbers("scales", self.scales).astype(np.float32)
        with np.errstate(all="ignore"):
            return np.asarray(values * scale_blocks.expand(scales, self.shape, self.block))

    def _dense(self) -> Any:
        return self.dequantize()

    def to_arrays(self) -> dict[str, Any]:
        """NumPy arrays of integers and text, for ``numpy.savez`` and the like: the bits of ``data``
        and ``scales``, their formats, and the block. Raises DeviceError for arrays on a GPU, and
        ProblemError for sparse data.
        """
        if self.is_sparse:
            raise ProblemError(
                "data must be an array to be saved, got a sparse matrix",
                hint="save data.to_arrays(), scales and block",
            )
        names = ("data", "scales") if self.zeros is None else ("data", "scales", "zeros")
        given = {name: getattr(self, name) for name in names}
        arrays = {name: codes(name, array) for name, array in given.items()}
        types = np.array([info(name, array).dtype for name, array in given.items()])
        return {**arrays, "types": types, "block": np.array(self.block)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], like: Any = None) -> Scaled:
        """The inverse of ``to_arrays``: NumPy arrays in the same memory, or copies in the library
        of the array ``like``, where it is. Raises ProblemError if an array is missing.
        """
        given = required(arrays, ("data", "scales", "types", "block"))
        types = [str(type_) for type_ in np.ravel(given["types"])]
        if len(types) not in (2, 3):
            raise ProblemError(f"types must be those of data, scales, and zeros, got {types!r:.60}")
        names = ("data", "scales", "zeros")[: len(types)]
        given = required(arrays, names)
        data, scales, *zeros = (
            typed(given[name], type_, like) for name, type_ in zip(names, types, strict=True)
        )
        block = tuple(int(size) for size in arrays["block"])
        return cls(data, scales, block, *zeros)


def _check_type(name: str, dtype: str, allowed: tuple[str, ...]) -> None:
    if dtype not in allowed:
        raise DtypeError(f"{name} must be one of {', '.join(allowed)}, got {dtype}")


def required(arrays: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    """``arrays`` if it has these names. Raises ProblemError for a missing one."""
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ProblemError(f"the arrays must include {missing[0]}, got {', '.join(arrays)}")
    return arrays


def typed(bits: Any, dtype: str, like: Any = None) -> Any:
    """Bits as an array of the format: NumPy's in the same memory, or a copy in the library of
    ``like``.
    """
    if like is not None and not isinstance(like, np.ndarray):
        return new_array(like, np.asarray(bits), dtype)
    return np.asarray(bits).view(dtypes.dtype(dtype).numpy)
