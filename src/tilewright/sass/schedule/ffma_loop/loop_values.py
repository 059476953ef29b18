"""The hot loop of a kernel, with values in place of registers.

The loop is one block: no jump but the last one. Each result is a value of its own, so that
instructions may be moved and registers chosen anew; values that must share a register are one
*web*: an accumulator and the sum that replaces it, and what one turn leaves for the next. Webs that
an instruction names together (``LDS.128``, 64-bit addresses) get registers in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....errors import SassError
from ...control_code import ControlCode
from ...machine.code_paths import SassCode
from ...machine.register_effects import (
    Register,
    RegisterOperand,
    register_effects,
    register_operands,
)
from ...sass_text import ALWAYS, SassText
from ..kernel_instruction import KernelInstruction
from ..liveness import live_after
from ..register_request import VIRTUAL

_JUMPS = {"BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "WARPSYNC",
          "KILL", "BPT"}  # fmt: skip


@dataclass(frozen=True)
class LoopValues:
    """Instructions ``first`` to ``last`` of a kernel, the last being the jump back.

    ``texts`` name virtual registers, those of a web group in a row; ``old_texts`` and ``controls``
    are the old ones.
    ``live_in`` and ``live_out`` are the virtual register of each register that is live where the
    loop begins and ends. ``groups``: first virtual register, width, and the alignment of a number
    in it as (offset, multiple). ``begun`` are those that a guarded instruction writes first: only
    instructions with the same guard use them.
    """

    sm: int
    first: int
    last: int
    texts: tuple[SassText, ...]
    old_texts: tuple[SassText, ...]
    controls: tuple[ControlCode, ...]
    live_in: Mapping[int, int]
    live_out: Mapping[int, int]
    groups: tuple[RegisterGroup, ...]
    begun: frozenset[int]


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """Virtual registers ``first`` to ``first + width - 1`` get registers in a row, such that the
    register of number ``offset`` is a multiple of ``multiple``.
    """

    first: int
    width: int
    offset: int
    multiple: int


def find_loop(code: SassCode) -> tuple[int, int]:
    """(first, last) instruction of the block with the most FFMAs that jumps back to its start.

    Raises SassError where there is none, or where another jump leads into it.
    """
    targets = [code.target(i) for i in range(len(code.instructions))]
    jumps = [i for i in range(len(targets)) if code.name(i) in _JUMPS]
    best = (0, 0, 0)
    for last in jumps:
        first = targets[last]
        if first is None or first >= last or any(first <= j < last for j in jumps):
            continue
        inside = [j for j, t in enumerate(targets) if t is not None and first <= t <= last]
        if inside == [last]:
            products = sum(code.name(i) == "FFMA" for i in range(first, last))
            best = max(best, (products, first, last))
    if not best[0]:
        raise SassError("a kernel must have a loop of FFMAs that is one block, got none")
    return best[1], best[2]


def loop_values(code: SassCode) -> LoopValues:
    """The hot loop of a kernel. Raises SassError for a kernel without one, or with words that are
    not decoded.
    """
    first, last = find_loop(code)
    after = _live(code)
    texts = [code.instructions[i].text for i in range(first, last + 1)]
    controls = [code.instructions[i].control for i in range(first, last + 1)]
    known = [t for t in texts if t is not None]
    rules = [c for c in controls if c is not None]
    if len(known) < len(texts) or len(rules) < len(texts):
        raise SassError("all instructions of a loop must be decoded, got an unknown word")
    at_head = after[first - 1] if first else set()
    at_exit = _live_at(code, after, last + 1)
    return _Renaming(code.sm, known, at_head, at_exit).result(first, last, rules)


def live_registers(code: SassCode, index: int) -> set[int]:
    """The registers that are live before an instruction of a kernel."""
    return _live_at(code, _live(code), index)


def _live(code: SassCode) -> list[set[int]]:
    labels: dict[str, int] = {}
    instructions = []
    for i, x in enumerate(code.instructions):
        if x.text is None:
            raise SassError("all instructions of a kernel must be decoded, got an unknown word")
        target = code.target(i)
        label = None if target is None else f".L_{target}"
        if target is not None and label is not None:
            labels[label] = target
        instructions.append(KernelInstruction(x.text, label=label))
    return live_after(code.sm, instructions, labels)


def _live_at(code: SassCode, after: Sequence[set[int]], index: int) -> set[int]:
    """The registers that are live before an instruction."""
    text = code.instructions[index].text
    assert text is not None
    named = register_operands(code.sm, text)
    reads = {x.first + i for x in named if not x.written for i in range(x.count)}
    writes = {x.first + i for x in named if x.written for i in range(x.count)}
    return reads | after[index] - (writes if text.guard == ALWAYS else set())


class _Renaming:
    """Values of a block: each operand becomes a list of values, then webs, then numbers."""

    def __init__(
        self, sm: int, texts: Sequence[SassText], at_head: set[int], at_exit: set[int]
    ) -> None:
        self.sm = sm
        self.texts = texts
        self.parents: list[int] = []
        self.offsets: list[int] = []  # of a value in its group, from the parent
        self.reads: Counter[int] = Counter()
        self.begin = {r: self._value() for r in sorted(at_head | at_exit)}
        self.current = dict(self.begin)
        self.named: list[list[list[int]]] = []  # values of each operand of each instruction
        self.operands = [register_operands(sm, t) for t in texts]
        self.at_head, self.at_exit = at_head, at_exit
        self.begun: set[int] = set()
        self.kept: set[int] = set()  # values that a guarded instruction may leave as they are
        for index in range(len(texts)):
            self.named.append(self._rename(index))

    def _value(self) -> int:
        self.parents.append(len(self.parents))
        self.offsets.append(0)
        return len(self.parents) - 1

    def _rename(self, index: int) -> list[list[int]]:
        text, operands = self.texts[index], self.operands[index]
        named: list[list[int]] = [[] for _ in operands]
        for at, x in enumerate(operands):
            if not x.written:
                named[at] = [self._read(x.first + i) for i in range(x.count)]
        for at, x in enumerate(operands):
            if x.written:
                numbers = range(x.first, x.first + x.count)
                named[at] = [self._write(index, r, _is_sure(text)) for r in numbers]
        return named

    def _write(self, index: int, register: int, is_sure: bool) -> int:
        """The value that an instruction writes: a new one, but where it may stay the old one."""
        if is_sure or self._begins(index, register):
            value = self.current[register] = self._value()
            if not is_sure:
                self.begun.add(value)
            return value
        self.kept.add(self._of(register))
        return self._of(register)

    def _begins(self, index: int, register: int) -> bool:
        """Whether all that use a guarded result have the same guard, so that its old value is not
        needed.
        """
        guard = _GuardValue(self.sm, self.texts, index)
        for i in range(index + 1, len(self.texts)):
            later = self.texts[i]
            named = self.operands[i]
            mine = [x for x in named if x.first <= register < x.first + x.count]
            if any(not x.written for x in mine) and not guard.guards(later):
                return False
            if any(x.written for x in mine) and (_is_sure(later) or self._begins(i, register)):
                return True
            guard.follow(later)
        return register not in self.at_head | self.at_exit

    def _needed(self) -> set[int]:
        """The registers whose value at the head is used; a guarded instruction that begins a new
        one does not use it, though it is live by the guard alone.
        """
        return {
            r
            for r in self.at_head
            if self.reads[self.begin[r]]
            or self.begin[r] in self.kept
            or self.current[r] == self.begin[r]
        }

    def _of(self, register: int) -> int:
        if register not in self.current:
            self.current[register] = self.begin[register] = self._value()
        return self.current[register]

    def _read(self, register: int) -> int:
        value = self._of(register)
        self.reads[value] += 1
        return value

    # --- webs and groups: a union-find in which each value has an offset from its root ------------

    def _root(self, value: int) -> tuple[int, int]:
        offset = 0
        while self.parents[value] != value:
            offset += self.offsets[value]
            value = self.parents[value]
        return value, offset

    def _relate(self, value: int, other: int, distance: int) -> None:
        """``value`` is ``distance`` registers above ``other``. Raises SassError if it can't be."""
        (mine, up), (theirs, base) = self._root(value), self._root(other)
        wanted = base + distance - up
        if mine != theirs:
            self.parents[mine], self.offsets[mine] = theirs, wanted
        elif wanted:
            raise SassError("a loop's values must fit one order of registers, got two")

    def _join(self) -> None:
        ends = {self.current[r]: r for r in self.at_exit}
        for register in self._needed():
            self._relate(self.current[register], self.begin[register], 0)
        for text, operands, values in zip(self.texts, self.operands, self.named, strict=True):
            for x, row in zip(operands, values, strict=True):
                for i in range(1, x.count):
                    self._relate(row[i], row[0], i)
            if text.opcode.split(".")[0] == "FFMA" and len(operands) == 4:
                addend = values[3][0]
                if self.reads[addend] == 1 and addend not in ends:
                    self._relate(values[0][0], addend, 0)

    def result(self, first: int, last: int, controls: Sequence[ControlCode]) -> LoopValues:
        """The block with virtual registers."""
        self._join()
        members: dict[int, list[tuple[int, int]]] = {}
        for value in range(len(self.parents)):
            root, offset = self._root(value)
            members.setdefault(root, []).append((offset, value))
        number: dict[int, int] = {}
        groups, following = [], VIRTUAL
        rows = self._rows()
        for found in members.values():
            low = min(offset for offset, _ in found)
            width = max(offset for offset, _ in found) - low + 1
            number |= {value: following + offset - low for offset, value in found}
            multiple, offset = max(rows.get(v, 1) for _, v in found), 0
            for at, value in found:
                if rows.get(value, 1) == multiple:
                    offset = at - low
            groups.append(RegisterGroup(following, width, offset, multiple))
            following += width
        texts = tuple(
            _with_numbers(t, x, [number[row[0]] for row in rows_of])
            for t, x, rows_of in zip(self.texts, self.operands, self.named, strict=True)
        )
        begun = {number[v] for v in self.begun} - {number[v] for v in self.kept}
        unchanged = {r for r in self.at_exit if self.current[r] == self.begin[r]}
        live_in = {r: number[self.begin[r]] for r in sorted(self._needed() | unchanged)}
        live_out = {r: number[self.current[r]] for r in sorted(self.at_exit)}
        return LoopValues(
            self.sm, first, last, texts, tuple(self.texts), tuple(controls), live_in, live_out,
            tuple(groups), frozenset(begun),
        )  # fmt: skip

    def _rows(self) -> dict[int, int]:
        """The width of the widest operand that begins with a value."""
        found: dict[int, int] = {}
        for operands, values in zip(self.operands, self.named, strict=True):
            for x, row in zip(operands, values, strict=True):
                found[row[0]] = max(found.get(row[0], 1), x.count)
        return found


