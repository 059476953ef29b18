"""Divides and products: layouts divided into tiles, and tiles repeated over layouts.

Both are concatenations, compositions and complements:

    logical_divide(A, B)  = A o (B, B*)      B is the tile, its complement B* counts the tiles
    logical_product(A, B) = (A, A* o B)      A is the tile, B is the layout of its copies

The variants differ in the grouping of modes (A with modes M, N, …; tiler with TM, TN):
    logical   ((TM,RM), (TN,RN), …)
    zipped    ((TM,TN), (RM,RN,…))
    tiled     ((TM,TN), RM, RN, …)
    flat      (TM, TN, RM, RN, …)

A tiler is a layout, an int, ``None`` (do not divide the mode), or a tuple of tilers, one for each
mode.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from ...errors import LayoutError
from ..composed_layout import ComposedLayout
from ..int_tuple import (
    IntTuple,
    flatten,
    is_static,
    normalize,
    prefix_product,
    product,
    product_each,
    rank,
    text,
)
from ..layout import Layout, LayoutLeft, make_layout, make_ordered_layout
from ..modes import append
from ..swizzle import Swizzle
from ..symbolic import floordiv, mul
from .composition import by_mode, check_rank, coalesce, composition, on_layout
from .inverse import complement

Tiler = Any
Splitter = Callable[[Layout, Tiler], Layout]


def _per_mode(split: Splitter, layout: Layout, tiler: tuple[Any, ...], what: str) -> Layout:
    check_rank(layout, tiler, what)
    return make_layout(*by_mode(split, layout, tiler), *list(layout)[len(tiler) :])


@on_layout
def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Each mode as (tile, tiles). A size that the tile does not divide is rounded up.
    >>> print(logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)))
    ((2,2),(2,3)):((4,1),(2,8))
    """
    if tiler is None:
        return layout
    if isinstance(tiler, (tuple, list)):
        return _per_mode(logical_divide, layout, tuple(tiler), "logical_divide")
    tile = tiler if isinstance(tiler, Layout) else Layout(tiler)
    tiled = make_layout(tile, complement(tile, coalesce(layout)))
    divided: Layout = composition(layout, tiled)
    return divided


@on_layout
def logical_product(layout: Layout, tiler: Tiler) -> Any:
    """(layout, copies): the layout repeated without overlap in the order of ``tiler``; under a
    swizzle if the tiler is swizzled.
    >>> print(logical_product(Layout((2, 2), (4, 1)), Layout(6)))
    ((2,2),(2,3)):((4,1),(2,8))
    >>> print(logical_product(Layout(4), 3))
    (4,3):(1,4)
    """
    if tiler is None:
        return layout
    if isinstance(tiler, (tuple, list)):
        return _per_mode(logical_product, layout, tuple(tiler), "logical_product")
    if isinstance(tiler, ComposedLayout):
        return _swizzled_product(layout, tiler)
    tile = tiler if isinstance(tiler, Layout) else Layout(tiler)
    room = complement(layout, mul(layout.size(), tile.cosize()))
    if room.is_static() and tile.is_static() and room.size() < tile.cosize():
        room = complement(layout, layout.cosize() * tile.cosize())  # no copies fit in some gaps
    return make_layout(layout, composition(room, tile))


def _swizzled_product(layout: Layout, tile: ComposedLayout) -> Any:
    """The copies swizzled as the tile is: the swizzle of the bits that count them comes last."""
    if not isinstance(tile.outer, Swizzle):
        raise LayoutError(
            f"logical_product: the tiler must be a layout or a swizzled one, got {tile}"
        )
    room = complement(layout, mul(layout.size(), tile.inner.cosize()))
    copies = composition(room, tile)
    if copies.__class__ is Layout:  # the swizzle does nothing
        return make_layout(layout, copies)
    return ComposedLayout(copies.outer, 0, make_layout(layout, copies.inner))


def hier_unzip(split: Splitter, layout: Layout, tiler: Tiler) -> Layout:
    """(all the firsts, all the seconds) of a split, following the tiler's structure."""
    if tiler is None:
        return make_layout(Layout(1, 0), layout)
    if not isinstance(tiler, (tuple, list)):
        return split(layout, tiler)
    check_rank(layout, tuple(tiler), "a tiler")
    pairs = by_mode(lambda a, t: hier_unzip(split, a, t), layout, tiler)
    firsts, seconds = [p[0] for p in pairs], [p[1] for p in pairs]
    return make_layout(make_layout(*firsts), make_layout(*seconds, *list(layout)[len(tiler) :]))


def _opened(mode: Layout) -> list[Layout]:
    """The nested modes of a mode; a mode of rank 1 itself."""
    return list(mode) if len(mode) > 1 else [mode]


