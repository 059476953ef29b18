"""What counts as faster: ratios of neighbours in time, their median, and how sure it is.

A chip at its power limit drifts by some percent, so one time says little; the ratio of two that
were taken one right after the other says much. The bounds are order statistics: how many of n
ratios lie below the true median is binomial, whatever their distribution is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tilewright.run.tuning.median_interval import MedianInterval

SLACK = 0.01  # under its figure that a row's lower bound may be


class Ratio(MedianInterval):
    """The median of ratios and its 95 % bounds."""

    def holds(self, figure: float) -> bool:
        """Whether the lower bound is no more than ``SLACK`` under the figure."""
        return self.low >= figure - SLACK


def geomean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def turn(number: int, count: int) -> list[int]:
    """Who runs in this round, in order: forth in one, back in the next. So in a pair both come
    after the same one: a kernel after a power-hungry one runs at a lower clock.
    """
    forth = list(range(count))
    return forth[::-1] if number % 2 else forth


def calls(seconds: float, least: float = 2e-3) -> int:
    """Calls in a replay: ``least`` seconds of them, but 3 to 400."""
    return min(400, max(3, math.ceil(least / seconds)))


def spread(times: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """Of several that ran in rounds, ``times[who][round]``: each one's median share of its rounds'
    geometric means, and by how much the slowest is slower than the fastest.
    """
    means = [geomean(one) for one in zip(*times, strict=True)]
    shares = [
        statistics.median(t / mean for t, mean in zip(own, means, strict=True)) for own in times
    ]
    return shares, max(shares) / min(shares) - 1