class _GuardValue:
    """Where the value of the guard of instruction ``index`` is: in which predicates, and in which
    registers ``P2R`` has saved it, before or after, from which ``ISETP.NE`` restores it. ``PLOP3``
    copies it from a uniform predicate.
    """

    def __init__(self, sm: int, texts: Sequence[SassText], index: int) -> None:
        self.sm, self.text = sm, texts[index]
        self.file = "UP" if self.text.uniform else "P"
        guard = self.file, self.text.guard
        self.places: set[Register] = {guard}
        before = range(index - 1, -1, -1)
        written = next((i for i in before if guard in register_effects(sm, texts[i]).writes), -1)
        if written >= 0:
            self.places |= {("UP", n) for n in _uniform_source(texts[written])}
        for text in texts[written + 1 : index]:
            self.follow(text)

    def guards(self, text: SassText) -> bool:
        """Whether an instruction has a guard of this value."""
        same = (text.negated, text.uniform) == (self.text.negated, self.text.uniform)
        return same and (self.file, text.guard) in self.places

    def follow(self, text: SassText) -> None:
        """Take into account what an instruction writes."""
        found = self._copied(text)
        self.places -= register_effects(self.sm, text).writes
        self.places |= found

    def _copied(self, text: SassText) -> set[Register]:
        """The register that this instruction sets to the value, if it does so."""
        first, *rest = text.operands or (None,)
        if first is None or not _is_sure(text):
            return set()
        target, shown = int(first.numbers[0]) if first.numbers else -1, [str(x) for x in rest]
        saved = {f"0x{1 << n:x}": ("P", n) for n in range(7)}
        if text.opcode == "P2R" and shown[:2] == ["PR", "RZ"]:
            return {("R", target)} if saved.get(shown[2]) in self.places else set()
        if text.opcode == "ISETP.NE.AND" and shown[0] == "PT" and shown[2:] == ["RZ", "PT"]:
            source = ("R", int(rest[1].numbers[0])) if rest[1].kind == "R#" else None
            return {("P", target)} if source in self.places else set()
        copied = any(("UP", n) in self.places for n in _uniform_source(text))
        return {("P", target)} if copied else set()


def _uniform_source(text: SassText) -> set[int]:
    """The number of the uniform predicate that an instruction copies to a predicate, if any."""
    shown = [str(x) for x in text.operands[1:]]
    if text.opcode != "PLOP3.LUT" or not _is_sure(text) or shown[:3] != ["PT"] * 3:
        return set()
    return {n for n in range(7) if shown[3:] == [f"UP{n}", "0x80", "0x0"]}


def _is_sure(text: SassText) -> bool:
    """Whether an instruction is executed by all threads."""
    return text.guard == ALWAYS and not text.negated


def _with_numbers(
    text: SassText, operands: Sequence[RegisterOperand], numbers: Sequence[int]
) -> SassText:
    changed = list(text.operands)
    for x, number in zip(operands, numbers, strict=True):
        operand = changed[x.index]
        all_numbers = list(operand.numbers)
        all_numbers[x.position] = number
        changed[x.index] = replace(operand, numbers=tuple(all_numbers))
    return replace(text, operands=tuple(changed))
