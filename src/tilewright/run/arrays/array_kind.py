"""Records that describe an array's memory and an array library's operations.

``array_view.kind_of`` finds the ``ArrayKind`` of an array by its type. ``torch_arrays`` and
``jax_arrays`` define the kinds of those two libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ... import dtypes

Shape = tuple[int, ...]


class SparseMetadata(NamedTuple):
    """That an array has the stored elements of a 2:4 sparse matrix: half of them along ``axis``, -1
    or -2. ``array``: the metadata.
    """

    axis: int
    array: ArrayView


class ArrayView(NamedTuple):
    """An array's memory. ``strides`` count elements; ``owner`` keeps the memory alive. ``sparse``:
    of a 2:4 sparse matrix, whose stored elements the array has.
    """

    address: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: str
    device: str  # "cpu", "cuda:0"
    readonly: bool
    owner: object
    sparse: SparseMetadata | None = None

    @property
    def matrix_shape(self) -> Shape:
        """The shape of the matrix: of a sparse one, of all its elements."""
        return dense_shape(self.shape, self.sparse.axis if self.sparse else 0)

    @property
    def ordinal(self) -> int | None:
        """The number of the GPU, None on the CPU."""
        return None if self.device == "cpu" else int(self.device[5:])

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return max(1, dtypes.dtype(self.dtype).bits // 8)


def dense_shape(shape: Shape, sparse_axis: int) -> Shape:
    """The shape of a matrix, half of which is stored along ``sparse_axis`` (-1 or -2; 0: all)."""
    sizes = list(shape)
    if sparse_axis:
        sizes[sparse_axis] *= 2
    return tuple(sizes)


class FastArrayOps(NamedTuple):
    """A library's fastest operations, for arrays with the signatures of given arrays on a GPU."""

    fits: Callable[..., bool]
    """Whether distinct arrays have the type, shape, strides, format and device of the given."""
    address: Callable[[Any], int]
    stream: Callable[[], int]
    allocator: Callable[[Shape, str], Callable[[], Any]]
    """Returns a function that allocates row-major arrays of this shape and format on the device."""
    levels: Any = None
    """torch's forward-mode derivatives: ``_current_level`` is negative outside of them. Calls
    within them take the slow path."""


@dataclass(frozen=True)
class ArrayKind:
    """The operations of one library; ``array_view`` documents ``view``, ``empty``, ``stream``.

    ``fast_ops`` are the operations of the fast path; it may be None or return None.
    ``mark_written((array, …))`` tells the library that a launched kernel writes the arrays.
    ``finish(like, result)`` turns what ``empty(like, …)`` returned into an array of the library.
    Libraries with immutable arrays have it; the caller first waits for the kernel.
    ``operators(arrays)``: an object with functions ``matmul`` and ``linear`` that a call with these
    arrays must go through, because the library records or traces it; None if it need not.
    """

    name: str
    view: Callable[[Any], ArrayView]
    empty: Callable[[Any, Shape, str], Any]
    stream: Callable[[Any], int]
    fast_ops: Callable[[list[Any]], FastArrayOps | None] | None = None
    mark_written: Callable[[tuple[Any, ...]], object] | None = None
    finish: Callable[[Any, Any], Any] | None = None
    operators: Callable[[tuple[Any, ...]], Any] | None = None
