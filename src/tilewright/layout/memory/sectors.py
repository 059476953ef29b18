"""Coalescing: the sectors and lines of global memory that an access touches.

Global memory is divided into sectors of 32 bytes; four sectors are a cache line. A request
transfers each sector that its lanes access once, as a whole. Nsight Compute counts sectors in the
same way. The ideal number is that of the same bytes in contiguous, aligned memory.
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
    """The global memory that an access transfers: ``sectors``, cache ``lines``, and the ``bytes``
    of them that are used, each by (warp, instruction).
    """

    access: Access
    sectors: Array
    lines: Array
    bytes: Array

    @classmethod
    def of(cls, access: Access) -> Coalescing:
        """The transfers of these addresses. Raises LayoutError for ldmatrix and stmatrix."""
        if access.matrix:
            raise LayoutError(f"{access.op} does not access global memory", hint="use ld or st")
        requests, shape = access.requests(), access.addresses.shape[:2]
        sectors, lines, vectors = (
            _distinct(requests, unit).reshape(shape) for unit in (SECTOR, LINE, access.width)
        )
        return cls(access, sectors, lines, vectors * access.width)

    @property
    def ideal(self) -> int:
        """The number of sectors if each request's bytes were contiguous."""
        return int((-(-self.bytes // SECTOR)).sum())

    @property
    def total(self) -> int:
        """All sectors of all requests."""
        return int(self.sectors.sum())

    @property
    def efficiency(self) -> float:
        """The fraction of the transferred bytes that is used."""
        return int(self.bytes.sum()) / (SECTOR * self.total)

    @property
    def alignment(self) -> int:
        """The alignment in bytes, up to a line, of all requests' lowest addresses."""
        requests = self.access.requests()
        lowest = np.where(requests == NOBODY, np.iinfo(np.int64).max, requests).min(axis=1)
        return gcd(LINE, int(np.gcd.reduce(lowest)))

    def lanes(self, warp: int = 0, instruction: int = 0) -> dict[int, tuple[int, ...]]:
        """Address of a sector → the lanes that access it, in a request."""
        sectors: dict[int, list[int]] = {}
        for lane, address in enumerate(self.access.addresses[warp, instruction].tolist()):
            if address != NOBODY:
                sectors.setdefault(address // SECTOR * SECTOR, []).append(lane)
        return {sector: tuple(lanes) for sector, lanes in sorted(sectors.items())}

    def __str__(self) -> str:
        ideal = f"ideal {self.ideal}" if self.total > self.ideal else "the minimum"
        return (
            f"{self.access}: {count(self.total, 'sector')} of {SECTOR} bytes, {ideal};"
            f" {self.efficiency:.0%} of the bytes are used\n"
            f"{count(int(self.lines.sum()), 'line')} of {LINE} bytes;"
            f" requests begin at multiples of {self.alignment} bytes"
        )


def coalescing(
    layout: Any, bits: int, vector: int | None = None, op: str = "ld", *, tv: Any = None
) -> Coalescing:
    """The sectors and lines of an access to global memory; arguments and errors as for ``access``.
    The layout's first element is assumed to be at a multiple of 128 bytes.

    >>> print(coalescing(Layout((8, 4), (4, 1)), bits=32))
    ld of 16 bytes, 1 request: 4 sectors of 32 bytes, the minimum; 100% of the bytes are used
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
