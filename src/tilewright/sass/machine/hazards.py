"""Hazards that control codes must cover, found on every path through a function's code.

The hardware does not interlock: a result may be used only after its fixed latency, or after a wait
for its write barrier; an operand of a variable-latency instruction may be overwritten only after a
wait for its read barrier. ``hazards`` follows all paths to a fixed point and reports each breach.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ..code_listing import decode_code
from ..cubin_file import CubinFile, check_cubin
from ..encoding_table import encoding_table
from ..finding import SassFinding
from ..nv_info import BRANCH_TARGETS, branch_targets
from ..sass_text import ALWAYS, SassText
from .code_paths import SassCode, Stack
from .instruction_properties import InstructionProperties, instruction_properties
from .latencies import (
    DISTANCES,
    GUARD,
    MAX_DISTANCE,
    MAX_LATENCY,
    PUSHES,
    issue_distance,
    own_latency,
    result_latency,
    wide_gain,
)
from .pending import FIXED, READ, WRITE, PendingState
from .register_effects import Register, RegisterEffects, register_effects

_VISITS = 40  # joins of one node before its state counts as stable
_DEFER = ".DEFER_BLOCKING"
_MIN_BARRIER_STALL = 2  # cycles from an instruction's issue until its barrier can be waited for


def function_code(cubin: CubinFile, name: str) -> SassCode:
    """A function's decoded code with the targets of its indirect branches.

    Raises SassError for an architecture without a table, CubinError for an unknown function and
    for other types than ``CubinFile``.
    """
    check_cubin(cubin)
    decoded = decode_code(encoding_table(cubin.sm), cubin.code(name))
    indirect: dict[int, tuple[int, ...]] = {}
    for attribute in cubin.attributes(name):
        if attribute.code == BRANCH_TARGETS:
            indirect |= {at: targets for at, _, targets in branch_targets(attribute)}
    return SassCode.of(cubin.sm, decoded, indirect)


def hazards(code: SassCode) -> list[SassFinding]:
    """All hazards of a function, by address. Of a word without an encoding only the control code
    counts. Raises SassError for an instruction whose properties are not known.
    """
    return sorted(_HazardSearch(code).run())


def dependency_barriers(text: SassText) -> list[tuple[int, int]]:
    """(barrier 1 to 6, instructions that may be left) of DEPBAR: ``SB0, 0x1`` and ``{2,1}``."""
    found = [
        (int(number) + 1, 0)
        for operand in text.operands
        if operand.marks.startswith("{")
        for number in re.findall(r"\d", operand.marks)
    ]
    first = text.operands[0] if text.operands else None
    if first is not None and first.kind == "SB#":
        found.append((int(first.numbers[0]) + 1, int(text.operands[1].numbers[0])))
    return found


class _HazardSearch:
    """The fixed-point iteration over (instruction, stack) nodes."""

    def __init__(self, code: SassCode) -> None:
        self.code = code
        self.sm = code.sm
        self.rows: list[InstructionProperties | None] = []
        self.effects: list[RegisterEffects | None] = []
        for instruction in code.instructions:
            text = instruction.text
            known = text is not None and instruction.control is not None
            self.rows.append(
                instruction_properties(self.sm, text.opcode) if known and text else None
            )
            self.effects.append(register_effects(self.sm, text) if known and text else None)
        self.queues: dict[tuple[str, str], set[int]] = defaultdict(set)
        for i, row in enumerate(self.rows):
            for kind in (WRITE, READ) if row is not None else ():
                self.queues[kind, _queue(row, kind)].add(i)
        self.stores = [
            i for i, row in enumerate(self.rows) if row and row.is_memory and not row.outputs
        ]
        self.found: dict[tuple[int, str, str], SassFinding] = {}

    def run(self) -> set[SassFinding]:
        """Iterate until no state changes."""
        states: dict[tuple[int, Stack], PendingState] = {}
        visits: dict[tuple[int, Stack], int] = defaultdict(int)
        work: list[tuple[int, Stack]] = []
        leaders = self._leaders()
        for start in reversed(self.code.starts()):
            states[start, ()] = PendingState()
            work.append((start, ()))
        while work:
            node = work.pop()
            for following, state in self._block(node, states[node].copy(), leaders):
                known = states.get(following)
                if known is None:
                    states[following] = state
                elif visits[following] > _VISITS or not known.merge(state):
                    continue
                visits[following] += 1
                work.append(following)
        return set(self.found.values())

    def _leaders(self) -> set[int]:
        """Instructions at which states of several paths may meet."""
        code = self.code
        targets = {t for i in range(len(code.offsets)) if (t := code.target(i)) is not None}
        return targets | set(code.starts())

    def _block(
        self, node: tuple[int, Stack], state: PendingState, leaders: set[int]
    ) -> list[tuple[tuple[int, Stack], PendingState]]:
        """Run from a node to the next branch or leader: the nodes that follow, with their state."""
        index, stack = node
        while True:
            self._issue(index, state)
            following = list(self.code.successors(index, stack))
            if len(following) == 1 and following[0][0] not in leaders:
                index, stack = following[0]
                continue
            return [(n, state if len(following) == 1 else state.copy()) for n in following]

    def _issue(self, index: int, state: PendingState) -> None:
        """Check one instruction against what is pending, and add what it leaves pending."""
        instruction = self.code.instructions[index]
        row, effects, control = self.rows[index], self.effects[index], instruction.control
        if control is None:
            return
        self._waits(index, state)
        if row is not None and effects is not None:
            if state.issued:
                self._check_distances(index, row, state)
            self._check_reads(index, row, effects, state)
            self._check_writes(index, row, effects, state)
            self._leave(index, row, effects, state)
        stall = control.stall
        if self.sm >= 70 and not stall:
            stall = 1
            if control.yields:  # until it is complete: so ptxas -O0 does without barriers
                stall = MAX_LATENCY
                state.forget({(WRITE, index), (READ, index)})
        state.advance(stall, MAX_LATENCY, MAX_DISTANCE)
        signals = {control.write, control.read} - {0}
        if row is None or row.mnemonic != "USETMAXREG":
            state.active.update({b: stall for b in signals if stall < _MIN_BARRIER_STALL})

    def _waits(self, index: int, state: PendingState) -> None:
        instruction = self.code.instructions[index]
        control, text = instruction.control, instruction.text
        assert control is not None
        for barrier in range(1, 7):
            if control.wait >> (barrier - 1) & 1:
                if barrier in state.active:
                    self._report(
                        index, "barrier-setup",
                        f"barrier {barrier} is waited for one cycle after it is set up",
                        "stall 2 cycles at the instruction that sets the barrier",
                    )  # fmt: skip
                state.wait(barrier)
        if text is not None and self.code.name(index) == "DEPBAR":
            for barrier, left in dependency_barriers(text):
                state.wait(barrier, left)
        if text is not None and self.code.name(index) == "BAR" and _DEFER not in text.opcode:
            # before sm_90 it waits for stores to have read
            state.forget({(READ, i) for i in self.stores})

    # --- checks -----------------------------------------------------------------------------------

    def _check_distances(self, index: int, row: InstructionProperties, state: PendingState) -> None:
        for first, age in state.issued.items():
            made = self.rows[first]
            assert made is not None
            needed = issue_distance(self.sm, made, row)
            if age < needed:
                self._report(
                    index, "issue-distance",
                    f"{self._short(first)} is {age} cycles ahead, of {needed}",
                    "raise the stall counts between them",
                )  # fmt: skip

    def _check_reads(
        self, index: int, row: InstructionProperties, effects: RegisterEffects, state: PendingState
    ) -> None:
        for register in effects.guards if row.mnemonic not in PUSHES else ():
            self._check_read(index, row, register, GUARD, state)
        for register in effects.reads:
            self._check_read(index, row, register, "source", state)

    def _check_read(
        self, index: int, row: InstructionProperties, register: Register, role: str,
        state: PendingState,
    ) -> None:  # fmt: skip
        for (kind, producer), value in state.uses.get(register, {}).items():
            if self._are_alternatives(producer, index):
                continue
            if kind == FIXED:
                made = self.rows[producer]
                assert made is not None and isinstance(value, int)
                needed = result_latency(self.sm, register[0], made, row, role)
                needed -= self._gain(producer, index, register)
                if value < needed:
                    self._report(
                        index, "predicate-latency" if register[0] in ("P", "UP") else "raw-latency",
                        f"{_name(register)} of {self._short(producer)} is read after {value} cycles"
                        f" of {needed}",
                        "raise the stall counts between them",
                    )  # fmt: skip
            elif kind == WRITE:
                self._report(
                    index, "raw-barrier",
                    f"{_name(register)} of {self._short(producer)} is read without a wait",
                    self._advice(producer, "write", value),
                )  # fmt: skip

    def _check_writes(
        self, index: int, row: InstructionProperties, effects: RegisterEffects, state: PendingState
    ) -> None:
        for register in effects.writes:
            for (kind, producer), value in state.uses.get(register, {}).items():
                if self._are_alternatives(producer, index):
                    continue
                if kind == FIXED:
                    if register in effects.reads or register in effects.guards:
                        continue  # it waits for the earlier result, and writes after that
                    self._check_write_order(index, row, register, producer, value)
                elif not self._in_order(producer, row, kind):
                    word, rule = ("written", "waw-barrier") if kind == WRITE else (
                        "read", "war-barrier")  # fmt: skip
                    self._report(
                        index, rule,
                        f"{_name(register)} is overwritten while {self._short(producer)} may not"
                        f" have {word} it",
                        self._advice(producer, "write" if kind == WRITE else "read", value),
                    )  # fmt: skip

    def _check_write_order(
        self, index: int, row: InstructionProperties, register: Register, producer: int,
        age: int | tuple[tuple[int, int], ...],
    ) -> None:  # fmt: skip
        """A fixed result must not be overwritten by an earlier one that takes longer."""
        made = self.rows[producer]
        if made is None or row.latency != FIXED or not isinstance(age, int):
            return
        first = own_latency(self.sm, made, register[0])
        second = own_latency(self.sm, row, register[0])
        if age < first - second:
            self._report(
                index, "waw-latency",
                f"{_name(register)} is written by {self._short(producer)} after this instruction",
                f"issue it at least {first - second} cycles later",
            )  # fmt: skip

    def _gain(self, producer: int, consumer: int, register: Register) -> int:
        """Cycles that IMAD.WIDE gains on either side, or IMAD.HI for its addend."""
        made, used = self.code.instructions[producer].text, self.code.instructions[consumer].text
        assert made is not None and used is not None
        if register[0] != "R":
            return 0
        gain = wide_gain(made.opcode, made.operands[0].numbers[:1] == (register[1],), False)
        if used.opcode.startswith(("IMAD.WIDE", "IMAD.HI")):
            addend = used.operands[4 if used.operands[1].kind == "P#" else 3]
            is_addend = addend.kind == "R#" and register[1] - int(addend.numbers[0]) in (0, 1)
            gain += wide_gain(used.opcode, False, is_addend)
        return gain

    def _in_order(self, producer: int, row: InstructionProperties, kind: str) -> bool:
        """Whether both are in one in-order queue, so that the later write can't overtake."""
        queue = _queue(row, kind)
        return bool(queue) and row.is_variable and _queue(self.rows[producer], kind) == queue

    def _are_alternatives(self, first: int, second: int) -> bool:
        """Whether the guards of two instructions are opposite, so that no lane runs both."""
        a, b = self.code.instructions[first].text, self.code.instructions[second].text
        assert a is not None and b is not None
        same = a.guard == b.guard != ALWAYS and a.uniform == b.uniform
        return same and a.negated != b.negated

    # --- what an instruction leaves pending -------------------------------------------------------

    def _leave(
        self, index: int, row: InstructionProperties, effects: RegisterEffects, state: PendingState
    ) -> None:
        for register in effects.writes:
            state.replace_writer(register)
        if row.mnemonic in DISTANCES:
            state.issued[index] = 0
        if row.latency == FIXED:
            for register in effects.writes:
                state.add(register, (FIXED, index), 0)
            return
        if not row.is_variable:
            return
        control = self.code.instructions[index].control
        assert control is not None
        for kind in (WRITE, READ):
            queue = _queue(row, kind)
            queued = self.queues[kind, queue] if queue else set()
            for barrier in {control.write, control.read if kind == READ else 0} - {0}:
                state.signal(barrier, queued, kind)
        written = ((control.write, 0),) if control.write else ()
        read = tuple(sorted({(b, 0) for b in (control.write, control.read) if b}))
        for register in effects.writes:  # a predicate result comes with the read barrier too
            state.add(register, (WRITE, index), read if register[0] == "P" else written)
        for register in effects.reads:
            if register[0] == "R":  # others are read at issue
                state.add(register, (READ, index), read)

    # --- reports ----------------------------------------------------------------------------------

    def _short(self, index: int) -> str:
        instruction = self.code.instructions[index]
        opcode = instruction.text.opcode if instruction.text else "?"
        return f"{opcode} at {self.code.offsets[index]:#x}"

    def _advice(self, producer: int, kind: str, value: object) -> str:
        if value and isinstance(value, tuple):
            barriers = " or ".join(str(b) for b, _ in value)
            return f"wait for barrier {barriers}"
        return f"set a {kind} barrier at {self.code.offsets[producer]:#x} and wait for it"

    def _report(self, index: int, rule: str, message: str, advice: str) -> None:
        instruction = self.code.instructions[index]
        text = f"{instruction.control} {instruction.text}"
        finding = SassFinding(self.code.offsets[index], rule, text, message, advice)
        self.found[index, rule, message.split(" is ")[0]] = finding


def _queue(row: InstructionProperties | None, kind: str) -> str:
    """The queue in which instructions return results, or read operands: all memory instructions
    read theirs in the order of issue.
    """
    if row is None:
        return ""
    return row.pipe if kind == READ and row.pipe == "memory" else row.queue


def _name(register: Register) -> str:
    return "CC" if register[0] == "CC" else f"{register[0]}{register[1]}"
