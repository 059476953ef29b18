"""What is still in flight at a point of a program: results and reads that are not yet complete.

For each register the state holds the instructions that have it in use. A fixed result has its age
in cycles; a variable instruction's write or read has the barriers that cover it, each with the
number of later instructions that signal the same barrier (DEPBAR waits until few are left).
"""

from __future__ import annotations

from .register_effects import Register

FIXED, WRITE, READ = "fixed", "write", "read"
Cover = tuple[tuple[int, int], ...]  # (barrier, later instructions on it), by barrier
Use = tuple[str, int]  # (fixed, write or read; the instruction's index)


class PendingState:
    """The uses of each register at one point; ``merge`` joins the states of two paths."""

    __slots__ = ("active", "issued", "uses")

    def __init__(self) -> None:
        self.uses: dict[Register, dict[Use, int | Cover]] = {}
        self.active: dict[int, int] = {}  # barriers signalled by the last instructions: age
        self.issued: dict[int, int] = {}  # instructions that others keep a distance to: age

    def copy(self) -> PendingState:
        """A state of its own."""
        new = PendingState()
        new.uses = {register: dict(uses) for register, uses in self.uses.items()}
        new.active, new.issued = dict(self.active), dict(self.issued)
        return new

    def merge(self, other: PendingState) -> bool:
        """Add another path's uses: the younger age, the barriers of both. True if changed."""
        changed = False
        for register, uses in other.uses.items():
            known = self.uses.setdefault(register, {})
            for use, value in uses.items():
                joined = value if use not in known else _joined(known[use], value)
                if use not in known or joined != known[use]:
                    known[use] = joined
                    changed = True
        for mine, theirs in ((self.active, other.active), (self.issued, other.issued)):
            for number, age in theirs.items():
                if age < mine.get(number, 1 << 30):
                    mine[number] = age
                    changed = True
        return changed

    def advance(self, cycles: int, limit: int, farthest: int) -> None:
        """Let cycles pass; fixed results older than ``limit`` are complete, and to instructions
        issued ``farthest`` ago no other keeps a distance.
        """
        for register in list(self.uses):
            uses = self.uses[register]
            for use in [u for u in uses if u[0] == FIXED]:
                age = uses[use]
                assert isinstance(age, int)
                if age + cycles >= limit:
                    del uses[use]
                else:
                    uses[use] = age + cycles
            if not uses:
                del self.uses[register]
        if self.active:
            self.active = {b: age + cycles for b, age in self.active.items() if age + cycles < 2}
        if self.issued:
            aged = {i: age + cycles for i, age in self.issued.items()}
            self.issued = {i: age for i, age in aged.items() if age < farthest}

    def add(self, register: Register, use: Use, value: int | Cover) -> None:
        """A new use of a register."""
        self.uses.setdefault(register, {})[use] = value

    def wait(self, barrier: int, left: int = 0) -> None:
        """Complete what a barrier covers, but for its last ``left`` instructions."""
        for register in list(self.uses):
            uses = self.uses[register]
            for use in [u for u in uses if u[0] != FIXED]:
                cover = uses[use]
                assert isinstance(cover, tuple)
                if any(b == barrier and later >= left for b, later in cover):
                    del uses[use]
            if not uses:
                del self.uses[register]

    def forget(self, complete: set[Use]) -> None:
        """Complete the given uses of all registers."""
        for register in list(self.uses):
            kept = {u: v for u, v in self.uses[register].items() if u not in complete}
            if kept:
                self.uses[register] = kept
            else:
                del self.uses[register]

    def signal(self, barrier: int, queued: set[int], kind: str) -> None:
        """A new instruction signals ``barrier``: uses of this ``kind`` on it are followed by one
        more, and those of the same in-order queue (``queued``, by index) are covered by it too.
        """
        for uses in self.uses.values():
            for use, value in uses.items():
                if use[0] != kind:
                    continue
                assert isinstance(value, tuple)
                cover = {b: later + (b == barrier) for b, later in value}
                if use[1] in queued:
                    cover.setdefault(barrier, 0)
                uses[use] = tuple(sorted(cover.items()))

    def replace_writer(self, register: Register) -> None:
        """Forget complete or superseded fixed writes of a register that is written again."""
        uses = self.uses.get(register)
        if uses:
            for use in [u for u in uses if u[0] == FIXED]:
                del uses[use]


def _joined(a: int | Cover, b: int | Cover) -> int | Cover:
    if isinstance(a, int):
        assert isinstance(b, int)
        return min(a, b)
    assert isinstance(b, tuple)
    theirs = dict(b)
    return tuple((barrier, min(n, theirs[barrier])) for barrier, n in a if barrier in theirs)
