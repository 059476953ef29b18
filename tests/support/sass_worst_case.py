"""The worst timing of a warp's run: what each instruction finds where all results and reads of
operands come as late as the control codes allow.

It follows the instructions that a warp issued (a trace), not the paths of the code, and shares no
state with ``tilewright.sass.machine.hazards``: a proof that a change of control codes is harmless,
that the hazard check did not make.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.sass.machine.code_paths import SassCode
from tilewright.sass.machine.hazards import dependency_barriers
from tilewright.sass.machine.instruction_properties import (
    InstructionProperties,
    instruction_properties,
)
from tilewright.sass.machine.latencies import (
    GUARD,
    own_latency,
    result_latency,
    wide_gain,
)
from tilewright.sass.machine.register_effects import Register, register_effects
from tilewright.sass.sass_text import ALWAYS


@dataclass(frozen=True)
class Use:
    """An instruction's result or operand in flight: ``place`` in the trace, ``cycle`` of issue."""

    place: int
    index: int
    cycle: int
    row: InstructionProperties


class WorstCase:
    """``breaches`` are (instruction, register) that find a value not yet there; ``covered`` tells
    for each (producer, instruction) how its value was known to be there.
    """

    def __init__(self, code: SassCode, trace: Iterable[int]) -> None:
        self.code = code
        self.writes: dict[Register, Use] = {}
        self.reads: defaultdict[Register, list[Use]] = defaultdict(list)
        self.signals: defaultdict[int, list[tuple[str, Use]]] = defaultdict(list)
        self.breaches: set[tuple[int, str]] = set()
        self.covered: dict[tuple[int, int], str] = {}
        self.done: dict[tuple[str, int], str] = {}  # of (kind, place): which wait completed it
        self.cycle = 0
        for place, index in enumerate(trace):
            self._issue(place, index)

    def _issue(self, place: int, index: int) -> None:
        text, control = self.code.instructions[index].text, self.code.instructions[index].control
        assert text is not None and control is not None
        row = instruction_properties(self.code.sm, text.opcode)
        effects = register_effects(self.code.sm, text)
        self._wait(index)
        for registers, role in ((effects.reads, "source"), (effects.guards, GUARD)):
            for register in registers:
                self._check_read(index, register, role, row)
        for register in effects.writes:
            self._check_write(index, register, row)
        use = Use(place, index, self.cycle, row)
        for register in effects.writes:
            if row.latency == "fixed" or row.is_variable:
                self.writes[register] = use
        if row.is_variable:
            for register in effects.reads:
                if register[0] == "R":
                    self.reads[register].append(use)
        if control.write:
            self.signals[control.write].append(("write", use))
        if control.read:
            self.signals[control.read].append(("read", use))
        self.cycle += control.stall if self.code.sm < 70 else max(1, control.stall)

    # --- barriers ---------------------------------------------------------------------------------

    def _wait(self, index: int) -> None:
        control, text = self.code.instructions[index].control, self.code.instructions[index].text
        assert control is not None and text is not None
        waits = [(b, 0) for b in range(1, 7) if control.wait >> b - 1 & 1]
        if any(self.cycle - u.cycle < 2 for b, _ in waits for _, u in self.signals[b][-1:]):
            self.breaches.add((index, "barrier"))
        if text.opcode.startswith("DEPBAR"):
            waits += dependency_barriers(text)
        if self.code.sm < 70 and text.opcode.startswith("BAR"):  # stores have read their operands
            for use in [u for found in self.reads.values() for u in found]:
                if use.row.is_memory and not use.row.outputs:
                    self.done.setdefault(("read", use.place), "BAR waits for stores")
        for barrier, left in waits:
            signals = self.signals[barrier]
            for kind, use in signals[: len(signals) - left]:
                self._complete(kind, use, f"wait for {barrier} at {self.code.offsets[index]:#x}")
            del signals[: len(signals) - left]

    def _complete(self, kind: str, last: Use, how: str) -> None:
        """What a signal tells: its instruction's operands are read, and results written; those of
        earlier instructions of its queue as well.
        """
        for what in ("write", "read") if kind == "write" else ("read",):
            queue = _queue(last.row, what)
            reads = [use for found in self.reads.values() for use in found]
            uses = list(self.writes.values()) if what == "write" else reads
            for use in uses:
                same = use.place == last.place or (
                    queue and use.place < last.place and _queue(use.row, what) == queue
                )
                if use.row.is_variable and same:
                    through = "" if use.place == last.place else (
                        f" of {self.code.offsets[last.index]:#x}, later in its queue")  # fmt: skip
                    self.done.setdefault((what, use.place), how + through)
        if kind == "read":  # a predicate result comes with the operands
            for register, use in self.writes.items():
                if use.place == last.place and register[0] == "P":
                    self.done.setdefault(("write", use.place), how)
        for register, found in list(self.reads.items()):
            self.reads[register] = [u for u in found if ("read", u.place) not in self.done]

    # --- checks -----------------------------------------------------------------------------------

    def _check_read(
        self, index: int, register: Register, role: str, row: InstructionProperties
    ) -> None:
        use = self.writes.get(register)
        if use is None:
            return
        if use.row.is_variable:
            self._require(index, register, "write", use)
            return
        age = self.cycle - use.cycle
        needed = result_latency(self.code.sm, register[0], use.row, row, role)
        needed -= self._gain(use.index, index, register)
        if age < needed:
            self.breaches.add((index, f"{register[0]}{register[1]}"))
        self.covered.setdefault((use.index, index), f"{age} cycles of {needed}")

    def _gain(self, producer: int, consumer: int, register: Register) -> int:
        """IMAD.WIDE writes its low register early and reads its addend (the last operand) late."""
        made, used = (self.code.instructions[i].text for i in (producer, consumer))
        assert made is not None and used is not None
        is_low = made.operands[0].numbers[:1] == (register[1],)
        base = used.operands[-1].numbers[:1] if used.operands else ()
        is_addend = bool(base) and register[1] - int(base[0]) in (0, 1)
        if register[0] != "R":
            return 0
        return wide_gain(made.opcode, is_low, False) + wide_gain(used.opcode, False, is_addend)

    def _check_write(self, index: int, register: Register, row: InstructionProperties) -> None:
        use = self.writes.get(register)
        if use is not None and not self._are_alternatives(use.index, index):
            if use.row.is_variable:
                if not (row.is_variable and row.queue and row.queue == use.row.queue):
                    self._require(index, register, "write", use)
            elif row.latency == "fixed":
                first, second = (own_latency(self.code.sm, r, register[0]) for r in (use.row, row))
                if self.cycle - use.cycle < first - second:
                    self.breaches.add((index, f"{register[0]}{register[1]}"))
        for reader in self.reads.get(register, []):
            queue = _queue(reader.row, "read")
            if not (row.is_variable and queue and _queue(row, "read") == queue):
                self._require(index, register, "read", reader)

    def _require(self, index: int, register: Register, kind: str, use: Use) -> None:
        how = self.done.get((kind, use.place))
        if how is None and not self._are_alternatives(use.index, index):
            self.breaches.add((index, f"{register[0]}{register[1]}"))
        self.covered.setdefault((use.index, index), how or "not at all")

    def _are_alternatives(self, first: int, second: int) -> bool:
        a, b = self.code.instructions[first].text, self.code.instructions[second].text
        assert a is not None and b is not None
        return a.guard == b.guard != ALWAYS and a.negated != b.negated


def _queue(row: InstructionProperties, kind: str) -> str:
    """The in-order queue of results ("write") or of operands ("read")."""
    return "memory" if kind == "read" and row.pipe == "memory" else row.queue
