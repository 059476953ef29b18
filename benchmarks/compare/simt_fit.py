"""Fits the correction of the cost model of kernel ``simt`` to sweeps of ``f32_products.py``.

Ridge regression of the logarithms of measured over estimated times. Each tile's coefficients are
those of all tiles and its own deviations, which are kept small. A shape's candidates have most of
their mean error in common; it does not decide which one is chosen, so most of it is taken out.
First row-major products are fitted, then what other layouts add to them.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright import gemm
from tilewright.gemm.cp_async import simt_correction, simt_cost
from tilewright.gemm.cp_async.simt_config import TABLE
from tilewright.gemm.cp_async.simt_correction import FEATURES, LAYOUT, OTHER, SPLIT

Row = list[Any]  # M, N, K, microseconds by configuration, torch's among them, layouts of A, B
RIDGE = 4.0  # weight of the squared coefficients in the sum of squares that is least
OWN = 2.0  # how much more freely a tile deviates from all than these from zero
SHARED = 0.8  # of a shape's mean error, that is taken out
SQUARE = 4.0  # shapes that a square counts as: a sweep has few
FOLDS = 4
ROW_MAJOR = "tt"
FILE = Path(simt_correction.__file__).with_name(simt_correction.FILE)
TILES = list(dict.fromkeys(map(simt_cost.tile_and_threads, TABLE)))


class Measured(NamedTuple):
    """A shape's candidates: their tiles, features, logarithms of times over estimates."""

    shape: tuple[int, int, int, str]
    tiles: list[int]
    features: Any
    errors: Any
    times: Any  # microseconds
    torch: float

    def choice(self, coefficients: Any) -> int:
        """The candidate that is chosen with these coefficients of the tiles."""
        estimates = self.times / 1e6 / np.exp(self.errors)
        fitted_errors = (self.features * coefficients[self.tiles]).sum(axis=1)
        split = SPLIT * self.features[:, FEATURES.index("split")]
        logarithms = simt_correction.correction(estimates, fitted_errors) + split
        return int(np.argmin(np.log(estimates) + logarithms))


def fit(files: Sequence[Path]) -> None:
    """Print what the choice costs without and with the correction, also for shapes that it was not
    fitted to, and write its file.
    """
    data = [x for row in merged(files) if len((x := measured(row)).tiles) > 1]
    print(f"{len(data)} shapes, {sum(len(x.tiles) for x in data)} times")
    report("without", [(x, x.choice(np.zeros((len(TILES), len(FEATURES))))) for x in data])
    report("held out", list(held_out(data)))
    found, common = fitted(data)
    report("fitted", [(x, x.choice(found)) for x in data])
    write(found, common)
    print(f"written: {FILE}")


def merged(files: Sequence[Path]) -> list[Row]:
    """The rows of several sweeps; where a shape is in more than one, by torch's time in each."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for file in files:
        for m, n, k, row, layout in json.loads(file.read_text(encoding="utf-8")):
            known = found.setdefault((m, n, k, layout), dict(row))
            scale = known["torch"] / row["torch"]
            for name, time in row.items():
                known.setdefault(name, time * scale)
    return [[*sizes, row, layout] for (*sizes, layout), row in found.items()]


def measured(row: Row) -> Measured:
    """A row's candidates, of the tiles that are in the table."""
    m, n, k, times, layout = row
    plan = tilewright.plan(m, n, k, dtype="f32", layout=layout, device="vm")
    named = [(gemm.parse(x), t) for x, t in times.items() if x.startswith("simt")]
    named = [(c, t) for c, t in named if simt_cost.tile_and_threads(c) in TILES]
    configs, values = [c for c, _ in named], np.array([t for _, t in named])
    device = plan.device.target
    costs = simt_cost.simt_costs(plan.problem, configs, device)
    grid = simt_cost.launch_grid(plan.problem, costs, device)
    return Measured(
        (m, n, k, layout),
        [TILES.index(simt_cost.tile_and_threads(c)) for c in configs],
        simt_correction.features(plan.problem, grid),
        np.log(values / simt_cost.uncorrected(plan.problem, costs, device, grid) / 1e6),
        values,
        times["torch"],
    )


def fitted(data: Sequence[Measured]) -> tuple[Any, Any]:
    """The coefficients of each tile, and of all."""
    common, tiles = np.zeros(len(FEATURES)), np.zeros((len(TILES), len(FEATURES)))
    of_layouts = [name in LAYOUT for name in FEATURES]
    for part in (False, True):
        which = np.flatnonzero(np.array(of_layouts) == part)
        rows = [x for x in data if (x.shape[3] != ROW_MAJOR) == part]
        left = [x.errors - (x.features * tiles[x.tiles]).sum(axis=1) for x in rows]
        if rows:
            common[which], tiles[:, which] = _regression(rows, left, which)
    return tiles, common


def _regression(data: Sequence[Measured], errors: Sequence[Any], which: Any) -> tuple[Any, Any]:
    """The coefficients of these features: of all tiles, and of each."""
    parts, targets, width = [], [], len(which)
    for x, error in zip(data, errors, strict=True):
        features = x.features[:, which]
        design = np.zeros((len(x.tiles), width * (len(TILES) + 1)))
        design[:, :width] = features
        for i, tile in enumerate(x.tiles):
            design[i, width * (tile + 1) : width * (tile + 2)] = OWN * features[i]
        weight = math.sqrt(SQUARE) if len(set(x.shape[:3])) == 1 else 1.0
        parts.append(weight * (design - SHARED * design.mean(axis=0)))
        targets.append(weight * (error - SHARED * error.mean()))
    design, target = np.concatenate(parts), np.concatenate(targets)
    normal = design.T @ design + RIDGE * np.eye(design.shape[1])
    found = np.linalg.solve(normal, design.T @ target).reshape(-1, width)
    return found[0], found[0] + OWN * found[1:]


def held_out(data: Sequence[Measured]) -> Iterator[tuple[Measured, int]]:
    """The choice for each shape by a fit to others."""
    order = random.Random(3).sample(range(len(data)), len(data))
    for fold in range(FOLDS):
        found, _ = fitted([data[i] for at, i in enumerate(order) if at % FOLDS != fold])
        yield from ((data[i], data[i].choice(found)) for i in order[fold::FOLDS])


def report(name: str, choices: Sequence[tuple[Measured, int]]) -> None:
    """Print what these choices cost, and their ratios to torch."""
    mean = statistics.geometric_mean
    costs = [float(x.times[i] / x.times.min()) for x, i in choices]
    ratios = {x.shape: float(x.torch / x.times[i]) for x, i in choices}
    best = mean(x.torch / float(x.times.min()) for x, _ in choices)
    below = sorted((round(ratio, 3), shape) for shape, ratio in ratios.items() if ratio < 1)
    print(f"{name}: the choice takes {mean(costs):.4f} of the best time, {max(costs):.2f} at most; "
          f"ratio {mean(ratios.values()):.3f} (best {best:.3f}), {len(below)} under 1.00: "
          f"{below}")  # fmt: skip


def write(found: Any, common: Any) -> None:
    """Write the correction's file."""
    lines = ["# measured over estimated seconds, in logarithms: benchmarks/f32_products.py --fit"]
    lines.append("\t".join(["tile", *FEATURES]))
    for name, values in zip([*TILES, OTHER], [*found, common], strict=True):
        lines.append("\t".join([name, *(f"{x:.3f}" for x in values)]))
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
