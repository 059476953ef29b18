"""Paths through a function's code: which instruction may be issued after which.

On sm_5x a *stack* of pending jumps decides where SYNC, BRK, CONT and RET go, so a node of the graph
is an instruction with its stack. On later architectures returns go to an address in a register:
calls are followed into the function, and the code after the call is a start of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..sass_instruction import SassInstruction
from ..sass_text import ALWAYS

Stack = tuple[tuple[str, int], ...]
_PUSHES = {"SSY": "SYNC", "PBK": "BRK", "PCNT": "CONT", "PRET": "RET"}
_POPS = {"SYNC", "BRK", "CONT", "RET"}
_STACK_LIMIT = 12
_ENDS = {"EXIT", "KIL", "KILL", "RET", "BPT", "PEXIT"}
_JUMPS = {"BRA", "JMP", "BRX", "JMX", "BRXU", "JMXU"}
_MARKS = {"BSSY", "LEPC", "WARPSYNC"}  # they name an address, but do not go there
_NEVER_FALL = _ENDS | _JUMPS | _POPS | {"CALL", "CAL", "JCAL"}


@dataclass(frozen=True, slots=True)
class SassCode:
    """A function's instructions: ``offsets`` and ``instructions`` of equal length, and for each
    indirect branch (its offset) the offsets that it may go to.
    """

    sm: int
    offsets: tuple[int, ...]
    instructions: tuple[SassInstruction, ...]
    indirect: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(
        cls, sm: int, decoded: Sequence[tuple[int, SassInstruction]],
        indirect: Mapping[int, tuple[int, ...]] | None = None,
    ) -> SassCode:  # fmt: skip
        """From the result of ``decode_code``."""
        offsets, instructions = zip(*decoded, strict=True) if decoded else ((), ())
        return cls(sm, tuple(offsets), tuple(instructions), indirect or {})

    def index_of(self, offset: int) -> int | None:
        """The instruction at an offset; on sm_5x the one after a control word stands for it."""
        if self.sm < 70 and offset % 32 == 0:
            offset += 8
        first = self.offsets[0] if self.offsets else 0
        step = 16 if self.sm >= 70 else 8
        if self.sm >= 70:
            index = (offset - first) // step
        else:
            index = offset // 32 * 3 + (offset % 32) // 8 - 1
        inside = 0 <= index < len(self.offsets) and self.offsets[index] == offset
        return index if inside else None

    def name(self, index: int) -> str:
        """The mnemonic without modifiers, "" for an undecoded word."""
        text = self.instructions[index].text
        return text.opcode.split(".")[0] if text else ""

    def target(self, index: int) -> int | None:
        """The index of the instruction that a direct branch goes to."""
        instruction = self.instructions[index]
        if instruction.text is None or instruction.target is None:
            return None
        operand = instruction.text.operands[instruction.target]
        return None if "R#" in operand.kind else self.index_of(int(operand.numbers[-1]))

    def is_conditional(self, index: int) -> bool:
        """Whether an instruction may be passed by all lanes: a guard, or a branch's condition."""
        text = self.instructions[index].text
        if text is None:
            return False
        extra = text.operands[0].kind in ("P#", "UP#", "UR#") or text.operands[0].kind.startswith(
            "CC") if text.operands else False  # fmt: skip
        if self.name(index) == "RET" and self.sm < 70:
            extra = False
        return (text.guard != ALWAYS or text.negated) or (extra and self.name(index) in _JUMPS)

    def starts(self) -> list[int]:
        """Instructions where execution may begin: the first, those after calls, and the
        targets of indirect branches, which no path leads to.
        """
        found = {0} if self.offsets else set()
        if self.sm >= 70:
            found |= {i + 1 for i in range(len(self.offsets) - 1) if self.name(i) == "CALL"}
        for targets in self.indirect.values():
            found |= {i for t in targets if (i := self.index_of(t)) is not None}
        return sorted(found)

    def successors(self, index: int, stack: Stack) -> Iterator[tuple[int, Stack]]:
        """(instruction, stack) that may follow."""
        name = self.name(index)
        falls = index + 1 < len(self.offsets)
        target = None if name in _MARKS else self.target(index)
        if name in _PUSHES and self.sm < 70:
            pushed = (*stack, (_PUSHES[name], -1 if target is None else target))
            if falls and len(pushed) <= _STACK_LIMIT:
                yield index + 1, pushed
            return
        yield from self._jumps(index, name, target, stack)
        passes = self.is_conditional(index) or name not in _NEVER_FALL
        if falls and passes:
            yield index + 1, stack

    def _jumps(
        self, index: int, name: str, target: int | None, stack: Stack
    ) -> Iterator[tuple[int, Stack]]:
        if name in _POPS and self.sm < 70:
            kept = list(stack)
            while kept:
                kind, where = kept.pop()
                if kind == name:
                    if where >= 0:
                        yield where, tuple(kept)
                    return
        elif name in ("CAL", "JCAL") and target is not None:
            if len(stack) < _STACK_LIMIT and ("RET", index + 1) not in stack:  # no recursion
                yield target, (*stack, ("RET", index + 1))
        elif target is not None:
            yield target, stack
        for offset in self.indirect.get(self.offsets[index], ()):
            found = self.index_of(offset)
            if found is not None:
                yield found, stack
