"""Where each instruction of a kernel went when its code was edited."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ..errors import CubinError


@dataclass(frozen=True)
class CodeMotion:
    """``offsets`` maps a kept instruction's old byte offset to its new one, in old order;
    ``old_size`` and ``new_size`` are the bytes of the code before and after.

    A removed instruction is absent from ``offsets``; an inserted one belongs to the line and the
    call frame of the instruction before it.
    """

    offsets: dict[int, int]
    old_size: int
    new_size: int

    @classmethod
    def from_origins(
        cls, origins: Sequence[int | None], positions: Sequence[int], old_size: int, new_size: int
    ) -> CodeMotion:
        """From the new instructions in order: each one's old offset (None: inserted), and its
        new offset.
        """
        pairs = zip(origins, positions, strict=True)
        found = sorted((old, new) for old, new in pairs if old is not None)
        if len({old for old, _ in found}) < len(found):
            raise CubinError("an instruction must be kept at most once, got one twice")
        return cls(dict(found), old_size, new_size)

    @cached_property
    def _starts(self) -> list[int]:
        return sorted(self.offsets)

    @cached_property
    def is_identity(self) -> bool:
        """Whether nothing moved, grew or was removed."""
        return self.old_size == self.new_size and all(a == b for a, b in self.offsets.items())

    @cached_property
    def keeps_order(self) -> bool:
        """Whether no two kept instructions changed places."""
        moved = [self.offsets[start] for start in self._starts]
        return all(a < b for a, b in pairwise(moved))

    def instruction(self, offset: int) -> int | None:
        """The new offset of the instruction at ``offset``; None if it was removed."""
        return self.offsets.get(offset)

    def address(self, offset: int) -> int:
        """The new offset of a code address: of the first kept instruction from there on, else the
        end of the code. The start of the code stays: what is inserted there comes first.
        """
        if not offset:
            return 0
        at = bisect_left(self._starts, offset)
        if offset > self.old_size:
            raise CubinError(f"a code address must be at most {self.old_size:#x}, got {offset:#x}")
        return self.offsets[self._starts[at]] if at < len(self._starts) else self.new_size
