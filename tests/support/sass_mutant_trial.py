"""Tries mutants of a kernel: each must be found by the lint or the SASS machine, or be harmless by
the worst timing of a warp's run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sass_mutants import Mutant, mutants
from sass_worst_case import WorstCase
from tilewright.errors import SassError
from tilewright.sass import CubinFile
from tilewright.sass.lint.lint_function import lint_function
from tilewright.sass.machine.code_paths import SassCode
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.machine.register_effects import register_effects, register_operands
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.sass_text import ALWAYS


@dataclass
class MutantTrial:
    """Kernel ``name`` of a cubin; ``run`` of a cubin, traced or not, returns the result's bits and
    the machine; ``again`` is another problem, for registers that do not matter in the first.
    """

    file: CubinFile
    name: str
    run: Callable[[CubinFile, bool], tuple[Any, SassMachine]]
    again: Callable[[CubinFile], tuple[Any, SassMachine]] | None = None

    @cached_property
    def code(self) -> SassCode:
        """The kernel's code."""
        return function_code(self.file, self.name)

    @cached_property
    def original(self) -> tuple[Any, list[int]]:
        """The result's bits, and the instructions that a warp issued."""
        bits, machine = self.run(self.file, True)
        assert not machine.races
        return bits, [index for index, _ in machine.traces[-1][0]]

    @cached_property
    def original_again(self) -> Any:
        """The bits of the other problem."""
        assert self.again is not None
        return self.again(self.file)[0]

    def found_by(self, mutant: Mutant) -> str:
        """What finds a mutant: "lint", or "race", "bits", "fault" of its run; "" for nothing."""
        if lint_function(mutant.code(self.code)):
            return "lint"
        kind = mutant.what.split(":")[0]
        copies = mutant.text.opcode == "LDGDEPBAR"
        if kind not in ("fence", "register") and not copies:
            return ""  # the machine's values do not depend on it
        changed = mutant.cubin(self.file, self.name, self.code)
        try:
            bits, machine = self.run(changed, False)
            equal = (bits == self.original[0]).all()
            if equal and self.again is not None and kind == "register" and not machine.races:
                bits, machine = self.again(changed)
                equal = (bits == self.original_again).all()
        except SassError:
            return "fault"
        return "race" if machine.races else "" if equal else "bits"

    def proof(self, mutant: Mutant) -> str:
        """Why a mutant is harmless; "" where the worst timing of a run does not show it."""
        code, trace = self.code, self.original[1]
        if mutant.what.startswith("register"):
            return "the registers hold zero" if reads_zeros(code, mutant) else ""
        if mutant.what.startswith("fence") or mutant.index not in trace:
            return ""
        if mutant.what.startswith("reuse"):
            return "a register in the reuse cache has the value that it had"
        if mutant.text.opcode == "LDGDEPBAR":
            return "the run waits for its new barrier before its copies are read"
        before, after = WorstCase(code, trace), WorstCase(mutant.code(code), trace)
        assert not before.breaches
        if after.breaches:
            return ""
        others = {pair: how for pair, how in after.covered.items() if before.covered[pair] != how}
        if mutant.what.startswith("stall"):
            mine = [h for (made, _), h in after.covered.items()
                    if made == mutant.index and "of" in h]  # fmt: skip
            return f"result used after {mine[0]}" if mine else "no result used that soon"
        if not others:
            return "nothing used later is pending on it"
        (made, used), how = min(others.items())
        return f"{code.offsets[made]:#x} → {code.offsets[used]:#x}: {how}"

    def check(self, counts: dict[str, int], seed: int) -> tuple[Counter[str], list[str]]:
        """How mutants were found, and a line for each harmless one. Asserts that all are either."""
        made = mutants(self.code, counts, seed)
        assert len(made) == sum(counts.values())
        ways: Counter[str] = Counter()
        harmless, missed = [], []
        for mutant in made:
            how = self.found_by(mutant)
            if not how:
                why = self.proof(mutant)
                x = self.code.instructions[mutant.index]
                offset = self.code.offsets[mutant.index]
                line = f"{offset:#06x} {x.control} {x.text} | {mutant.what}"
                (harmless if why else missed).append(f"{line} | {why}")
            ways[how or "harmless"] += 1
        assert not missed, "neither found nor proved harmless:\n" + "\n".join(missed)
        return ways, harmless


def reads_zeros(code: SassCode, mutant: Mutant) -> bool:
    """Whether the operands that a mutant changes are read, and hold zero before and after it."""
    text = code.instructions[mutant.index].text
    assert text is not None
    old, new = (register_operands(code.sm, x) for x in (text, mutant.text))
    if len(old) != len(new):
        return False
    changed = {x for pair in zip(old, new, strict=True) if pair[0] != pair[1] for x in pair}
    named = {("R", x.first + i) for x in changed for i in range(x.count)}
    return not any(x.written for x in changed) and named <= _zeros(code, mutant.index)


def _zeros(code: SassCode, index: int) -> set[tuple[str, int]]:
    """Registers that are zero ahead of an instruction, whichever way leads there."""
    zeros: set[tuple[str, int]] = set()
    targets = {code.target(i) for i in range(len(code.instructions))}
    for i in range(index + 1):
        if i in targets:
            zeros.clear()
        if i == index:
            break
        text = code.instructions[i].text
        assert text is not None
        written = register_effects(code.sm, text).writes
        is_zero = text.opcode == "CS2R" and str(text.operands[1]) == "SRZ" and text.guard == ALWAYS
        zeros = zeros | written if is_zero else zeros - written
    return zeros
