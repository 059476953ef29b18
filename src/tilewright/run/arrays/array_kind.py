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


class ArrayView(NamedTuple):
    """An array's memory. ``strides`` count elements; ``owner`` keeps the memory alive."""

    address: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: str
    device: str  # "cpu", "cuda:0"
    readonly: bool
    owner: object

    @property
    def ordinal(self) -> int | None:
        """The number of the GPU, None on the CPU."""
        return None if self.device == "cpu" else int(self.device[5:])

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return max(1, dtypes.dtype(self.dtype).bits // 8)


class FastArrayOps(NamedTuple):
    """A library's short ways, for arrays that are like certain ones on a GPU."""

    fits: Callable[..., bool]
    """Whether others, no two the same, are so in turn: type, shape, strides, format, device."""
    address: Callable[[Any], int]
    stream: Callable[[], int]
    allocator: Callable[[Shape, str], Callable[[], Any]]
    """What makes row-major arrays of this shape and format there."""
    levels: Any = None
    """Where the library has forward-mode derivatives: its ``_current_level`` is negative outside of
    them, and calls inside of them are not repeated."""


@dataclass(frozen=True)
class ArrayKind:
    """What one library's arrays can do: see the functions of ``arrays`` of the same names.
    ``fast_ops`` is for calls that are repeated; it may be None, and so may its result.

    ``mark_written((array, …))`` tells the library that a kernel has been started that writes the
    arrays. ``finish(like, made)`` makes an array of the library of what ``empty(like, …)`` gave,
    for a library whose own arrays can't be written and which does not know the stream: the caller
    waits for the kernel first.
    """

    name: str
    view: Callable[[Any], ArrayView]
    empty: Callable[[Any, Shape, str], Any]
    stream: Callable[[Any], int]
    fast_ops: Callable[[list[Any]], FastArrayOps | None] | None = None
    mark_written: Callable[[tuple[Any, ...]], object] | None = None
    finish: Callable[[Any, Any], Any] | None = None
