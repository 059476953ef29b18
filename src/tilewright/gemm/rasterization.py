"""Rasterization order of tiles: grouped, so that neighbouring CTAs share A and B in the L2."""

from __future__ import annotations

from typing import Any

from ..builder import Builder


def tile_coordinates(
    k: Builder, index: Any, rows: Any, columns: Any, group: int
) -> tuple[Any, Any]:
    """(row, column) of tile ``index`` among rows × columns tiles: down a group of ``group`` rows,
    then to the next column; after the last column, to the next group.
    """
    in_group = columns * (k.min(rows, group) if group > 1 else 1)  # columns * group may pass 2^32
    number, within = index // in_group, index % in_group
    first = number * group
    height = k.min(rows - first, group)
    return first + within % height, within // height
