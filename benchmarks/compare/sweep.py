"""Problems and their candidates, of all structures, to fit the cost model of kernel ``tma``."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright import gemm
from tilewright.gemm import cost_model
from tilewright.gemm.tma import tma_checks
from tilewright.gemm.tma.partial_tma_config import PartialTmaConfig
from tilewright.gemm.tma.tma_config import TmaConfig, relayout_problem
from tilewright.target import DEFAULT_DEVICE, DeviceSpec

from .model_layers import layer_sizes
from .rows import Row, random_shapes

# Every tile of the search space in these clusters too, whatever the schedule grid would select.
CLUSTERS = ("", "/2x1", "/1x2", "/2x2", "/4x1", "/1x4")
HELD_OUT = 3  # every third problem is kept for validation
LAYER_TOKENS = {16: 13, 64: 13, 128: 13, 256: 3, 512: 11, 1024: 13, 4096: 17}  # M: one layer of


def shapes(seed: int, count: int) -> Iterator[Row]:
    """Some layers of language models at each M, and ``count`` random multiples of 8 and half as
    many of 64, which differ from those that ``gemm.py`` measures unless the seed is 0.
    """
    for tokens, every in LAYER_TOKENS.items():
        for layer, m in layer_sizes((tokens,))[(seed + tokens // 16) % every :: every]:
            yield Row("layers", m, layer.n, layer.k, layer.type, fast=layer.type == "e4m3")
    for multiple, number in ((8, count), (64, count // 2)):
        for shape in random_shapes(number, seed, multiple):
            yield Row(f"multiples-of-{multiple}", *shape)


def is_held_out(m: int, n: int, k: int) -> bool:
    """Whether a problem is not fitted to: a fixed third of them."""
    return zlib.crc32(f"{m}x{n}x{k}".encode()) % HELD_OUT == 0


def problem_of(row: Row) -> gemm.Problem:
    """The problem of a row whose operands are packed, as torch's allocations are."""
    bits = 8 if row.type in ("e4m3", "s8") else 16
    align = [(x * bits // 8 | 16) & -(x * bits // 8 | 16) for x in (row.k, row.k)]
    return gemm.Problem(
        row.m, row.n, row.k, row.type, row.type, row.result, align_a=align[0], align_b=align[1],
        align_d=(row.n * 2 | 16) & -(row.n * 2 | 16), fast=row.fast,
    )  # fmt: skip


def candidates(
    row: Row, best: int, others: int, device: DeviceSpec = DEFAULT_DEVICE
) -> list[TmaConfig]:
    """The ``best`` candidates of the heuristic, then the best of each of ``others`` structures: its
    rows and warpgroups, k-tile, cluster, and kind of split.
    """
    problem = problem_of(row)
    found = [x for _, x in gemm.ranked(problem, device)[:best] if isinstance(x, TmaConfig)]
    structures: dict[Any, TmaConfig] = {}
    for config in _ranked_in_any_cluster(problem, device):
        if config not in found:
            structures.setdefault(_structure(config), config)
    return found + list(structures.values())[:others]


def _structure(config: TmaConfig) -> Any:
    bm, _, bk = config.tile
    kind = config.split > 1, config.tail
    return bm, bk, config.consumers, config.pingpong, config.cluster, kind


def _ranked_in_any_cluster(problem: gemm.Problem, device: DeviceSpec) -> Iterator[TmaConfig]:
    relaid, found = relayout_problem(problem), dict[TmaConfig, float]()
    for cluster in CLUSTERS:
        partial = PartialTmaConfig.parse(f"tma{cluster}")
        assert partial is not None
        columns = partial.candidates(problem, device)
        columns = columns.take(np.flatnonzero(tma_checks.fits(relaid, columns, device)))
        configs = [columns.config(i) for i in range(len(columns))]
        if configs:
            seconds = cost_model.estimates(problem, configs, device)
            found.update(zip(configs, seconds.tolist(), strict=True))
    return iter(sorted(found, key=found.__getitem__))
