"""What is worth measuring for a problem: the best by estimate, and what lies next to the very best
in what the estimate does not see well: stages, the order of tiles, clusters, cuts of K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ... import gemm, target
from ...errors import ConfigError, TargetError

MOST = 40  # by estimate
NEAR = 6  # of these whose neighbours are measured, too
GROUPS = 4, 8, 16
CLUSTERS = (1, 1), (2, 1), (1, 2)


def candidates(problem: gemm.Problem, device: target.DeviceSpec) -> list[gemm.AnyConfig]:
    """Configurations that fit, each once: by estimate (so the heuristic's choice is the first),
    then their neighbours. Raises as ``gemm.choose`` does.
    """
    best = [config for _, config in gemm.ranked(problem, device)[:MOST]]
    near = [other for config in best[:NEAR] for other in neighbours(config)]
    return [x for x in dict.fromkeys([*best, *near]) if _fits(problem, x, device)]


def neighbours(config: gemm.AnyConfig) -> Iterator[gemm.AnyConfig]:
    """Configurations that differ in one thing."""
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
            yield {"persistent": not config.persistent}
            shapes = gemm.cp_async.multistage_config.MMA_SHAPES["f64"] if config.mma else ()
            yield from ({"mma": shape} for shape in shapes)
        return
    yield {"dynamic": not config.dynamic}
    yield from ({"cluster": cluster} for cluster in CLUSTERS)
    for split in (config.split - 1, config.split + 1, 2 * config.split):
        yield {"split": split, "tail": config.tail and split > 1}


def _fits(problem: gemm.Problem, config: gemm.AnyConfig, device: target.DeviceSpec) -> bool:
    try:
        gemm.check(problem, config, device)
    except (ConfigError, TargetError):
        return False
    return True
