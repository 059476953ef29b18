"""``rewrite_loop``: a kernel whose main loop of FFMAs is scheduled and allocated anew.

The values that are live where the loop begins are moved to the registers that they have in it, and
after it to those that the rest of the kernel expects; nothing else of the kernel changes. Every
accumulator adds the same products in the same order, so results have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....errors import SassError
from ...code_listing import encode_code
from ...code_motion import CodeMotion
from ...control_code import ControlCode
from ...cubin_edit import with_code
from ...cubin_file import CubinFile
from ...encoding_table import EncodingTable, encoding_table
from ...machine.code_paths import SassCode
from ...machine.hazards import function_code
from ...machine.register_effects import register_effects, registers_needed
from ...sass_instruction import SassInstruction, encode_instruction
from ...sass_text import SassText, parse_instruction
from ..kernel_instruction import KernelInstruction
from ..register_allocator import with_registers
from ..timing_table import timing_table
from .loop_check import check_values
from .loop_control import kept_barriers, with_barriers, with_reuse, with_stalls
from .loop_order import ordered
from .loop_registers import LoopRegisters, loop_registers
from .loop_values import LoopValues, loop_values

_LONG = ControlCode(stall=15, yields=True)
_KEEP = ("BAR", "DEPBAR", "LDGDEPBAR")
_MOVE = 6  # cycles from a move to an instruction that reads its result
_NOP = KernelInstruction(parse_instruction("NOP"), ControlCode(stall=1))
_LINE = 8  # instructions of a line of the instruction cache, of which the loop begins one
_MARGIN = 3  # registers above those of the values: one to move through, two that are reserved


def rewrite_loop(cubin: CubinFile, name: str, registers: int) -> CubinFile:
    """The cubin with the loop of kernel ``name`` rewritten, in at most ``registers`` registers per
    thread.

    Raises SassError for a kernel whose hot loop is not one block of outer products, or whose
    values do not fit.
    """
    code = function_code(cubin, name)
    loop = loop_values(code)
    body = _body(loop, registers - _MARGIN)
    kept = kept_barriers(loop.texts)
    head = _move_in(loop, body.registers, _written(code, loop), kept)
    head += [_NOP] * (-(loop.first + len(head)) % _LINE)
    inside = [head, body.instructions, _move_out(loop, body.registers, kept)]
    return _replaced(cubin, name, code, loop, inside)


@dataclass(frozen=True)
class _Body:
    """The loop's instructions with registers."""

    instructions: list[KernelInstruction]
    registers: LoopRegisters


def _body(loop: LoopValues, limit: int) -> _Body:
    timing = timing_table(loop.sm)
    texts, origins, registers = _placed(loop, limit)
    texts = with_reuse(timing, [with_registers(text, registers.known) for text in texts])
    old = [
        loop.controls[p] if p is not None and texts[i].opcode.startswith(_KEEP) else None
        for i, p in enumerate(origins)
    ]
    controls = with_barriers(timing, texts, old, kept_barriers(texts))
    least = [c.stall if c is not None else 0 for c in old]
    instructions = [
        KernelInstruction(t, c, minimum_stall=s)
        for t, c, s in zip(texts, controls, least, strict=True)
    ]
    instructions[-1] = replace(instructions[-1], label="loop")
    return _Body(with_stalls(timing, instructions, {"loop": 0}), registers)


def _placed(loop: LoopValues, limit: int) -> tuple[list[SassText], list[int | None], LoopRegisters]:
    """The instructions in order, their places in the loop as it was, and registers for them."""
    for near in (False, True):
        placed = ordered(loop, near)
        texts = [text for text, _ in placed] + [loop.texts[-1]]
        origins = [place for _, place in placed] + [len(loop.texts) - 1]
        try:
            registers = loop_registers(loop, texts, limit)
            check_values(loop, texts, origins, registers)
            return texts, origins, registers
        except SassError:
            if near:
                raise
    raise AssertionError


# --- moves ----------------------------------------------------------------------------------------


def _written(code: SassCode, loop: LoopValues) -> set[int]:
    """The registers that any instruction outside the loop writes."""
    outside = [*code.instructions[: loop.first], *code.instructions[loop.last + 1 :]]
    texts = [x.text for x in outside if x.text is not None]
    return {n for t in texts for f, n in register_effects(code.sm, t).writes if f == "R"}


