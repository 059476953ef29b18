"""A median and how sure it is, whatever the distribution: bounds that are order statistics.

How many of n values lie below the true median is binomial, so the r-th from either end bound it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

MIN_SAMPLES = 6  # values, for bounds of 95 %


class MedianInterval(NamedTuple):
    """A median and its 95 % bounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MedianInterval:
        """ValueError for fewer than six."""
        rank = rank_of(len(values))
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[rank - 1], ordered[-rank])

    @property
    def margin(self) -> float:
        """Half the distance of the bounds."""
        return (self.high - self.low) / 2


def rank_of(count: int) -> int:
    """The greatest r so that the median is between the r-th of ``count`` ordered values and the
    r-th from above with 95 %: P(fewer than r heads in ``count`` tosses) ≤ 1/40.
    """
    below, rank = 1, 0
    while 40 * below <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    if not rank:
        raise ValueError(f"{count} values have no bounds of 95 %; {MIN_SAMPLES} are the fewest")
    return rank
