"""``lint_function``: all rules over one function's code.

Sources: maxas' wiki (control codes, SGEMM) for sm_5x; for sm_9x, what nvdisasm accepts and what
503,040 instructions of ptxas keep to.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..cubin_file import CubinFile, check_cubin
from ..finding import SassFinding
from ..machine.code_paths import SassCode
from ..machine.hazards import dependency_barriers, function_code, hazards
from ..machine.instruction_properties import instruction_properties
from ..machine.register_effects import register_effects, register_operands
from ..sass_instruction import SassInstruction
from ..sass_text import ALWAYS
from .register_banks import Slots, conflict_cycles, next_cached, source_slots

HAZARD_RULES = {
    "raw-latency": "a fixed-latency result is read too early",
    "predicate-latency": "a predicate is read too early",
    "raw-barrier": "the result of a variable-latency instruction is read without a wait",
    "waw-barrier": "a register is overwritten before an earlier instruction has written it",
    "waw-latency": "two writes of a register complete in the wrong order",
    "war-barrier": "a register is overwritten before an earlier instruction has read it",
    "barrier-setup": "a barrier is waited for in the cycle in which it is set up",
    "issue-distance": "an instruction follows a CTA barrier, a copy or their waits too soon",
}
OTHER_RULES = {
    "long-stall": "a stall of 12 cycles or more needs the yield flag, a stall of 0 too on sm_9x",
    "branch-stall": "a branch, call, return or exit needs a stall of at least 5 cycles",
    "store-write-barrier": "a store has no result, so it must not signal a write barrier",
    "reuse-yield": "operand reuse is lost, and illegal, with the yield flag or a stall of 0",
    "stale-reuse": "a reused operand is overwritten before the instruction that reuses it",
    "register-alignment": "a vector of registers in memory begins at no multiple of its size",
    "unset-register": "a register is read that no instruction of the kernel writes",
    "copy-barrier": "a group of copies (LDGDEPBAR) signals no barrier that is waited for",
    "unknown-word": "a word has no known encoding",
}
SPEED_RULES = {
    "bank-conflict": "source registers share a bank and are not reused",
}
LINT_RULES = HAZARD_RULES | OTHER_RULES | SPEED_RULES
_BRANCHES = {"BRA", "BRX", "JMP", "JMX", "CAL", "CALL", "RET", "EXIT", "BSYNC", "SYNC", "BRK"}
_STACK_POINTER = ("R", 1)


def lint_cubin(cubin: CubinFile, function: str = "", speed: bool = False) -> list[SassFinding]:
    """Findings of all functions, or of one. Raises SassError for unknown architectures, CubinError
    for an unknown function.
    """
    check_cubin(cubin)
    found: list[SassFinding] = []
    for name in [function] if function else cubin.functions:
        found += lint_function(function_code(cubin, name), speed)
    return found


def lint_function(code: SassCode, speed: bool = False) -> list[SassFinding]:
    """All findings in a function's code by address; ``speed`` adds the rules of SPEED_RULES."""
    found = hazards(code)
    found += _of_each(code)
    found += _copy_barriers(code)
    found += _unset_registers(code)
    found += _stale_reuse(code)
    if speed:
        found += _slow_operands(code)
    return sorted(found)


def _finding(code: SassCode, index: int, rule: str, message: str, advice: str) -> SassFinding:
    instruction = code.instructions[index]
    text = f"{instruction.control} {instruction.text}"
    return SassFinding(code.offsets[index], rule, text, message, advice)


def _of_each(code: SassCode) -> Iterator[SassFinding]:
    """Rules about one instruction."""
    for index, instruction in enumerate(code.instructions):
        if instruction.text is None or instruction.control is None:
            yield _finding(
                code, index, "unknown-word", f"{instruction.raw:#x} has no known encoding",
                "learn it with scripts/learn_sass.py",
            )  # fmt: skip
            continue
        for rule, message, advice in _breaches(code.sm, code.name(index), instruction):
            yield _finding(code, index, rule, message, advice)