@on_layout
def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """((TM,TN,…), (RM,RN,…)): mode 0 is one tile, mode 1 counts the tiles.

    ``zipped_divide(a, t)[0] == composition(a, t)``.
    """
    return hier_unzip(logical_divide, layout, tiler)


@on_layout
def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """((TM,TN,…), RM, RN, …)."""
    zipped = zipped_divide(layout, tiler)
    return make_layout(zipped[0], *_opened(zipped[1]))


@on_layout
def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(TM, TN, …, RM, RN, …)."""
    zipped = zipped_divide(layout, tiler)
    return make_layout(*_opened(zipped[0]), *_opened(zipped[1]))


@on_layout
def zipped_product(layout: Layout, tiler: Tiler) -> Layout:
    """((M,N,…), (TM,TN,…)): mode 0 is the block, mode 1 counts its copies."""
    return hier_unzip(logical_product, layout, tiler)


@on_layout
def tiled_product(layout: Layout, tiler: Tiler) -> Any:
    """((M,N,…), TM, TN, …)."""
    zipped = zipped_product(layout, tiler)
    return zipped.map_layout(lambda z: make_layout(z[0], *_opened(z[1])))


@on_layout
def flat_product(layout: Layout, tiler: Tiler) -> Any:
    """(M, N, …, TM, TN, …)."""
    zipped = zipped_product(layout, tiler)
    return zipped.map_layout(lambda z: make_layout(*_opened(z[0]), *_opened(z[1])))


def _side_by_side(block: Layout, tiler: Layout) -> tuple[Layout, Layout]:
    """Block and copies, extended to the higher of both ranks."""
    tiler = tiler if hasattr(tiler, "map_layout") else Layout(tiler)
    modes = max(len(block), len(tiler))
    block, tiler = (append(side, up_to_rank=modes) for side in (block, tiler))
    both = logical_product(block, tiler)
    if block.shape.__class__ is tiler.shape.__class__ is tuple:
        return both[0], both[1]
    return make_layout(both[0]), make_layout(both[1])


@on_layout
def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """((M,TM), (N,TN), …): blocks are arranged as the elements of ``tiler``.
    >>> print(blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4))))
    ((2,3),(5,4)):((5,10),(1,30))
    """
    blocks, copies = _side_by_side(block, tiler)
    return make_layout(*map(make_layout, blocks, copies))


@on_layout
def raked_product(block: Layout, tiler: Layout) -> Layout:
    """((TM,M), (TN,N), …): blocks are interleaved, neighbours belong to different copies.

    >>> print(raked_product(Layout((3, 4), (4, 1)), Layout((2, 5))))
    ((2,3),(5,4)):((12,4),(24,1))
    """
    blocks, copies = _side_by_side(block, tiler)
    return make_layout(*map(make_layout, copies, blocks))


@on_layout
def tile_to_shape(block: Layout, trg_shape: IntTuple, ord_shape: Any = LayoutLeft) -> Layout:
    """The block repeated to fill a shape; copies run along the modes in the order ``ord_shape``.

    >>> print(tile_to_shape(Layout((2, 2)), (8, 8)))
    ((2,4),(2,4)):((1,4),(2,16))
    """
    trg_shape = normalize(trg_shape, "shape")
    if len(block) > rank(trg_shape):
        raise LayoutError(
            f"tile_to_shape: shape {text(trg_shape)} must have at least the modes of {block}"
        )
    padded = append(block, up_to_rank=rank(trg_shape))
    counts = []
    for i, (want, have) in enumerate(
        zip(product_each(trg_shape), product_each(padded.shape), strict=True)
    ):
        if is_static((want, have)) and want % have:
            raise LayoutError(
                f"tile_to_shape: mode {i}: the block's size {have} does not divide {want}"
            )
        counts.append(floordiv(want, have))
    shape = tuple(counts) if isinstance(trg_shape, tuple) else product(tuple(counts))
    tiled: Layout = blocked_product(padded, make_ordered_layout(shape, ord_shape))
    return tiled


def domain_distribute(a: Any, b: int) -> Layout:
    """The layout that distributes ``b`` elements over the domain of shape ``a``, the first modes
    first: a tiler that divides it, with as many of them as divisibility allows.
    >>> print(domain_distribute((15, 14), 6))
    (3,2):(1,15)
    """
    shapes = flatten(getattr(a, "shape", a))
    taken = []
    for s in shapes:
        taken.append(gcd(s, b))
        b //= taken[-1]
    spread: Layout = coalesce(Layout(tuple(taken), prefix_product(shapes)))
    return spread
