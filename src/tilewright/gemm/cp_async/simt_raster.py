"""Which tile of D a CTA of kernel ``simt`` computes: the order of ``rasterization``, by parameters
in place of divisions, which take a small product a tenth of a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...builder import Builder, Reg
from ..parameter_declaration import parameter
from ..problem import Problem
from .cp_async_parameters import CpAsyncParameters
from .simt_config import SimtConfig

_BITS = 31  # of a tile's index


@dataclass(frozen=True)
class SimtParameters(CpAsyncParameters):
    """Parameters of kernel ``simt``: ``group_tiles``, the number of tiles in a group of rows of
    tiles; ``whole_groups``, the number of groups with all rows; ``last_rows``, the number of rows
    of tiles in the group after them; and multiplier and shift of the divisions by ``group_tiles``
    and by ``last_rows``.
    """

    group_tiles: Reg = parameter("u32")
    group_multiplier: Reg = parameter("u32")
    group_shift: Reg = parameter("u32")
    whole_groups: Reg = parameter("u32")
    last_rows: Reg = parameter("u32")
    last_multiplier: Reg = parameter("u32")
    last_shift: Reg = parameter("u32")


def raster_values(problem: Problem, config: SimtConfig) -> dict[str, int]:
    """The values of these parameters."""
    bm, bn, _ = config.tile
    rows, columns = -(-problem.m // bm), -(-problem.n // bn)
    whole, last = divmod(rows, config.group)
    tiles = columns * min(rows, config.group)
    (group_multiplier, group_shift), (last_multiplier, last_shift) = map(divisor, (tiles, last))
    return {
        "group_tiles": tiles, "group_multiplier": group_multiplier, "group_shift": group_shift,
        "whole_groups": whole, "last_rows": last, "last_multiplier": last_multiplier,
        "last_shift": last_shift,
    }  # fmt: skip


def divisor(number: int) -> tuple[int, int]:
    """(multiplier, shift) of ``quotient``; of 0, which is never used, those of 1."""
    shift = max(0, number - 1).bit_length()
    return -(-(1 << _BITS + shift) // max(1, number)), shift


def quotient(k: Builder, dividend: Any, multiplier: Any, shift: Any) -> Any:
    """``dividend``, below 2^31, over the number of this multiplier and shift."""
    return k.emit("mul.hi.u32", dividend + dividend, multiplier) >> shift


def tile_coordinates(k: Builder, p: SimtParameters, index: Any, group: int) -> tuple[Any, Any]:
    """(row, column) of tile ``index``, in groups of ``group`` rows of tiles."""
    number = quotient(k, index, p.group_multiplier, p.group_shift)
    within = index - number * p.group_tiles
    whole = number < p.whole_groups
    column = k.select(whole, within // group, quotient(k, within, p.last_multiplier, p.last_shift))
    return number * group + within - column * k.select(whole, group, p.last_rows), column
