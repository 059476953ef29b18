"""Bank conflicts: the wavefronts of a shared-memory access, and the lanes that conflict.

Shared memory has 32 banks of 4 bytes, and serves 128 bytes, one word of each bank, per wavefront. A
request is divided into phases whose lanes access 128 bytes: all 32 lanes up to 4 bytes each, half a
warp at 8, a quarter at 16, and 8 rows for ldmatrix and stmatrix. Lanes of a phase that access the
same word share it; each further word of a bank costs a wavefront. Nsight Compute counts in the same
way: wavefronts, and as conflicts those beyond one for each phase.

If each lane of a wide load has the address of its neighbour (lane ^ 1 for all lanes, or lane ^ 2),
the load needs half the bandwidth, and phases have twice the lanes. This is published for compute
capability 7.0 to 7.5, and holds for an H200: its clock agrees with this model in all 54 patterns of
``benchmarks/bank_conflicts.py``, within 2 percent. Other architectures were not tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...target import LANES
from .access_pattern import NOBODY, Access, Array, access, count

BANKS, WORD = 32, 4
WAVEFRONT = BANKS * WORD  # bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """Lanes that are served together. ``banks[b]`` are the accessed words of bank b in the order of
    their addresses, each as (address in bytes, the lanes that access it).
    """

    lanes: tuple[int, ...]
    banks: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]

    @property
    def wavefronts(self) -> int:
        return max(map(len, self.banks))

    @property
    def collisions(self) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]:
        """(banks, the lanes of each of their words) for banks with several accessed words. Banks
        with the same lanes are grouped; groups are sorted by the number of words, descending.
        """
        together: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for bank, words in enumerate(self.banks):
            if len(words) > 1:
                together.setdefault(tuple(lanes for _, lanes in words), []).append(bank)
        ordered = sorted(together.items(), key=lambda item: -len(item[0]))
        return [(tuple(banks), lanes) for lanes, banks in ordered]

    def __str__(self) -> str:
        lines = [f"lanes {ranges(self.lanes)}: {count(self.wavefronts, 'wavefront')}"]
        for banks, lanes in self.collisions:
            name = "banks" if len(banks) > 1 else "bank"
            words = " | ".join(map(ranges, lanes))
            lines.append(f"  {name} {ranges(banks)}: a word each for lanes {words}")
        return "\n".join(lines)


def ranges(numbers: tuple[int, ...]) -> str:
    """``0-3 8`` of 0, 1, 2, 3, 8."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


@dataclass(frozen=True, slots=True, eq=False)
class BankConflicts:
    """The cost of an access to shared memory: ``wavefronts`` and their minimum, ``ideal``, for each
    (warp, instruction).
    """

    access: Access
    wavefronts: Array
    ideal: Array

    @classmethod
    def of(cls, access: Access) -> BankConflicts:
        """The cost of these addresses."""
        requests, sizes = access.requests(), _phase_lanes(access)
        wavefronts, ideal = np.zeros((2, len(requests)), np.int64)
        for size in np.unique(sizes).tolist():
            same = sizes == size
            wavefronts[same], ideal[same] = _count(requests[same], size)
        shape = access.addresses.shape[:2]
        return cls(access, wavefronts.reshape(shape), ideal.reshape(shape))

    @property
    def total(self) -> int:
        """All wavefronts of all requests."""
        return int(self.wavefronts.sum())

    @property
    def conflicts(self) -> int:
        """The wavefronts beyond one for each phase."""
        return self.total - int(self.ideal.sum())

    @property
    def worst(self) -> tuple[int, int]:
        """(warp, instruction) of the request with most conflicts, the first of them."""
        extra = self.wavefronts - self.ideal
        warp, instruction = divmod(int(extra.argmax()), extra.shape[1])
        return warp, instruction

    def phases(self, warp: int = 0, instruction: int = 0) -> tuple[Phase, ...]:
        """A request's phases, bank by bank."""
        addresses = self.access.addresses[warp, instruction]
        size = int(_phase_lanes(self.access)[warp * self.wavefronts.shape[1] + instruction])
        phases = (_phase(addresses, self.access.width, at, size) for at in range(0, LANES, size))
        return tuple(phase for phase in phases if phase.lanes)

    def lines(self) -> list[str]:
        """A report: the cost, and the lanes that conflict in the worst phase."""
        ideal = int(self.ideal.sum())
        conflicts = f"{ideal} without conflicts" if self.conflicts else "no conflicts"
        lines = [f"{self.access}: {count(self.total, 'wavefront')}, {conflicts}"]
        if self.conflicts:
            warp, instruction = self.worst
            phases = self.phases(warp, instruction)
            worst = max(phases, key=lambda phase: phase.wavefronts)
            first, *more = str(worst).split("\n")
            lines.append(f"warp {warp}, instruction {instruction}, {first}")
            lines += more[:_SHOWN] + ["  …"] * (len(more) > _SHOWN)
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


_SHOWN = 4  # groups of banks


def bank_conflicts(
    layout: Any, bits: int, vector: int | None = None, op: str = "ld", *, tv: Any = None
) -> BankConflicts:
    """The wavefronts of an access to shared memory; arguments and errors as for ``access``. The
    layout's first element is assumed to be at a multiple of 128 bytes.

    >>> print(bank_conflicts(Layout((8, 4), (64, 1)), bits=32))
    ld of 16 bytes, 1 request: 8 wavefronts, 1 without conflicts
    warp 0, instruction 0, lanes 0-7: 8 wavefronts
      banks 0-3: a word each for lanes 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7
    """
    return BankConflicts.of(access(layout, bits, vector, op, tv=tv))


def _phase_lanes(access: Access) -> Array:
    """The number of lanes in each request's phases."""
    lanes = min(LANES, WAVEFRONT // access.width)
    requests = access.requests()
    sizes = np.full(len(requests), lanes)
    if access.loads and not access.matrix and lanes < LANES:
        sizes[_paired(requests, 1) | _paired(requests, 2)] *= 2
    return sizes


def _paired(requests: Array, distance: int) -> Array:
    """Whether the active lanes ``n`` and ``n ^ distance`` have the same address."""
    partners = requests[:, np.arange(LANES) ^ distance]
    either_idle = (requests == NOBODY) | (partners == NOBODY)
    paired: Array = (either_idle | (requests == partners)).all(axis=1)
    return paired


def _count(requests: Array, size: int) -> tuple[Array, Array]:
    """(wavefronts, phases) of requests whose phases have ``size`` lanes.

    Vectors begin at multiples of their width, so those that share a bank share their first one.
    """
    words = np.sort((requests // WORD).reshape(-1, size), axis=1)
    new = words >= 0
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    phase, lane = np.nonzero(new)
    counts = np.bincount(phase * BANKS + words[phase, lane] % BANKS, minlength=len(words) * BANKS)
    wavefronts = counts.reshape(len(requests), -1, BANKS).max(axis=2)
    return wavefronts.sum(axis=1), (wavefronts > 0).sum(axis=1)


def _phase(addresses: Array, width: int, first: int, size: int) -> Phase:
    """The phase of the ``size`` lanes from ``first`` on."""
    active = [n for n in range(first, first + size) if addresses[n] != NOBODY]
    lanes: dict[int, list[int]] = {}
    for lane in active:
        address = int(addresses[lane]) // WORD * WORD
        for word in range(address, address + width, WORD):
            lanes.setdefault(word, []).append(lane)
    banks: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(BANKS)]
    for word in sorted(lanes):
        banks[word // WORD % BANKS].append((word, tuple(lanes[word])))
    return Phase(tuple(active), tuple(map(tuple, banks)))
