"""Times of many configurations of one problem and of torch, on the GPU."""

from __future__ import annotations

import statistics
from typing import Any

from .peers import Case, graph, prepare, rough_seconds, sustained
from .precompile import row_plan
from .rows import Row
from .stats import Sampling, calls


def measure(row: Row, configs: list[str], sampling: Sampling) -> tuple[float, list[Any]]:
    """Microseconds of torch, and of each configuration, or why it has none."""
    prepare(row.type)
    case, products = Case(row), list[Any]()
    for config in configs:
        try:
            products.append(case.plan_call(row_plan(row, config, "cuda")))
            products[-1](0)
        except Exception as error:  # one configuration must not end the sweep
            products.append(f"{type(error).__name__}: {error}".splitlines()[0])
    valid = [case.torch_call, *(x for x in products if callable(x))]
    count = max(calls(rough_seconds(case.torch_call), sampling.replay), len(case.sets))
    graphs = [graph(call, count) for call in valid]
    times = sustained(graphs, sampling.pairs, sampling.warm_up)
    torch_us, *us = (1e6 * statistics.median(t) / count for t in times)
    measured = iter(us)
    return torch_us, [next(measured) if callable(x) else x for x in products]
