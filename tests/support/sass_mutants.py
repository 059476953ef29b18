"""Mutants of a kernel's machine code: one control code, register or barrier is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.sass import (
    CubinFile,
    SassInstruction,
    encode_code,
    encode_instruction,
    encoding_table,
)
from tilewright.sass.control_code import ControlCode
from tilewright.sass.machine.code_paths import SassCode
from tilewright.sass.machine.register_effects import RZ, register_operands
from tilewright.sass.sass_text import SassText, parse_instruction

FENCES = ("BAR", "DEPBAR", "LDGDEPBAR")


@dataclass(frozen=True)
class Mutant:
    """``what`` was done to instruction ``index``, and what it is now."""

    what: str
    index: int
    control: ControlCode
    text: SassText

    def code(self, code: SassCode) -> SassCode:
        """The kernel's code with this instruction."""
        changed = list(code.instructions)
        changed[self.index] = self._instruction(code)
        return replace(code, instructions=tuple(changed))

    def _instruction(self, code: SassCode) -> SassInstruction:
        after = code.offsets[self.index] + (16 if code.sm >= 70 else 8)
        return encode_instruction(encoding_table(code.sm), self.text, self.control, after)

    def cubin(self, cubin: CubinFile, name: str, code: SassCode) -> CubinFile:
        """The cubin with this instruction in kernel ``name``."""
        words = encode_code(encoding_table(code.sm), self.code(code).instructions)
        place = cubin.index(f".text.{name}")
        assert place is not None
        return cubin.with_data(place, words)


def mutants(code: SassCode, counts: dict[str, int], seed: int) -> list[Mutant]:
    """As many of each kind as ``counts`` says, at random, of the code up to the last EXIT."""
    end = max(i for i in range(len(code.instructions)) if code.name(i) == "EXIT")
    found: dict[str, list[Mutant]] = {}
    rng = random.Random(seed)
    for index in range(end):
        for mutant in _of_instruction(code, index, rng):
            found.setdefault(mutant.what.split(":")[0], []).append(mutant)
    chosen = []
    for kind, count in counts.items():
        rng.shuffle(found[kind])
        chosen += found[kind][:count]
    return sorted(chosen, key=lambda m: (m.index, m.what))


def _of_instruction(code: SassCode, index: int, rng: random.Random) -> Iterator[Mutant]:
    instruction = code.instructions[index]
    text, c = instruction.text, instruction.control
    assert text is not None and c is not None
    for b in range(1, 7):
        if c.wait >> b - 1 & 1:
            yield Mutant(f"wait: {b} dropped", index, replace(c, wait=c.wait & ~(1 << b - 1)), text)
    for kind, number in (("write", c.write), ("read", c.read)):
        if number:
            for other in (0, number % 6 + 1):
                made = replace(c, write=other) if kind == "write" else replace(c, read=other)
                yield Mutant(f"barrier: {kind} {number} is {other or 'none'}", index, made, text)
    for stall in {1, c.stall - 1} if c.stall > 1 else ():
        made = replace(c, stall=stall, yields=c.yields and stall > 11)
        yield Mutant(f"stall: {c.stall} is {stall}", index, made, text)
    if code.name(index) in FENCES:
        yield Mutant(f"fence: {code.name(index)} removed", index, c, parse_instruction("NOP"))
        if code.name(index) == "DEPBAR":
            sb, left, *rest = text.operands
            more = replace(left, numbers=(int(left.numbers[0]) + 1,))
            changed = replace(text, operands=(sb, more, *rest))
            yield Mutant(f"fence: {changed.operands[1]} groups left", index, c, changed)
    named = [x for x in register_operands(code.sm, text) if x.first != RZ]
    if named:
        x = rng.choice(named)
        step = rng.choice((-x.count, x.count))
        operand = text.operands[x.index]
        numbers = list(operand.numbers)
        numbers[x.position] = x.first + (step if x.first + step >= 0 else x.count)
        operands = list(text.operands)
        operands[x.index] = replace(operand, numbers=tuple(numbers))
        changed = replace(text, operands=tuple(operands))
        yield Mutant(f"register: R{x.first} is R{numbers[x.position]}", index, c, changed)
    if code.name(index) == "FFMA":
        reuse = text.reuse ^ 1 << rng.choice((1, 2, 3))
        yield Mutant(f"reuse: {text.reuse} is {reuse}", index, c, replace(text, reuse=reuse))
