"""Partitions: the tile of a CTA and the elements of a thread.

``zipped_divide`` returns ((tile), (tiles)). A coordinate in the second mode selects a tile; a
coordinate in the first mode selects a thread's elements of all tiles.
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
    """The elements at a coordinate of every tile: (RM, RN, …)."""
    tiled = zipped_divide(tensor, tiler)
    tile, rest = map(rank, tiled.shape)
    return sliced(tiled, (_padded(coord, tile, "the tile"), (None,) * rest))


def _padded(coord: IntTuple, modes: int, what: str) -> IntTuple:
    if coord.__class__ is not tuple:
        return coord
    if len(coord) > modes:
        raise LayoutError(
            f"a coordinate must have at most the {modes} modes of {what}, got {text(coord)}"
        )
    return coord + (None,) * (modes - len(coord))


def sliced(tiled: Any, coord: IntTuple) -> Any:
    """The slice of a tensor, or of a layout."""
    return tiled[coord] if hasattr(tiled, "engine") else tiled(coord)


def local_tile(tensor: Any, tiler: Any, coord: IntTuple, proj: Any = None) -> Any:
    """One tile of a tensor, for a CTA.

    ``coord`` is the tile's index in each mode; modes at ``None`` or left out keep all tiles as
    further modes. ``proj`` drops the modes of tiler and coordinate at its ``None``:
        local_tile(gA, (bM, bN, bK), (m, n, None), proj=(1, None, 1))     (bM, bK, k)
    """
    if proj is not None:
        tiler, coord = dice(proj, tiler), dice(proj, coord)
    return inner_partition(tensor, tiler, coord)


def local_partition(tensor: Any, tile: Layout, index: Number, proj: Any = None) -> Any:
    """The elements of one thread: the element at its coordinate in every tile of the thread
    layout's shape.

    ``tile`` is a compact layout from thread coordinates to thread indices; ``index`` is the
    thread's index.
    """
    if not isinstance(tile, Layout):
        raise LayoutError(f"local_partition: tile must be a layout, got {tile!r}")
    if proj is not None:
        tile = make_layout(*[m for m, p in zip(tile, proj, strict=True) if p is not None])
    return outer_partition(tensor, product_each(tile.shape), tile.get_flat_coord(index))
