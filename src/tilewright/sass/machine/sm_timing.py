"""Timing model of an SM: when each warp's instructions are issued, and where cycles go.

Four schedulers issue one instruction a cycle each (on sm_5x a second one after a stall of 0): of
the same warp as before, else of the oldest; a warp that yields goes behind the others. An
instruction waits for its warp's stall, the barriers of its wait mask, its pipe, and the operands'
register banks. Shared memory is one pipe of the SM, global memory has a fixed latency: caches,
DRAM and clocks are not modelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..lint.register_banks import Slots, bank_conflicts, next_cached
from .code_paths import SassCode
from .hazards import dependency_barriers
from .instruction_properties import InstructionProperties, instruction_properties
from .measured_timing import measured_timing

SCHEDULERS = 4
Trace = Sequence[tuple[int, int]]  # (instruction, wavefronts in shared memory) in order of issue
_LATENCY = {"shared": 28, "global": 350, "texture": 350, "constant": 40, "local": 200,
            "generic": 350, "": 20}  # fmt: skip
# Cycles of the shared-memory pipe for the 32 words of a wavefront: maxas' microbenchmark on sm_5x
_WAVEFRONT = {52: 2, 80: 1, 90: 1}
_READ_CYCLES = 20  # after which sm_5x has read the operands of a memory instruction (maxas' wiki)
_MEASURED = 90  # the architecture whose latencies are measured
_FAR = ("global", "generic", "local")  # which cache an access hits is not modelled
_NEVER = 1 << 60


@dataclass
class TimingReport:
    """``cycles`` from the first issue to the last; ``issued`` instructions by mnemonic; ``lost``
    issue slots by reason: stall, barrier (scoreboard), pipe, bank, cta-barrier, exited.
    ``first_warp`` has (instruction, cycle of issue) of the first warp, in order.
    """

    cycles: int = 0
    issued: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    first_warp: list[tuple[int, int]] = field(default_factory=list)

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
        self.pipes: dict[tuple[int, str], int] = {}
        self.shared_free = 0
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
                self.report.lost[reason] += later - now - 1
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
        times.append((self.pipes.get((scheduler, row.pipe), 0), "pipe"))
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
        self.report.lost[min(waits)[1]] += 1
        return False

    def _issue(self, warp: _Warp, scheduler: int, now: int) -> None:
        index, wavefronts = warp.trace[warp.at]
        instruction, row = self.code.instructions[index], self.rows[index]
        control, text = instruction.control, instruction.text
        assert control is not None and text is not None and row is not None
        self.report.issued[row.mnemonic] += 1
        if warp is self.first:
            self.report.first_warp.append((index, now))
        conflicts = bank_conflicts(self.code.sm, text, warp.cached)
        warp.cached = next_cached(self.code.sm, text, warp.cached)
        self.pipes[scheduler, row.pipe] = now + row.interval + conflicts
        done = self._complete(row, text.opcode, wavefronts, now)
        read = min(done, now + _READ_CYCLES) if self.code.sm < 70 else done
        for barrier, at in ((control.write, done), (control.read, read)):
            warp.barriers[barrier] = max(warp.barriers[barrier], at)  # barrier 0 is none
        stall = control.stall if self.code.sm < 70 else max(1, control.stall)
        warp.ready = now + stall + conflicts
        warp.reason = "bank" if conflicts and stall <= 1 else "stall"
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
        elif stall == 0 and self._ready(warp, scheduler, now)[0] <= now and self.code.sm < 70:
            self._issue(warp, scheduler, now)

    def _complete(self, row: InstructionProperties, opcode: str, wavefronts: int, now: int) -> int:
        """The cycle in which a variable instruction's barrier is released."""
        if row.space == "shared":
            start = max(now, self.shared_free)
            self.shared_free = start + _WAVEFRONT[self.code.sm] * max(1, wavefronts)
            return self.shared_free + _LATENCY["shared"]
        known = self.code.sm == _MEASURED and row.space not in _FAR
        measured = measured_timing().chain(opcode) if known else None
        return now + (_LATENCY[row.space] if measured is None else round(measured))

    def _arrive(self, warp: _Warp, now: int) -> None:
        """A CTA barrier: the last warp of the CTA lets all go on."""
        come = self.waiting.setdefault(warp.cta, [])
        come.append(warp)
        resume, warp.ready, warp.reason = warp.ready, _NEVER, "cta-barrier"
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
