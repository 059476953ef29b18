"""The search space of a problem: the best candidates of the cost model, and the neighbours of the
very best ones in what the cost model predicts poorly: stages, rasterization order, clusters,
split-K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ... import gemm, target
from ...errors import ConfigError, TargetError

MAX_BEST = 40  # candidates of the cost model
EXPANDED = 6  # of these, the number whose neighbours are candidates too
GROUPS = 4, 8, 16
CLUSTERS = (1, 1), (2, 1), (1, 2)
STREAM_K = 2, 3, 4, 5


def candidates(problem: gemm.Problem, device: target.DeviceSpec) -> list[gemm.AnyConfig]:
    """Valid, distinct configurations: the best of the cost model (so the heuristic's choice comes
    first), then neighbours. Raises the errors of ``gemm.choose``.
    """
    best = [config for _, config in gemm.ranked(problem, device)[:MAX_BEST]]
    expanded = [other for config in best[:EXPANDED] for other in neighbours(config)]
    return [x for x in dict.fromkeys([*best, *expanded]) if _fits(problem, x, device)]


def neighbours(config: gemm.AnyConfig) -> Iterator[gemm.AnyConfig]:
    """Configurations that differ in one option."""
    for change in _changes(config):
        try:
            yield replace(config, **change)
        except ConfigError:
            continue


def _changes(config: gemm.AnyConfig) -> Iterator[dict[str, Any]]:
    yield from ({"stages": config.stages + more} for more in (-1, 1))
    yield from ({"group": group} for group in GROUPS)
    if not isinstance(config, gemm.TmaConfig):
        yield from ({"ctas": config.ctas + more} for more in (-1, 1))
        if isinstance(config, gemm.Config):
            splits = (config.split - 1, config.split + 1, 2 * config.split)
            yield from ({"split": split, "persistent": False} for split in splits)
            yield {"persistent": not config.persistent}
            shapes = gemm.cp_async.multistage_config.MMA_SHAPES["f64"] if config.mma else ()
            yield from ({"mma": shape} for shape in shapes)
        return
    yield {"dynamic": not config.dynamic}
    whole = {"split": 1, "tail": False, "in_cluster": False}
    yield from ({"stream_k": clusters, **whole} for clusters in STREAM_K)
    yield from ({"cluster": cluster} for cluster in CLUSTERS)
    for split in (config.split - 1, config.split + 1, 2 * config.split):
        yield {"split": split, "tail": config.tail and split > 1, "in_cluster": False}
    yield {"split": 2, "tail": False, "in_cluster": True}


def _fits(problem: gemm.Problem, config: gemm.AnyConfig, device: target.DeviceSpec) -> bool:
    try:
        gemm.check(problem, config, device)
    except (ConfigError, TargetError):
        return False
    return True
