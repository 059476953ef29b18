"""Measure several configurations of one problem on the GPU, without torch's product."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from .epilogue_peers import EpilogueCase
from .epilogue_rows import EpilogueRow
from .heuristic_rules import Rule
from .peers import Case, graph, rough_seconds, sustained
from .precompile import row_plan
from .stats import Ratio, Sampling, calls


def measure(rule: Rule, configs: list[str], sampling: Sampling) -> tuple[list[float], float]:
    """Microseconds of each configuration on a busy GPU, and the median ratio of the first one's
    time to the second one's.
    """
    products = [_product(rule, config) for config in configs]
    count = calls(max(map(rough_seconds, products)), sampling.replay)
    graphs = [graph(product, count) for product in products]
    times = sustained(graphs, sampling.pairs, sampling.warm_up)
    us = [1e6 * statistics.median(t) / count for t in times]
    ratio = Ratio.of([first / second for first, second in zip(times[0], times[1], strict=True)])
    return us, ratio.median


def _product(rule: Rule, config: str) -> Callable[[int], object]:
    """A product with the i-th set of operands."""
    if rule.epilogue:
        return EpilogueCase(EpilogueRow(rule.epilogue, *rule.shape), config).fused
    return Case(rule.row).plan_call(row_plan(rule.row, config, "cuda"))
