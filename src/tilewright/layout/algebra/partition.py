"""Partitions: the part of a tensor that a CTA or a thread takes.

``zipped_divide`` makes ((the tile), (the tiles)); a tile is what a coordinate among the tiles
leaves, a thread's elements are what a coordinate within the tile leaves of all of them.
"""

from __future__ import annotations

from typing import Any

from ...errors import LayoutError
from ..int_tuple import IntTuple, dice, product_each, rank, text
from ..layout import Layout, make_layout
from ..symbolic import Number
from .tiling import zipped_divide


def inner_partition(tensor: Any, tiler: Any, coord: IntTuple) -> Any:
    """The tile at a coordinate among the tiles: (TM, TN, …, and the tiles at ``None``)."""
    tiled = zipped_divide(tensor, tiler)
    tile, rest = map(rank, tiled.shape)
    return sliced(tiled, ((None,) * tile, _padded(coord, rest, "tiles")))


def outer_partition(tensor: Any, tiler: Any, coord: IntTuple) -> Any:
    """What lies at a coordinate of every tile: (RM, RN, …)."""
    tiled = zipped_divide(tensor, tiler)
    tile, rest = map(rank, tiled.shape)
    return sliced(tiled, (_padded(coord, tile, "the tile"), (None,) * rest))


def _padded(coord: IntTuple, modes: int, what: str) -> IntTuple:
    if coord.__class__ is not tuple:
        return coord
    if len(coord) > modes:
        raise LayoutError(f"{text(coord)} has more modes than the {modes} of {what}")
    return coord + (None,) * (modes - len(coord))


def sliced(tiled: Any, coord: IntTuple) -> Any:
    """Of a tensor its part, of a layout the part's layout."""
    return tiled[coord] if hasattr(tiled, "engine") else tiled(coord)


def local_tile(tensor: Any, tiler: Any, coord: IntTuple, proj: Any = None) -> Any:
    """One tile of a tensor, as a CTA takes it.

    ``coord`` counts tiles; modes at ``None`` or left out keep all their tiles as further modes.
    ``proj`` drops the modes of tiler and coordinate at its ``None``:

        local_tile(gA, (bM, bN, bK), (m, n, None), proj=(1, None, 1))     (bM, bK, k)
    """
    if proj is not None:
        tiler, coord = dice(proj, tiler), dice(proj, coord)
    return inner_partition(tensor, tiler, coord)


def local_partition(tensor: Any, tile: Layout, index: Number, proj: Any = None) -> Any:
    """The elements of one thread: of every tile of the thread layout's shape, the one at its
    coordinate.

    ``tile`` maps thread coordinates to thread numbers and is compact; ``index`` is the thread's
    number.
    """
    if not isinstance(tile, Layout):
        raise LayoutError(f"local_partition: the threads are a layout, not {tile!r}")
    if proj is not None:
        tile = make_layout(*[m for m, p in zip(tile, proj, strict=True) if p is not None])
    return outer_partition(tensor, product_each(tile.shape), tile.get_flat_coord(index))
