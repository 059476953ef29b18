"""Control flow of a kernel, and which virtual registers are live at the same time.

Where a jump may go is taken widely: RET to after every CAL, SYNC and BRK to every label that SSY
and PBK name, an indirect jump to every label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..machine.register_effects import register_effects
from ..sass_text import ALWAYS
from .kernel_instruction import KernelInstruction
from .register_request import VIRTUAL

_CALLS = {"CAL", "JCAL", "CALL"}
_PUSHES = {"SSY": "SYNC", "PBK": "BRK", "PCNT": "CONT", "BSSY": "BSYNC"}
_POPS = {"SYNC", "BRK", "CONT", "BSYNC"}
_MEMORY = ("LD", "ATOM", "RED", "SULD", "TEX", "TLD")
_ENDS = {"EXIT", "RET", "BRA", "BRX", "JMP", "JMX", *_POPS}


def successors(
    instructions: Sequence[KernelInstruction], labels: Mapping[str, int]
) -> list[set[int]]:
    """The indexes of the instructions that may follow each one; past the end is left out."""
    end = len(instructions)
    returns: set[int] = set()
    pushed: dict[str, set[int]] = defaultdict(set)
    for i, x in enumerate(instructions):
        name = x.text.opcode.split(".")[0]
        if name in _CALLS:
            returns.add(i + 1)
        if name in _PUSHES and x.label in labels:
            pushed[_PUSHES[name]].add(labels[x.label or ""])
    found = []
    for i, x in enumerate(instructions):
        name = x.text.opcode.split(".")[0]
        after: set[int] = set()
        if name not in _ENDS or not _always(x):
            after.add(i + 1)
        if name == "RET":
            after |= returns
        elif name in _POPS:
            after |= pushed[name]
        elif x.label in labels and name not in _PUSHES:
            after.add(labels[x.label or ""])
        elif name in ("BRX", "JMX"):
            after |= set(labels.values())
        found.append({j for j in after if j < end})
    return found


def _always(x: KernelInstruction) -> bool:
    """Whether an instruction is executed by all threads that reach it."""
    conditional = any(o.kind.startswith(("P#", "UP#", "CC")) for o in x.text.operands)
    return x.text.guard == 7 and not x.text.negated and not conditional


def _replaces(x: KernelInstruction) -> bool:
    """Whether an instruction's results surely replace what their registers held. A predicate that
    is an operand, such as a carry, does not prevent that, but in a load it may.
    """
    is_arithmetic = not x.text.opcode.startswith(_MEMORY)
    return _always(x) or (is_arithmetic and x.text.guard == ALWAYS and not x.text.negated)


def live_after(
    sm: int, instructions: Sequence[KernelInstruction], labels: Mapping[str, int]
) -> list[set[int]]:
    """The registers (numbers of the file R) that are live after each instruction."""
    effects = [register_effects(sm, x.text) for x in instructions]
    reads = [{n for file, n in e.reads if file == "R"} for e in effects]
    kills = [
        {n for file, n in e.writes if file == "R"} if _replaces(x) else set()
        for e, x in zip(effects, instructions, strict=True)
    ]
    follow = successors(instructions, labels)
    before: list[set[int]] = [set() for _ in instructions]
    after: list[set[int]] = [set() for _ in instructions]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(instructions))):
            after[i] = set().union(*(before[j] for j in follow[i]))
            new = reads[i] | after[i] - kills[i]
            if new != before[i]:
                before[i] = new
                changed = True
    return after


def interference(
    sm: int, instructions: Sequence[KernelInstruction], labels: Mapping[str, int]
) -> dict[int, set[int]]:
    """For each virtual register those that may not share its register: live where it is written.

    A register that is read before it is written (or written under a guard alone) is live from the
    kernel's start.
    """
    found: dict[int, set[int]] = defaultdict(set)
    after = live_after(sm, instructions, labels)
    for x, live in zip(instructions, after, strict=True):
        effects = register_effects(sm, x.text)
        writes = {n for file, n in effects.writes if file == "R" and n >= VIRTUAL}
        together = {n for n in live | writes if n >= VIRTUAL}
        for number in writes:
            found[number] |= together - {number}
            for other in together - {number}:
                found[other].add(number)
    _at_start(sm, instructions, labels, after, found)
    return found


def _at_start(
    sm: int,
    instructions: Sequence[KernelInstruction],
    labels: Mapping[str, int],
    after: Sequence[set[int]],
    found: dict[int, set[int]],
) -> None:
    """Registers that are live at the kernel's start interfere with each other."""
    if not instructions:
        return
    effects = register_effects(sm, instructions[0].text)
    live = {n for n in after[0] if n >= VIRTUAL}
    live -= {n for file, n in effects.writes if file == "R"}
    live |= {n for file, n in effects.reads if file == "R" and n >= VIRTUAL}
    for number in live:
        found[number] |= live - {number}
