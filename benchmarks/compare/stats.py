"""Statistics of a comparison: the median of ratios of consecutive times, with its 95 % bounds.

The clock of a GPU at its power limit drifts by some percent, and so do times; the ratio of two that
were measured in immediate succession does not. The bounds are order statistics: the number of n
ratios below the true median is binomial, whatever their distribution is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.run.tuning.median_interval import MedianInterval

SLACK = 0.01  # that a row's lower bound may be below its figure


class Sampling(NamedTuple):
    """How a row is timed: ``pairs`` of replays on a busy GPU after ``warm_up`` seconds, then
    ``burst_pairs`` with a pause before each; a replay takes at least ``replay`` seconds.
    """

    pairs: int = 40
    burst_pairs: int = 40
    warm_up: float = 0.4
    replay: float = 2e-3


QUICK = Sampling(pairs=16, burst_pairs=0, warm_up=0.1, replay=1e-3)


class Ratio(MedianInterval):
    """The median of ratios and its 95 % bounds."""

    def holds(self, figure: float) -> bool:
        """Whether the lower bound is at most ``SLACK`` below the figure."""
        return self.low >= figure - SLACK


def geomean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def round_order(number: int, count: int) -> list[int]:
    """The order of a round: ascending in even rounds, descending in odd ones. So both of a pair run
    after the same kernel: after a power-hungry one the clock is lower.
    """
    ascending = list(range(count))
    return ascending[::-1] if number % 2 else ascending


def calls(seconds: float, least: float = 2e-3) -> int:
    """The number of calls in a replay of at least ``least`` seconds: 3 to 400."""
    return min(400, max(3, math.ceil(least / seconds)))


def spread(times: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """Of ``times[kernel][round]``: each kernel's median share of its rounds' geometric means, and
    by how much the slowest is slower than the fastest.
    """
    means = [geomean(round_times) for round_times in zip(*times, strict=True)]
    shares = [
        statistics.median(t / mean for t, mean in zip(kernel, means, strict=True))
        for kernel in times
    ]
    return shares, max(shares) / min(shares) - 1
