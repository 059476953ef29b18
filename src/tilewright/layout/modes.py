"""Operations on the modes of a layout: counting, grouping, selecting, appending.

Each function takes a layout or an object with one (a composed layout, a tensor); those that return
a number also take an int tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import LayoutError
from . import int_tuple
from .int_tuple import IntTuple, is_int, normalize, product
from .layout import Layout, make_layout
from .symbolic import Number


def _with_layout(x: Any) -> Any:
    """``x`` if it is or has a layout; LayoutError for anything else."""
    if not hasattr(x, "map_layout"):
        raise LayoutError(f"expected a layout or a tensor, got {x!r}")
    return x


def _mapped(x: Any, f: Callable[[Layout], Layout]) -> Any:
    return _with_layout(x).map_layout(f)


def _modes(a: Layout, begin: int, end: int, what: str) -> list[Layout]:
    """The modes ``begin`` … ``end - 1``; LayoutError if they don't exist."""
    if not (is_int(begin) and is_int(end) and 0 <= begin < end <= len(a)):
        raise LayoutError(f"{what}: {a} has {len(a)} modes, got begin {begin}, end {end}")
    return list(a)[begin:end]


def size(layout: Any, mode: int | None = None) -> Number:
    """The number of coordinates of a layout, tensor or shape."""
    if hasattr(layout, "map_layout"):
        return layout.size(mode)
    shape = normalize(layout, "shape")
    return product(shape if mode is None else Layout(shape)[mode].shape)


def cosize(layout: Any) -> Number:
    """The number of elements that a layout spans."""
    return _with_layout(layout).cosize()


def coshape(x: Any) -> IntTuple:
    """The cosize of a layout; the spanned shape if its strides are coordinates."""
    layout = getattr(_with_layout(x), "layout", x)
    return layout.coshape() if isinstance(layout, Layout) else layout.cosize()


def rank(x: Any) -> int:
    """The number of modes of a layout, tensor or int tuple."""
    return int_tuple.rank(x.shape if hasattr(x, "map_layout") else x)


def depth(x: Any) -> int:
    """The depth of nested modes of a layout, tensor or int tuple."""
    return int_tuple.depth(x.shape if hasattr(x, "map_layout") else x)


def flatten(t: Any) -> Any:
    """Without nesting: ``((2,2),8):((1,4),16)`` becomes ``(2,2,8):(1,4,16)``."""
    if not hasattr(t, "map_layout"):
        return int_tuple.flatten(t)

    def flat(a: Layout) -> Layout:
        if a.shape.__class__ is not tuple:
            return a
        return Layout.of(int_tuple.flatten(a.shape), int_tuple.flatten(a.stride))

    return _mapped(t, flat)


def group(x: Any, begin: int, end: int) -> Any:
    """The modes ``begin`` … ``end - 1`` as one: ``(2,3,5)`` becomes ``(2,(3,5))`` for 1, 3."""

    def grouped(a: Layout) -> Layout:
        together = make_layout(*_modes(a, begin, end, "group"))
        modes = list(a)
        return make_layout(*modes[:begin], together, *modes[end:])

    return _mapped(x, grouped)


group_modes = group


def take(x: Any, begin: int, end: int) -> Any:
    """The modes ``begin`` … ``end - 1``."""
    return _mapped(x, lambda a: make_layout(*_modes(a, begin, end, "take")))


def select(x: Any, mode: tuple[int, ...]) -> Any:
    """The given modes in the given order: ``select(layout, (1, 0))`` is the transpose."""
    if not isinstance(mode, (tuple, list)):
        raise LayoutError(f"select: expected a tuple of modes such as (1, 0), got {mode!r}")
    return _mapped(x, lambda a: make_layout(*(a[i] for i in mode)))


def append(x: Any, elem: Layout | None = None, up_to_rank: int | None = None) -> Any:
    """Append ``elem`` (default ``1:0``) as the last mode, repeated up to the given rank."""
    last = Layout(1, 0) if elem is None else elem

    def appended(a: Layout) -> Layout:
        count = 1 if up_to_rank is None else up_to_rank - len(a)
        return make_layout(*a, *[last] * count) if count > 0 else a

    return _mapped(x, appended)


def prepend(x: Any, elem: Layout | None = None, up_to_rank: int | None = None) -> Any:
    """Prepend ``elem`` (default ``1:0``) as the first mode, repeated up to the given rank."""
    first = Layout(1, 0) if elem is None else elem

    def prepended(a: Layout) -> Layout:
        count = 1 if up_to_rank is None else up_to_rank - len(a)
        return make_layout(*[first] * count, *a) if count > 0 else a

    return _mapped(x, prepended)
