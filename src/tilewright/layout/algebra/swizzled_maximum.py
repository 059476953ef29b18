"""The largest swizzled offset of a layout, without evaluating all offsets.

A swizzle permutes offsets within blocks of ``size()`` numbers, so only the offsets in the last
block matter; and it does not change the lowest ``base`` bits, so of each 2^base numbers only the
largest offset matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LayoutError

_MOST = 1 << 24  # limit of evaluated offsets
_FARTHEST = 1 << 62

Modes = list[tuple[int, int]]
Array = NDArray[Any]


def greatest(swizzle: Any, start: int, modes: Modes) -> int:
    """The maximum of ``swizzle(start + c_0 d_0 + c_1 d_1 + …)`` over all 0 ≤ c_i < s_i, for
    (size, stride) ``modes``. LayoutError where the last block has too many offsets to evaluate.
    >>> greatest(Swizzle(1, 0, 1), 0, [(3, 1)])
    3
    """
    start += sum((s - 1) * min(d, 0) for s, d in modes)
    joined = _joined([(s, abs(d)) for s, d in modes if s > 1 and d])
    top = start + sum((s - 1) * d for s, d in joined)
    period: int = swizzle.size()
    block = top // period * period
    if max(period, top - start, abs(start)) >= _FARTHEST:
        raise LayoutError(f"offsets up to {top} under {swizzle} are beyond {_FARTHEST}")
    found = np.array([start - block], np.int64)
    for n, (s, d) in enumerate(joined):
        rest = sum((size - 1) * stride for size, stride in joined[n + 1 :])
        last = n + 1 == len(joined) and d < 1 << swizzle.base
        found = _ends(found, s, d, swizzle.base) if last else _added(found, s, d, -rest)
    return block + int(swizzle(found[found >= 0]).max())


def _joined(modes: Modes) -> Modes:
    """The same sums from fewer modes, the largest stride first: modes that continue or overlap the
    multiples of a smaller stride are merged with it.
    """
    found: Modes = []
    for s, d in sorted(modes, key=lambda mode: mode[1]):
        size, stride = found[-1] if found else (0, 1)
        if found and d % stride == 0 and d // stride <= size:
            found[-1] = size + (s - 1) * (d // stride), stride
        else:
            found.append((s, d))
    return found[::-1]


def _added(sums: Array, s: int, d: int, least: int) -> Array:
    """All distinct sums plus a multiple of ``d`` that are at least ``least``."""
    first = np.clip(-((sums - least) // d), 0, s)
    return np.unique(np.concatenate(_spread(sums, first, np.full_like(first, s), d)))


def _ends(sums: Array, s: int, d: int, base: int) -> Array:
    """The largest sum with a multiple of ``d`` in each block of 2^base numbers, from 0 on."""
    low, high = np.maximum(sums, 0) >> base, sums + (s - 1) * d >> base
    ends = np.concatenate(_spread(np.zeros_like(sums), low, high + 1, 1 << base)) + (1 << base) - 1
    owners = np.repeat(sums, np.maximum(high + 1 - low, 0))
    steps = np.minimum((ends - owners) // d, s - 1)
    found: Array = (owners + steps * d)[steps >= 0]
    return found


def _spread(starts: Array, first: Array, end: Array, step: int) -> list[Array]:
    """For each start, ``start + c * step`` for first ≤ c < end."""
    counts = np.maximum(end - first, 0)
    if int(counts.sum()) > _MOST:
        raise LayoutError(f"more than {_MOST} offsets are in the last block of the swizzle")
    each = zip(starts.tolist(), first.tolist(), counts.tolist(), strict=True)
    return [a + step * np.arange(c, c + n, dtype=np.int64) for a, c, n in each]
