"""Stage 2 of a call, layout: how each matrix is stored, and how a kernel can read it.

(m,k):(k,1)   rows are contiguous         (m,k):(1,m)   columns are contiguous
(1,k):(s,1)   one row: any row stride     (m,k):(2k,2)  neither: the matrix must be copied first
"""

from __future__ import annotations

from typing import NamedTuple

from ... import dtypes
from ...gemm.kernel_launch import INDEX_ADDRESSES
from ..arrays.array_kind import dense_shape
from ..arrays.array_view import ArrayView

MAX_ALIGN = 16  # bytes of the widest copy
L2_LINE = 128
NO_GROUPS = (None,) * (1 + len(INDEX_ADDRESSES))


class OperandViews(NamedTuple):
    """The arrays of a call. ``c`` is None if the call does not read C; ``b2`` is the second matrix
    of a pair, ``scales`` are the block scales of A and B, ``groups`` has the sizes of groups, and
    the indices of rows that are gathered and scattered, and the places of matrices of a list.
    """

    a: ArrayView
    b: ArrayView
    c: ArrayView | None
    d: ArrayView
    b2: ArrayView | None = None
    scales: tuple[ArrayView, ArrayView, ArrayView | None] | None = None
    groups: tuple[ArrayView | None, ...] | None = None

    @property
    def metadata(self) -> tuple[ArrayView | None, ArrayView | None]:
        """The metadata of a sparse A or B, and of the second matrix of a sparse pair."""
        first, second = self.a.sparse or self.b.sparse, self.b2 and self.b2.sparse
        return first.array if first else None, second.array if second else None


class MatrixLayout(NamedTuple):
    """A layout that a kernel can read.

    ``row_major``: rows are contiguous, else columns. ``leading_dim`` is the leading dimension and
    ``batch_stride`` the distance of two matrices of a stack, both in elements. ``align`` (16 to 1)
    divides the address and both distances in bytes.
    """

    row_major: bool
    leading_dim: int
    align: int
    batch_stride: int = 0


class ArraySignature(NamedTuple):
    """What decides the kernel about an array. ``misalignment`` is its address modulo 16;
    ``sparse_axis``: -1 or -2 if it has half of the elements of a sparse matrix along this axis.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    misalignment: int
    sparse_axis: int = 0

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The shape of the matrix, or of the stack: of a sparse one, of all its elements."""
        return dense_shape(self.shape, self.sparse_axis)

    @property
    def itemsize(self) -> int:
        return max(1, dtypes.dtype(self.dtype).bits // 8)

    @property
    def is_stack(self) -> bool:
        """Whether these are several matrices, not one that repeats along a stride of 0."""
        return len(self.shape) == 3 and (self.shape[0] <= 1 or self.strides[0] != 0)


class OperandLayout(NamedTuple):
    """The layout in which a kernel reads a matrix or a stack of matrices.

    ``copied``: the matrix is first copied to this layout. ``leading_dim`` and ``batch_stride``
    count elements. ``k_repeats``: how many times the K extent is stored in a row (3 for 3xTF32).
    """

    row_major: bool
    leading_dim: int
    copied: bool
    batch_stride: int = 0
    k_repeats: int = 1

    def major_extents(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Number and length of the contiguous rows (columns) of a matrix of this shape."""
        return (shape[-2], shape[-1]) if self.row_major else (shape[-1], shape[-2])

    def elements(self, shape: tuple[int, ...]) -> int:
        """Number of elements from the first to the last one of the stack, padding included."""
        count, length = self.major_extents(shape)
        stack = shape[0] if len(shape) == 3 else 1
        last = (stack - 1) * self.batch_stride + (count - 1) * self.leading_dim
        return max(last + length * self.k_repeats, 0)

    def stored(self, view: ArrayView) -> ArrayView:
        """The array without the repetitions of a matrix that is stored once."""
        if len(view.shape) < 3 or self.batch_stride:
            return view
        return view._replace(shape=view.shape[1:], strides=view.strides[1:])

    @property
    def strides(self) -> tuple[int, int]:
        """The strides of one matrix, in elements."""
        return (self.leading_dim, 1) if self.row_major else (1, self.leading_dim)


def signature_of(view: ArrayView) -> ArraySignature:
    """The signature of an array."""
    misalignment, axis = view.address % MAX_ALIGN, view.sparse.axis if view.sparse else 0
    return ArraySignature(view.shape, view.strides, view.dtype, view.device, misalignment, axis)


def readable_layout(s: ArraySignature) -> MatrixLayout | None:
    """The better aligned layout of a matrix, row-major if equal; None if it must be copied."""
    candidates = [layout_with_order(s, row_major) for row_major in (True, False)]
    return max(filter(None, candidates), key=lambda p: p.align, default=None)


def layout_with_order(s: ArraySignature, row_major: bool) -> MatrixLayout | None:
    """The row-major (else column-major) layout of a matrix; None if it must be copied."""
    rows, length = s.shape[-2:] if row_major else s.shape[:-3:-1]
    leading_dim, step = s.strides[-2:] if row_major else s.strides[:-3:-1]
    if s.misalignment % s.itemsize:
        return None
    if rows <= 1 or length == 0:  # the stride between rows is never used
        leading_dim = padded_leading_dim(length, s.itemsize, MAX_ALIGN)
    if (length > 1 and step != 1) or leading_dim < 0:
        return None
    batch_stride = s.strides[0] if len(s.shape) == 3 and s.shape[0] > 1 else 0
    if batch_stride < 0:
        return None
    align = _divisor(s.misalignment | (leading_dim | batch_stride) * s.itemsize)
    return MatrixLayout(row_major, leading_dim, align, batch_stride)


def copy_layout(shape: tuple[int, ...], itemsize: int, row_major: bool = True) -> MatrixLayout:
    """The layout of a fresh copy, whose rows (columns) start at multiples of 128 bytes."""
    rows, length = shape[-2:] if row_major else shape[:-3:-1]
    leading_dim = padded_leading_dim(length, itemsize, MAX_ALIGN)
    return MatrixLayout(
        row_major, leading_dim, MAX_ALIGN, leading_dim * rows if len(shape) == 3 else 0
    )


def padded_leading_dim(length: int, itemsize: int, align: int) -> int:
    """The least leading dimension for rows of this length that keeps the alignment.

    With 16-byte alignment each row starts at an L2 cache line, which makes tensor copies faster.
    """
    step = max((L2_LINE if align == MAX_ALIGN else align) // itemsize, 1)
    return max(-(-length // step), 1) * step


def _divisor(number: int) -> int:
    """The largest power of two, at most 16, that divides the number."""
    return (number | MAX_ALIGN) & -(number | MAX_ALIGN)


def contiguous_signature(shape: tuple[int, ...], dtype: str, device: str) -> ArraySignature:
    """The signature of a new array: row-major, without padding, aligned."""
    rows, columns = shape[-2:]
    strides: tuple[int, ...] = (max(columns, 1), 1)
    if len(shape) == 3:
        strides = (max(rows, 1) * strides[0], *strides)
    return ArraySignature(shape, strides, dtype, device, 0)
