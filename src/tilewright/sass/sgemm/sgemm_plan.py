"""Shape of the SGEMM for Maxwell: how threads, shared memory and registers share a tile.

C = alpha·AᵀB, with A stored K × M, B stored K × N, both row-major, and C column-major (m + n·ldc).
A CTA computes a tile of ``tile`` × ``tile`` elements in steps of 8 along K, a thread 8 × 8 of them:
four blocks of 4 × 4, half a tile apart, so that its loads from shared memory are 16 bytes wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...errors import SassError

STEP = 8  # rows of K in a buffer of shared memory
_SWIRL = ((2, 0), (2, 1), (0, 1), (0, 0))


@dataclass(frozen=True)
class SgemmPlan:
    """A variant: ``tile`` of 64 (64 threads) or 128 (256 threads), ``loads`` through "texture" or
    "global" memory instructions, their addresses in one ``track`` register each or (False) in one
    for all, FFMAs in "swirl" or "zigzag" ``order``.

    Raises SassError for other values.
    """

    tile: int = 128
    loads: str = "texture"
    tracks: bool = True
    order: str = "swirl"

    def __post_init__(self) -> None:
        allowed = {"tile": (64, 128), "loads": ("texture", "global"), "tracks": (True, False),
                   "order": ("swirl", "zigzag")}  # fmt: skip
        for name, values in allowed.items():
            got = getattr(self, name)
            if got not in values or type(got) is not type(values[0]):
                known = " or ".join(map(str, values))
                raise SassError(f"{name} of an SGEMM must be {known}, got {got!r}")

    @property
    def name(self) -> str:
        """The kernel's name."""
        tracks = "tracks" if self.tracks else "track"
        return f"sgemm{self.tile}_{self.loads}_{tracks}_{self.order}"

    @property
    def threads(self) -> int:
        """Threads of a CTA; the first half loads A, the second B."""
        return self.tile * self.tile // 64

    @property
    def row_threads(self) -> int:
        """Threads that load a row of the tile, 4 elements each."""
        return self.tile // 4

    @property
    def load_rows(self) -> int:
        """Rows that one load of all threads fetches."""
        return self.threads // 2 // self.row_threads

    @property
    def load_count(self) -> int:
        """Loads of a thread for a step: 4 for 64 × 64, 2 for 128 × 128."""
        return STEP // self.load_rows

    @property
    def matrix_bytes(self) -> int:
        """Shared memory of one step of A or B; a buffer is twice that, and there are two."""
        return STEP * self.tile * 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA."""
        return 4 * self.matrix_bytes

    @property
    def track_count(self) -> int:
        """The registers (pairs, for global loads) that follow A's or B's rows."""
        return self.load_count if self.tracks else 1

    @staticmethod
    def accumulator_bank(x: int, y: int) -> int:
        """The register bank of C's element (x, y) of a thread: not x % 4 and not y % 4, where the
        factors are, and 16 elements in each of the four banks.
        """
        return 3 - x % 4 // 2 * 2 - y % 2

    @cached_property
    def ffma_order(self) -> tuple[tuple[int, int], ...]:
        """(x, y) of a thread's 64 FFMAs of one row of K, in order: 0 to 3 are the first block's
        rows or columns, 4 to 7 those half a tile further.
        """
        found: list[tuple[int, int]] = []
        if self.order == "zigzag":
            columns = list(range(8))
            for y in range(8):
                found += [(x, y) for x in columns]
                columns.reverse()
            return tuple(found)
        columns = [0, 1, 4, 5]
        for y in (0, 2, 4, 6):
            found += [(x + dx, y + dy) for x in columns for dx, dy in _SWIRL]
            columns.reverse()
        return tuple(found)
