"""Coalescing: the sectors and lines of global memory that an access touches.

Global memory comes in sectors of 32 bytes, four of which are a line of the caches. A request moves
each sector that one of its lanes wants, whole and once; so Nsight Compute counts sectors. The least
is what the bytes that the lanes want would fill, if they lay together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from ...errors import LayoutError
from .access_pattern import NOBODY, Access, Array, access, count

SECTOR, LINE = 32, 128


@dataclass(frozen=True, slots=True, eq=False)
class Coalescing:
    """What an access moves of global memory: ``sectors``, cache ``lines`` and the ``bytes`` that
    are wanted of them, each by (warp, instruction).
    """

    access: Access
    sectors: Array
    lines: Array
    bytes: Array

    @classmethod
    def of(cls, asked: Access) -> Coalescing:
        """What these addresses move. LayoutError for those of ldmatrix or stmatrix."""
        if asked.matrix:
            raise LayoutError(f"{asked.op} does not access global memory", hint="use ld or st")
        requests, shape = asked.requests(), asked.addresses.shape[:2]
        sectors, lines, vectors = (
            _distinct(requests, unit).reshape(shape) for unit in (SECTOR, LINE, asked.width)
        )
        return cls(asked, sectors, lines, vectors * asked.width)

    @property
    def ideal(self) -> int:
        """The sectors that would do, if what each request wants lay together."""
        return int((-(-self.bytes // SECTOR)).sum())

    @property
    def total(self) -> int:
        """All sectors of all requests."""
        return int(self.sectors.sum())

    @property
    def efficiency(self) -> float:
        """The part of the moved bytes that is wanted."""
        return int(self.bytes.sum()) / (SECTOR * self.total)

    @property
    def alignment(self) -> int:
        """The multiple of bytes, up to a line, that each request's lowest address is of."""
        requests = self.access.requests()
        lowest = np.where(requests == NOBODY, np.iinfo(np.int64).max, requests).min(axis=1)
        return gcd(LINE, int(np.gcd.reduce(lowest)))

    def lanes(self, warp: int = 0, instruction: int = 0) -> dict[int, tuple[int, ...]]:
        """Address of a sector → the lanes that want it, in a request."""
        wanted: dict[int, list[int]] = {}
        for lane, address in enumerate(self.access.addresses[warp, instruction].tolist()):
            if address != NOBODY:
                wanted.setdefault(address // SECTOR * SECTOR, []).append(lane)
        return {sector: tuple(lanes) for sector, lanes in sorted(wanted.items())}

    def __str__(self) -> str:
        found = f"{self.ideal} would do" if self.total > self.ideal else "the least"
        return (
            f"{self.access}: {count(self.total, 'sector')} of {SECTOR} bytes, {found};"
            f" {self.efficiency:.0%} of the bytes are wanted\n"
            f"{count(int(self.lines.sum()), 'line')} of {LINE} bytes;"
            f" requests begin at multiples of {self.alignment} bytes"
        )


def coalescing(
    layout: Any, bits: int, vector: int | None = None, op: str = "ld", *, tv: Any = None
) -> Coalescing:
    """The sectors and lines of an access to global memory; arguments and errors are ``access``'s.
    The layout's first element is taken to lie at a multiple of 128 bytes.

    >>> print(coalescing(Layout((8, 4), (4, 1)), bits=32))
    ld of 16 bytes, 1 request: 4 sectors of 32 bytes, the least; 100% of the bytes are wanted
    1 line of 128 bytes; requests begin at multiples of 128 bytes
    """
    return Coalescing.of(access(layout, bits, vector, op, tv=tv))


def _distinct(requests: Array, unit: int) -> Array:
    """Number of distinct units of this size, in bytes, that the lanes of each request touch."""
    units = np.sort(requests // unit, axis=1)
    new = units >= 0
    new[:, 1:] &= units[:, 1:] != units[:, :-1]
    counted: Array = new.sum(axis=1)
    return counted
