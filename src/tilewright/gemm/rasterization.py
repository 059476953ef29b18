"""Swizzled rasterization of tiles: in groups of rows, so that neighbouring CTAs share A and B in
the L2.
"""

from __future__ import annotations

from typing import Any

from ..builder import Builder


def tile_coordinates(
    k: Builder, index: Any, rows: Any, columns: Any, group: int
) -> tuple[Any, Any]:
    """(row, column) of tile ``index`` of rows × columns tiles: the order is column by column within
    a group of ``group`` rows of tiles, then the next group.
    """
    in_group = columns * (k.min(rows, group) if group > 1 else 1)  # columns * group may pass 2^32
    number, within = index // in_group, index % in_group
    first = number * group
    height = k.min(rows - first, group)
    return first + within % height, within // height
