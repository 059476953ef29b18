"""The search for two coordinates with the same offset, without enumerating all pairs.

Two coordinates collide if the sum of x_i * d_i of their difference x, |x_i| < s_i, is 0. The search
visits the modes in descending order of strides. The remaining sum must be within the span of the
smaller modes and a multiple of their greatest common divisor, which leaves few digits to try, and
none where each stride exceeds the span of the smaller modes.
"""

from __future__ import annotations

from itertools import accumulate
from math import gcd

_SUMS = 1 << 16  # limit of partial sums in one search
_DEEPEST = 200  # limit of modes: each is a level of recursion

Modes = list[tuple[int, int]]


class Undecided(Exception):
    """The search exceeded its limits."""


def difference(modes: Modes) -> list[int] | None:
    """The difference of two coordinates of these (size, stride) modes with the same offset; None if
    all offsets differ. Raises Undecided where the search exceeds its limits.
    >>> difference([(4, 1), (2, 3)])
    [-3, 1]
    """
    order = sorted((i for i, m in enumerate(modes) if m[0] > 1), key=lambda i: -abs(modes[i][1]))
    found = _Search([(modes[i][0], abs(modes[i][1])) for i in order]).first()
    if found is None:
        return None
    digits = [0] * len(modes)
    for i, x in zip(order, found, strict=False):  # the modes after the last digit have 0
        digits[i] = -x if modes[i][1] < 0 else x
    return digits


class _Search:
    """A search over modes in descending order of stride, with sizes > 1 and strides ≥ 0."""

    def __init__(self, modes: Modes) -> None:
        if len(modes) > _DEEPEST:
            raise Undecided(f"it has more than {_DEEPEST} modes")
        self.modes = modes
        upwards = modes[::-1]
        self.spans = [0, *accumulate((s - 1) * d for s, d in upwards)][::-1]  # from a mode on
        self.units = [0, *accumulate((d for _, d in upwards), gcd)][::-1]
        self.seen: set[tuple[int, int]] = set()

    def first(self) -> list[int] | None:
        """Digits of the first modes whose sum is 0, not all of them 0; the others are 0."""
        for depth in reversed(range(len(self.modes))):
            stride = self.modes[depth][1]
            for x in self._digits(depth, 0, lowest=1):
                rest = self._back(depth + 1, x * stride)
                if rest is not None:
                    return [0] * depth + [x, *rest]
        return None

    def _back(self, depth: int, total: int) -> list[int] | None:
        """Digits of the modes from ``depth`` on whose sum is ``-total``."""
        if total == 0:
            return []
        if depth == len(self.modes) or (depth, total) in self.seen:
            return None
        if len(self.seen) == _SUMS:
            raise Undecided("its modes overlap in too many ways")
        self.seen.add((depth, total))
        for x in self._digits(depth, total):
            rest = self._back(depth + 1, total + x * self.modes[depth][1])
            if rest is not None:
                return [x, *rest]
        return None

    def _digits(self, depth: int, total: int, lowest: int | None = None) -> range:
        """The digits of a mode for which the smaller modes can still reach a sum of 0."""
        (size, stride), span, unit = self.modes[depth], self.spans[depth + 1], self.units[depth + 1]
        least = 1 - size if lowest is None else lowest
        if stride == 0:
            return range(least, least + 1)  # any digit adds 0
        low = max(least, -((span + total) // stride))
        high = min(size - 1, (span - total) // stride)
        if unit == 0:
            return range(low, high + 1)
        common = gcd(stride, unit)
        if total % common:
            return range(0)
        step = unit // common
        residue = -total // common * pow(stride // common, -1, step) % step
        return range(low + (residue - low) % step, high + 1, step)
