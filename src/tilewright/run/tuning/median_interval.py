"""A median with a confidence interval that needs no distribution: its bounds are order statistics.

The number of n values below the true median is binomial, so the r-th smallest and the r-th largest
bound the median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

MIN_SAMPLES = 6  # for 95 % bounds


class MedianInterval(NamedTuple):
    """A median and its 95 % bounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MedianInterval:
        """The interval of at least six values; ValueError for fewer."""
        rank = rank_of(len(values))
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[rank - 1], ordered[-rank])

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def rank_of(count: int) -> int:
    """The greatest r such that the median is between the r-th smallest and the r-th largest of
    ``count`` values with 95 % probability: P(fewer than r heads in ``count`` tosses) ≤ 1/40.
    """
    below, rank = 1, 0
    while 40 * below <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    if not rank:
        raise ValueError(f"95 % bounds need at least {MIN_SAMPLES} values, got {count}")
    return rank
