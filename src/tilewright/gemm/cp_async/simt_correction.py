"""Correction of the cost model of kernel ``simt`` by what was measured.

The machine code of tiles differs in ways that the cost model does not know: how well its loop hides
loads, how its warps share an SM. The logarithm of the measured over the estimated seconds is
approximated by a linear function of some features of the launch, whose coefficients each tile has
for itself. ``simt_correction.tsv`` has them; ``benchmarks/f32_products.py --fit`` made it from the
sweeps that ``benchmarks/NOTES.md`` describes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from ..columns import Column
from ..problem import Problem

FILE = "simt_correction.tsv"
LIMIT = 0.35  # of a correction, in logarithms: what is further off was not measured
OTHER = "others"  # the row of tiles that were not measured
FEATURES = (
    "constant",
    "log resident",  # CTAs of an SM in a full wave
    "log² resident",
    "log k-tiles",
    "log² k-tiles",
    "log resident · log k-tiles",
    "one CTA",  # at most, on an SM
    "padded",  # the launch's unused shared memory keeps CTAs of the next grid away
    "full",  # as many CTAs on an SM as are resident
    "log waves",
    "wide copies of B",
    "split",
    "cluster",
    "log bytes",  # of A, B and D
    "narrow D",  # narrower than the tile
    "column-major A",
    "column-major B",
    "wide copies of A",
)
LAYOUT = FEATURES[-3:]  # those that are 0 where both are row-major
SPLIT = 0.02  # added where K is split: for less it is not worth it
LONG = 3e-4  # seconds from where on a correction counts less: the model knows the main loop best


class LaunchGrid(NamedTuple):
    """Columns of the launches of a problem's candidates."""

    ctas: Column
    each: Column  # CTAs of the busiest SM, in all waves
    resident: Column  # CTAs of an SM, at most
    k_tiles: Column
    split: Column
    in_cluster: Column
    columns: Column  # of a tile


def features(problem: Problem, grid: LaunchGrid) -> Column:
    """The features of each candidate: a row each, a column for each of ``FEATURES``."""
    each = np.maximum(grid.each.astype(np.float64), 1)  # none, where D is empty
    room = grid.resident.astype(np.float64)
    resident = np.log2(np.minimum(each, room))
    depth = np.clip(np.log2(np.maximum(grid.k_tiles, 1)) / 4 - 1, -1, 1.5)
    a = 0.0 if problem.a_major == "k" else np.log2(problem.align_a / 4) / 2
    b = 0.0 if problem.b_major == "k" else np.log2(problem.align_b / 4) / 2
    traffic = np.clip(np.log2(max(float(problem.bytes), 1.0) / 1e6) / 4, -1.5, 2)
    values: list[Any] = [
        1.0, resident, resident**2, depth, depth**2, resident * depth,
        each <= 1, (each < room) & (room < 2 * each), (each == room) & (each > 1),
        np.log2(np.clip(each / room, 1, 8)), b, grid.split > 1, grid.in_cluster, traffic,
        problem.n < grid.columns, problem.a_major == "m", problem.b_major == "k", a,
    ]  # fmt: skip
    found = np.empty((len(each), len(FEATURES)))
    for column, value in zip(found.T, values, strict=True):
        column[:] = value
    return found


def corrected(seconds: Column, problem: Problem, grid: LaunchGrid, coefficients: Column) -> Column:
    """The estimates ``seconds`` corrected; a row of ``coefficients`` for each candidate."""
    logarithms = correction(seconds, (features(problem, grid) * coefficients).sum(axis=1))
    found: Column = seconds * np.exp(logarithms + SPLIT * (grid.split > 1))
    return found


def correction(seconds: Column, fitted: Column) -> Column:
    """The logarithms that correct estimates by what was ``fitted``."""
    limited: Column = np.clip(fitted, -LIMIT, LIMIT) * np.minimum(1, LONG / seconds)
    return limited


def coefficients_of(tiles: Sequence[str]) -> Column:
    """A row of coefficients for each of these tiles (as ``simt_cost.tile_and_threads``)."""
    known = _table()
    return np.array([known.get(tile, known[OTHER]) for tile in tiles])


@cache
def _table() -> Mapping[str, list[float]]:
    text = files("tilewright.gemm.cp_async").joinpath(FILE).read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert tuple(rows[0][1:]) == FEATURES, "the file has other features: fit it again"
    return {name: [float(x) for x in values] for name, *values in rows[1:]}