def _breaches(sm: int, name: str, instruction: SassInstruction) -> Iterator[tuple[str, str, str]]:
    """(rule, message, advice) of one instruction."""
    control, text = instruction.control, instruction.text
    assert control is not None and text is not None
    row = instruction_properties(sm, text.opcode)
    if sm >= 70 and not control.yields and (control.stall == 0 or control.stall > 11):
        yield "long-stall", f"a stall of {control.stall} without yield", "set the yield flag"
    least = 5 if name in _BRANCHES or (name == "BAR" and sm < 70) else 0
    if name == "CALL" and (text.guard != ALWAYS or text.negated):
        least = 1  # ptxas for sm_80 leaves a loop so
    if control.stall < least and not (control.stall == 0 and control.yields):
        yield "branch-stall", f"{name} stalls for {control.stall} cycles", "stall at least 5"
    if row.is_memory and not row.outputs and control.write and name != "LDGSTS":
        yield "store-write-barrier", f"{name} signals barrier {control.write}", "use R, not W"
    for operand in register_operands(sm, text) if row.is_memory else ():
        size = 1 << (operand.count - 1).bit_length()
        if operand.first % size:
            name = f"R{operand.first}"
            what = f"{name} begins a vector of {operand.count}"
            yield "register-alignment", what, f"choose a multiple of {size}"
    if sm >= 70 and text.reuse and (control.yields or not control.stall):
        yield "reuse-yield", "operands are reused across a yield", "clear the yield or reuse flags"


def _copy_barriers(code: SassCode) -> Iterator[SassFinding]:
    """Groups of copies whose completion nothing can wait for."""
    waited: set[int] = set()
    for x in code.instructions:
        if x.text is not None and x.text.opcode.startswith("DEPBAR"):
            waited |= {barrier for barrier, _ in dependency_barriers(x.text)}
        if x.control is not None:
            waited |= {b for b in range(1, 7) if x.control.wait >> b - 1 & 1}
    for index, x in enumerate(code.instructions):
        if code.name(index) == "LDGDEPBAR" and x.control and x.control.write not in waited:
            yield _finding(
                code, index, "copy-barrier", "nothing waits for these copies",
                "signal the barrier that DEPBAR counts",
            )  # fmt: skip


def _unset_registers(code: SassCode) -> Iterator[SassFinding]:
    """Registers that are read but written nowhere, where no function is called, and no word without
    an encoding may have written them.
    """
    texts = [x.text for x in code.instructions]
    if None in texts or any(code.name(i) in ("CALL", "RET", "CAL") for i in range(len(texts))):
        return
    written = {_STACK_POINTER}
    for text in texts:
        written |= register_effects(code.sm, text).writes if text else set()
    for index, text in enumerate(texts):
        effects = register_effects(code.sm, text) if text else None
        missing = sorted(r for r in effects.reads | effects.guards if r not in written) if (
            effects) else []  # fmt: skip
        if missing and code.instructions[index].control:
            names = " ".join(f"{file}{number}" for file, number in missing)
            yield _finding(
                code, index, "unset-register", f"{names} is written nowhere",
                "write it first, or read RZ or PT",
            )  # fmt: skip


def _pairs(code: SassCode) -> Iterator[tuple[int, Slots]]:
    """(instruction, operands that the instructions before it left in the reuse cache)."""
    cached: Slots = ()
    for index, instruction in enumerate(code.instructions):
        if instruction.text is None:
            cached = ()
            continue
        yield index, cached
        cached = next_cached(code.sm, instruction.text, cached)


def _stale_reuse(code: SassCode) -> Iterator[SassFinding]:
    before: set[tuple[str, int]] = set()
    for index, cached in _pairs(code):
        text = code.instructions[index].text
        assert text is not None
        reads = set(source_slots(code.sm, text))
        for slot, register in cached:
            if (slot, register) in reads and ("R", register) in before:
                yield _finding(
                    code, index, "stale-reuse",
                    f"R{register} is read from the reuse cache, but was just overwritten",
                    "clear .reuse on the instruction before",
                )  # fmt: skip
        before = set(register_effects(code.sm, text).writes)


def _slow_operands(code: SassCode) -> Iterator[SassFinding]:
    for index, cycles in enumerate(conflict_cycles(code.sm, [x.text for x in code.instructions])):
        if cycles:
            yield _finding(
                code, index, "bank-conflict", f"reading the registers takes {cycles} more cycles",
                "choose registers of other banks, or reuse one from the instruction before",
            )  # fmt: skip