def _move_in(
    loop: LoopValues, registers: LoopRegisters, written: set[int], kept: frozenset[int]
) -> list[KernelInstruction]:
    sources = {
        registers.known[n]: r
        for r, n in loop.live_in.items()
        if n in registers.entering and r in written
    }
    return _moves(sources, _spare(loop, registers), kept)


def _move_out(
    loop: LoopValues, registers: LoopRegisters, kept: frozenset[int]
) -> list[KernelInstruction]:
    targets = {r: registers.known[n] for r, n in loop.live_out.items()}
    return _moves(targets, _spare(loop, registers), kept)


def _spare(loop: LoopValues, registers: LoopRegisters) -> int:
    return max([*registers.known.values(), *loop.live_in, *loop.live_out]) + 1


def _moves(sources: Mapping[int, int], spare: int, kept: frozenset[int]) -> list[KernelInstruction]:
    """Moves that happen at once: register → its new value's register. All barriers but those that
    copies signal (``kept``) are waited for before and all latencies after them.
    """
    left = {target: source for target, source in sources.items() if target != source}
    pairs = []
    while left:
        free = [t for t in left if t not in left.values()]
        if free:
            pairs.append((free[0], left.pop(free[0])))
            continue
        target = next(iter(left))  # a cycle: its first source is kept aside
        pairs.append((spare, target))
        left = {t: spare if s == target else s for t, s in left.items()}
    wait = KernelInstruction(
        parse_instruction("NOP"),
        replace(_LONG, wait=sum(1 << b - 1 for b in range(1, 7) if b not in kept)),
    )
    rest = KernelInstruction(parse_instruction("NOP"), _LONG)
    # The register that is kept aside is the only one that a later move reads.
    moves = [
        KernelInstruction(
            parse_instruction(f"MOV R{t}, R{s}"), ControlCode(stall=_MOVE if t == spare else 2)
        )
        for t, s in pairs
    ]
    return [rest, wait, *moves, rest]


# --- the kernel's new code ------------------------------------------------------------------------


def _replaced(
    cubin: CubinFile, name: str, code: SassCode, loop: LoopValues,
    inside: Sequence[Sequence[KernelInstruction]],
) -> CubinFile:  # fmt: skip
    table = encoding_table(cubin.sm)
    size = cubin.instruction_size
    head, body, tail = inside
    before = loop.first
    start = before + len(head)
    grown = len(head) + len(body) + len(tail) - (loop.last + 1 - loop.first)
    words = _rest(table, code, range(before), loop, grown)
    for i, x in enumerate([*head, *body, *tail]):
        at = (before + i + 1) * size
        text = _with_target(x.text, start * size) if x.label == "loop" else x.text
        words.append(encode_instruction(table, text, x.control, at))
    words += _rest(table, code, range(loop.last + 1, len(code.instructions)), loop, grown)
    while len(words) % 8:
        words.append(encode_instruction(table, parse_instruction("NOP"), _LONG, 0))
    offsets = {i * size: i * size for i in range(before)}
    offsets |= {i * size: (i + grown) * size for i in range(loop.last + 1, len(code.instructions))}
    offsets[before * size] = before * size
    motion = CodeMotion(offsets, len(code.instructions) * size, len(words) * size)
    edited = with_code(cubin, name, encode_code(table, words), motion)
    needed = registers_needed(cubin.sm, [x.text for x in words if x.text is not None])
    return edited.with_registers(name, max(needed, cubin.registers(name)))


def _rest(
    table: EncodingTable, code: SassCode, indexes: range, loop: LoopValues, grown: int
) -> list[SassInstruction]:
    """The instructions outside the loop, their jumps going where they went."""
    size = 16
    found = []
    for i in indexes:
        x = code.instructions[i]
        target = code.target(i)
        new = i + (grown if i > loop.last else 0)
        if target is None or x.text is None or x.control is None:
            found.append(x)
            continue
        if loop.first < target <= loop.last:
            raise SassError("no jump may lead into a loop that is rewritten, got one")
        there = target + (grown if target > loop.last else 0)
        text = _with_target(x.text, there * size, x.target)
        found.append(encode_instruction(table, text, x.control, (new + 1) * size))
    return found


def _with_target(text: SassText, target: int, index: int | None = None) -> SassText:
    at = len(text.operands) - 1 if index is None else index
    operand = text.operands[at]
    operands = list(text.operands)
    operands[at] = replace(operand, numbers=(*operand.numbers[:-1], target))
    return replace(text, operands=tuple(operands))
