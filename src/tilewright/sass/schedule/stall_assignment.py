"""Stalls and yields for an order of instructions: the least that cover all fixed latencies.

Every path is followed: an instruction's age is what has passed since its issue on the shortest way.
Where a result would be read or overwritten too early, the instruction before is stalled longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ..machine.latencies import MAX_LATENCY
from ..machine.register_effects import Register, register_effects
from .kernel_instruction import KernelInstruction
from .list_scheduler import can_pair
from .liveness import successors
from .timing_table import TimingTable

_BARRIER = "barrier"  # stands for a register file: its registers are the six barriers
_ISSUE = ("issue", 0)  # stands for a register: an instruction that others keep a distance to
Ages = dict[tuple[Register, int], int]  # (register, its writer): cycles since the writer's issue


def least_stalls(
    timing: TimingTable,
    instructions: Sequence[KernelInstruction],
    labels: Mapping[str, int],
) -> list[int]:
    """The stall of each instruction; 0 where sm_5x issues it with the next one. May exceed 15.

    Barriers that are set and waited for by the next instruction are given time.
    Raises SassError for an instruction whose properties are not known.
    """
    return _StallSearch(timing, instructions, labels).run()


class _StallSearch:
    """Repeats passes over the code until no stall grows."""

    def __init__(
        self,
        timing: TimingTable,
        instructions: Sequence[KernelInstruction],
        labels: Mapping[str, int],
    ) -> None:
        self.timing = timing
        self.instructions = instructions
        self.effects = [register_effects(timing.sm, x.text) for x in instructions]
        self.stalls = self._first_stalls()
        self.before: dict[int, list[int]] = defaultdict(list)  # predecessors
        for i, following in enumerate(successors(instructions, labels)):
            for j in following:
                self.before[j].append(i)
        self.after: list[Ages | None] = [None for _ in instructions]

    def _least(self, x: KernelInstruction) -> int:
        row = self.timing.row(x.text)
        is_jump = row.latency == "control" and row.mnemonic not in ("NOP", "DEPBAR")
        return max(1, x.minimum_stall, self.timing.branch_stall if is_jump else 1)

    def _first_stalls(self) -> list[int]:
        """The stalls that do not come from dependencies."""
        stalls = [self._least(x) for x in self.instructions]
        for i, (x, following) in enumerate(pairwise(self.instructions)):
            paired = i > 0 and not stalls[i - 1]
            if not paired and can_pair(self.timing, x, following) and not x.minimum_stall:
                stalls[i] = 0
        return stalls

    def run(self) -> list[int]:
        """The stalls."""
        changed = True
        while changed:
            changed = False
            for i in range(len(self.instructions)):
                changed |= self._visit(i)
        return self.stalls

    def _visit(self, i: int) -> bool:
        """Stall what comes before an instruction as needed; True if anything changed."""
        changed = False
        ages: Ages = {}
        for j in self.before[i]:
            after = self.after[j]
            if after is None:
                continue
            short = max([0, *self._missing(j, i, after)])
            if short:
                self.stalls[j] += short
                changed = True
            for key, age in after.items():
                passed = age + self.stalls[j]
                if passed < MAX_LATENCY:
                    ages[key] = min(passed, ages.get(key, passed))
        for register in self.effects[i].writes:
            for key in [k for k in ages if k[0] == register]:
                del ages[key]
            if not self.timing.is_variable(self.instructions[i].text):
                ages[register, i] = 0
        control = self.instructions[i].control
        for barrier in {control.read, control.write} - {0}:
            ages[(_BARRIER, barrier), i] = 0
        if self.timing.keeps_distance(self.instructions[i].text):
            ages[_ISSUE, i] = 0
        if ages != self.after[i]:
            self.after[i] = ages
            changed = True
        return changed

    def _missing(self, j: int, i: int, after: Ages) -> list[int]:
        """The cycles that must be added to j's stall so that i may follow."""
        found = []
        effects = self.effects[i]
        mine = self.instructions[i]
        used = effects.reads | effects.guards
        for (register, writer), age in after.items():
            made = self.instructions[writer].text
            needed = 0
            if register[0] == _BARRIER and mine.control.wait >> register[1] - 1 & 1:
                needed = self.timing.barrier_delay
            if register == _ISSUE:
                needed = self.timing.distance(made, mine.text)
            if register in used:
                needed = self.timing.latency(made, mine.text, register)
            if register in effects.writes:
                needed = max(needed, self.timing.write_order(made, mine.text, register))
            found.append(needed - age - self.stalls[j])
        return found
