"""List scheduler: the order of a block's instructions, and their stalls and yields.

An instruction is ready when all it depends on is issued. Of the ready ones the one that stalls
least goes next; of these one of another pipe than the last, then the one with the longest path of
latencies to the block's end, then the first in the source. Barriers stay as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..control_code import ControlCode
from ..sass_text import parse_instruction
from .dependencies import Cover, DependencyEdge, dependencies
from .kernel_instruction import KernelInstruction
from .timing_table import TimingTable

_MAX_STALL = 15
_PAIRED_CONTROL = {"BAR", "BRA"}  # as in maxas' SGEMM


def schedule(
    timing: TimingTable,
    instructions: Sequence[KernelInstruction],
    order: Sequence[int] = (),
    cover: Cover | None = None,
) -> list[KernelInstruction]:
    """The instructions in the chosen order, each with its stall and yield.

    ``order`` numbers the ORDERED sections of a block, ``cover`` is ``barrier_cover`` of the kernel.
    The last instruction keeps the stall that the source gives it, or the least that lets all
    results of fixed latency be used after the block where that is longer.
    Raises SassError for an instruction whose properties are not known.
    """
    if not instructions:
        return []
    return _ListScheduler(
        timing, instructions, dependencies(timing, instructions, order, cover)
    ).run()


class _ListScheduler:
    """The state of one block: issue cycles, ready instructions, stalls."""

    def __init__(
        self,
        timing: TimingTable,
        instructions: Sequence[KernelInstruction],
        edges: Sequence[DependencyEdge],
    ) -> None:
        self.timing = timing
        self.instructions = instructions
        self.rows = [timing.row(x.text) for x in instructions]
        self.after: dict[int, list[DependencyEdge]] = defaultdict(list)
        self.missing = [0] * len(instructions)
        for edge in edges:
            self.after[edge.earlier].append(edge)
            self.missing[edge.later] += 1
        self.path = self._paths()
        self.earliest = [0] * len(instructions)
        self.pipe_free: dict[str, int] = defaultdict(int)
        self.issued: list[tuple[int, int]] = []  # (instruction, cycle)

    def _paths(self) -> list[int]:
        """The cycles from each instruction's issue to the last one's, over its dependents."""
        path = [0] * len(self.instructions)
        for i in reversed(range(len(self.instructions))):
            path[i] = max((e.cycles + path[e.later] for e in self.after[i]), default=0)
        return path

    def run(self) -> list[KernelInstruction]:
        """Issue all instructions."""
        ready = [i for i, count in enumerate(self.missing) if not count]
        while ready:
            chosen = min(ready, key=self._rank)
            ready.remove(chosen)
            cycle = self._cycle(chosen)
            self.issued.append((chosen, cycle))
            self.pipe_free[self.rows[chosen].pipe] = cycle + self.rows[chosen].interval
            for edge in self.after[chosen]:
                self.earliest[edge.later] = max(self.earliest[edge.later], cycle + edge.cycles)
                self.missing[edge.later] -= 1
                if not self.missing[edge.later]:
                    ready.append(edge.later)
        return self._with_stalls()

    def _rank(self, i: int) -> tuple[int, bool, int, int]:
        same = bool(self.issued) and self.rows[self.issued[-1][0]].pipe == self.rows[i].pipe
        return self._cycle(i), same, -self.path[i], i

    def _cycle(self, i: int) -> int:
        """The cycle at which an instruction could be issued next."""
        if not self.issued:
            return 0
        last, at = self.issued[-1]
        wanted = max(self.earliest[i], self.pipe_free[self.rows[i].pipe])
        wanted = max(wanted, at + self.instructions[last].minimum_stall)
        return max(wanted, at + (0 if self._pairs(last, i) else 1))

    def _pairs(self, first: int, second: int) -> bool:
        """Whether both are issued in one cycle; the first is not itself the second of a pair."""
        if len(self.issued) > 1 and self.issued[-1][1] == self.issued[-2][1]:
            return False
        return can_pair(self.timing, self.instructions[first], self.instructions[second])

    def _with_stalls(self) -> list[KernelInstruction]:
        found: list[KernelInstruction] = []
        cycles = [cycle for _, cycle in self.issued]
        for position, (i, cycle) in enumerate(self.issued):
            x = self.instructions[i]
            stall = x.control.stall
            if position + 1 < len(cycles):
                stall = cycles[position + 1] - cycle
            found += stalled(self.timing, x, max(stall, x.minimum_stall))
        return found


def can_pair(timing: TimingTable, first: KernelInstruction, second: KernelInstruction) -> bool:
    """Whether sm_5x issues two instructions in one cycle: the second is a memory or conversion
    instruction, BAR or BRA, the first is arithmetic; one of them may read a constant. The second
    may wait for barriers: maxas' SGEMM has such pairs.
    """
    rows = timing.row(first.text), timing.row(second.text)
    is_second = rows[1].dual or rows[1].mnemonic in _PAIRED_CONTROL
    if not timing.dual or not is_second or rows[0].dual:
        return False
    if rows[0].interval > 2 or rows[0].latency != "fixed" or rows[0].mnemonic in ("R2P", "P2R"):
        return False
    return not ("c[" in str(first.text) and "c[" in str(second.text))


def stalled(timing: TimingTable, x: KernelInstruction, stall: int) -> list[KernelInstruction]:
    """The instruction with a stall, and NOPs where one stall can't be that long; a jump comes
    after its NOPs.
    """
    is_control = timing.row(x.text).latency == "control"
    if is_control and x.text.opcode.split(".")[0] not in ("NOP", "DEPBAR"):
        stall = max(stall, timing.branch_stall)
    rest = max(0, stall - _MAX_STALL)
    nops = [_NOP for _ in range(rest // _MAX_STALL)] if rest else []
    nops += [_stall(timing, _NOP, rest % _MAX_STALL)] if rest % _MAX_STALL else []
    first = _stall(timing, x, min(stall, _MAX_STALL))
    nops = [_stall(timing, n, n.control.stall) for n in nops]
    return [*nops, first] if is_control else [first, *nops]


def _stall(timing: TimingTable, x: KernelInstruction, stall: int) -> KernelInstruction:
    yields = stall > timing.yield_above
    reuse = x.text.reuse if timing.reuse_yields or (stall and not yields) else 0
    control = replace(x.control, stall=stall, yields=yields)
    return replace(x, text=replace(x.text, reuse=reuse), control=control)


_NOP = KernelInstruction(parse_instruction("NOP"), ControlCode(_MAX_STALL), shown="NOP;")
