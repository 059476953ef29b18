"""Timing model of an SM: when each warp's instructions are issued, and where cycles go.

Four schedulers issue one instruction a cycle each (on sm_5x a second one after a stall of 0): of
the same warp as before, else of the oldest; a warp that yields goes behind the others. An
instruction waits for its warp's stall, the barriers of its wait mask, its pipe, and the operands'
register banks (``sm_pipes``). Shared memory is one pipe of the SM, global memory has a fixed
latency: caches, DRAM and clocks are not modelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..lint.register_banks import BANKS, Slots, next_cached
from .code_paths import SassCode
from .hazards import dependency_barriers
from .instruction_properties import InstructionProperties, instruction_properties
from .sm_pipes import bank_reads, sm_pipes

SCHEDULERS = 4
SlotSpan = tuple[int, int, str]
_SHOWN = ("fma", "alu", "fma_heavy", "memory")  # pipes with a colour of their own
Trace = Sequence[tuple[int, int]]  # (instruction, wavefronts in shared memory) in order of issue
_BRANCH = {90: 2}  # cycles that a jump adds to its stall
_RELEASE = {90: (6, 2, 16)}  # cycles from the last arrival at a CTA barrier: a + b warps, at most c
_NEVER = 1 << 60


@dataclass
class TimingReport:
    """``cycles`` from the first issue to the last; ``issued`` instructions by mnemonic; ``lost``
    issue slots by reason: stall, barrier (scoreboard), pipe, bank, cta-barrier, exited.
    ``first_warp`` has (instruction, cycle of issue) of the first warp, in order. ``slots`` are the
    spans of each scheduler: (first cycle, cycle after the last, the pipe that an instruction was
    issued to or why the slot was lost). ``bank_reads`` are scheduler 0's: (cycle, registers read
    from each bank).
    """

    cycles: int = 0
    issued: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    first_warp: list[tuple[int, int]] = field(default_factory=list)
    slots: list[list[SlotSpan]] = field(default_factory=lambda: [[] for _ in range(SCHEDULERS)])
    bank_reads: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def lose(self, scheduler: int, start: int, cycles: int, reason: str) -> None:
        """Count slots that are lost."""
        self.lost[reason] += cycles
        self.note(scheduler, start, start + cycles, reason)

    def note(self, scheduler: int, start: int, end: int, kind: str) -> None:
        """Add a span, to the one before where that is of its kind."""
        spans = self.slots[scheduler]
        if start == end:
            return
        if spans and spans[-1][1:] == (start, kind):
            spans[-1] = (spans[-1][0], end, kind)
        else:
            spans.append((start, end, kind))

    def utilisation(self, mnemonic: str = "FFMA") -> float:
        """The share of issue slots that a mnemonic takes."""
        return self.issued[mnemonic] / (SCHEDULERS * max(1, self.cycles))


@dataclass
class _Warp:
    trace: Trace
    cta: int
    at: int = 0
    ready: int = 0
    reason: str = "stall"
    barriers: list[int] = field(default_factory=lambda: [0] * 7)  # cycle of completion
    cached: Slots = ()


def simulate(code: SassCode, ctas: Sequence[Sequence[Trace]]) -> TimingReport:
    """The cycles of CTAs that are resident together, from the traces of their warps
    (``SassMachine.run(…, trace=True)`` keeps them).
    """
    return _Simulation(code, ctas).run()


class _Simulation:
    def __init__(self, code: SassCode, ctas: Sequence[Sequence[Trace]]) -> None:
        self.code = code
        self.warps = [_Warp(t, c) for c, traces in enumerate(ctas) for t in traces if len(t)]
        self.first = self.warps[0] if self.warps else None
        self.left = Counter(w.cta for w in self.warps)
        self.waiting: dict[int, list[_Warp]] = {}
        self.queues = [self.warps[i::SCHEDULERS] for i in range(SCHEDULERS)]
        self.pipes = sm_pipes(code.sm)
        self.last: list[_Warp | None] = [None] * SCHEDULERS
        self.report = TimingReport()
        self.rows: list[InstructionProperties | None] = [
            instruction_properties(code.sm, x.text.opcode) if x.text else None
            for x in code.instructions
        ]

    def run(self) -> TimingReport:
        now = 0
        while any(self.left.values()):
            issued = False
            for scheduler, queue in enumerate(self.queues):
                if queue:
                    issued |= self._slot(scheduler, queue, now)
            now = now + 1 if issued else self._next(now)
        self.report.cycles = now
        return self.report

    def _next(self, now: int) -> int:
        """The next cycle in which a warp may be ready; the slots until then are lost."""
        times = [self._ready(w, i, now)[0] for i, q in enumerate(self.queues) for w in q]
        later = min((t for t in times if now < t < _NEVER), default=now + 1)
        for scheduler, queue in enumerate(self.queues):
            if queue:
                reason = min(self._ready(w, scheduler, now) for w in queue)[1]
                self.report.lose(scheduler, now + 1, later - now - 1, reason)
        return later

    def _ready(self, warp: _Warp, scheduler: int, now: int) -> tuple[int, str]:
        """(cycle from which a warp's next instruction can be issued, what it waits for)."""
        index = warp.trace[warp.at][0]
        row, control = self.rows[index], self.code.instructions[index].control
        if row is None or control is None or warp.ready >= now + 1:
            return warp.ready, warp.reason
        times = [(warp.ready, warp.reason)]
        times += [(warp.barriers[b], "barrier") for b in range(1, 7) if control.wait >> b - 1 & 1]
        text = self.code.instructions[index].text
        if text is not None and row.mnemonic == "DEPBAR":
            times += [(warp.barriers[b], "barrier") for b, left in dependency_barriers(text)
                      if not left]  # fmt: skip
        if text is not None:
            times.append(self.pipes.free(scheduler, row, text, warp.cached))
        return max(times)

    def _slot(self, scheduler: int, queue: list[_Warp], now: int) -> bool:
        """Issue from one scheduler: the same warp as before if it can, else the first that can."""
        last = self.last[scheduler]
        order = sorted(queue, key=lambda w: w is not last)
        waits = []
        for warp in order:
            time, reason = self._ready(warp, scheduler, now)
            if time <= now:
                self._issue(warp, scheduler, now)
                return True
            waits.append((time, reason))
        self.report.lose(scheduler, now, 1, min(waits)[1])
        return False

    def _issue(self, warp: _Warp, scheduler: int, now: int) -> None:
        index, wavefronts = warp.trace[warp.at]
        instruction, row = self.code.instructions[index], self.rows[index]
        control, text = instruction.control, instruction.text
        assert control is not None and text is not None and row is not None
        self.report.issued[row.mnemonic] += 1
        pipe = row.pipe if row.pipe in _SHOWN else "other"
        self.report.note(scheduler, now, now + 1, pipe)
        if not scheduler:
            reads = bank_reads(self.code.sm, text, warp.cached)
            self.report.bank_reads.append(
                (now, tuple(reads[b] for b in range(BANKS[self.code.sm][0])))
            )
        if warp is self.first:
            self.report.first_warp.append((index, now))
        done = self.pipes.issue(scheduler, row, text, warp.cached, wavefronts, now)
        warp.cached = next_cached(self.code.sm, text, warp.cached)
        for barrier, cycle in ((control.write, done.written), (control.read, done.read)):
            if barrier:
                warp.barriers[barrier] = max(warp.barriers[barrier], cycle)
        stall = control.stall if self.code.sm < 70 else max(1, control.stall)
        warp.ready = now + stall + done.conflicts
        warp.reason = "bank" if done.conflicts and stall <= 1 else "stall"
        warp.at += 1
        self.last[scheduler] = warp
        if control.yields:
            self.last[scheduler] = None
            self.queues[scheduler].remove(warp)
            self.queues[scheduler].append(warp)
        if warp.at == len(warp.trace):
            self._finish(warp, scheduler)
        elif row.mnemonic == "BAR":
            self._arrive(warp, now)
        elif warp.trace[warp.at][0] != index + 1:
            warp.ready += _BRANCH.get(self.code.sm, 0)
        elif stall == 0 and self._ready(warp, scheduler, now)[0] <= now and self.code.sm < 70:
            self._issue(warp, scheduler, now)

    def _arrive(self, warp: _Warp, now: int) -> None:
        """A CTA barrier: the last warp of the CTA lets all go on."""
        come = self.waiting.setdefault(warp.cta, [])
        come.append(warp)
        resume, warp.ready, warp.reason = warp.ready, _NEVER, "cta-barrier"
        if self.code.sm in _RELEASE:
            first, each, most = _RELEASE[self.code.sm]
            resume = max(resume, now + min(most, first + each * self.left[warp.cta]))
        if len(come) == self.left[warp.cta]:
            for other in come:
                other.ready = resume
            come.clear()

    def _finish(self, warp: _Warp, scheduler: int) -> None:
        self.left[warp.cta] -= 1
        self.queues[scheduler].remove(warp)
        come = self.waiting.get(warp.cta, [])
        if come and len(come) == self.left[warp.cta]:
            for other in come:
                other.ready = 0
            come.clear()
