"""``rewrite_loop``: a kernel whose main loop of FFMAs is scheduled and allocated anew.

The values that are live where the loop begins are moved to the registers that they have in it, and
after it to those that the rest of the kernel expects; nothing else of the kernel changes. Every
accumulator adds the same products in the same order, so results have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from ....errors import SassError
from ...code_listing import encode_code
from ...code_motion import CodeMotion
from ...control_code import ControlCode
from ...cubin_edit import with_code
from ...cubin_file import MAX_REGISTERS, CubinFile
from ...encoding_table import EncodingTable, encoding_table
from ...machine.code_paths import SassCode
from ...machine.hazards import function_code
from ...machine.register_effects import registers_needed
from ...sass_instruction import SassInstruction, encode_instruction
from ...sass_text import SassText, parse_instruction
from ..kernel_instruction import KernelInstruction
from ..register_allocator import with_registers
from ..timing_table import timing_table
from .loop_check import check_values
from .loop_control import kept_barriers, with_barriers, with_reuse, with_stalls
from .loop_moves import moves_in, moves_out
from .loop_order import ordered, orientations
from .loop_registers import LoopRegisters, loop_registers
from .loop_values import LoopValues, loop_values

_LONG = ControlCode(stall=15, yields=True)
_KEEP = ("BAR", "DEPBAR", "LDGDEPBAR")
_NOP = KernelInstruction(parse_instruction("NOP"), ControlCode(stall=1))
# (lead, near) of ``ordered``, the fastest first, which take the most registers.
_ORDERS = ((96, False), (64, False), (0, False), (0, True))
_LINE = 8  # instructions of a line of the instruction cache, of which the loop begins one
_SM = 90
_LEAST = 16  # registers per thread
_RESERVED = 2  # registers that a cubin counts and no instruction names


def rewrite_loop(cubin: CubinFile, name: str, registers: int) -> CubinFile:
    """The cubin with the loop of kernel ``name`` rewritten, in at most ``registers`` registers per
    thread.

    Raises SassError for another architecture than sm_90a, a number of registers that no kernel
    has, and a kernel whose hot loop is not one block of outer products, or whose values do not fit.
    """
    if cubin.sm != _SM:
        raise SassError(f"a kernel whose loop is rewritten must be of sm_90a, got sm_{cubin.sm}")
    if not _LEAST <= registers <= MAX_REGISTERS:
        most = MAX_REGISTERS
        raise SassError(f"registers per thread must be {_LEAST} to {most}, got {registers}")
    code = function_code(cubin, name)
    loop = loop_values(code)
    orders = list(product(_ORDERS, orientations(loop)))
    for (lead, near), transposed in orders:
        try:
            placed = ordered(loop, near, lead, transposed)
            return _rewritten(cubin, name, code, loop, placed, registers - _RESERVED)
        except SassError:
            if ((lead, near), transposed) == orders[-1]:
                raise
    raise AssertionError


def _rewritten(
    cubin: CubinFile, name: str, code: SassCode, loop: LoopValues,
    placed: Sequence[tuple[SassText, int | None]], limit: int,
) -> CubinFile:  # fmt: skip
    """The cubin with the loop's instructions in this order, in registers below ``limit``."""
    body = _body(loop, placed, limit - 1)  # one to move through
    kept = kept_barriers(loop.texts)
    moves = moves_in(code, loop, body.registers, kept, limit)
    begin = loop.first + len(moves.early) + len(moves.late)
    begin += -begin % _LINE
    padding = [_NOP] * (begin - loop.first - len(moves.early) - len(moves.late))
    after = moves_out(loop, body.registers, kept, limit)
    parts = [
        _Part(moves.place, moves.place, moves.early),
        _Part(loop.first, loop.last + 1, [*moves.late, *padding, *body.instructions, *after]),
    ]
    return _replaced(cubin, name, code, loop, parts, begin)


@dataclass(frozen=True)
class _Body:
    """The loop's instructions with registers."""

    instructions: list[KernelInstruction]
    registers: LoopRegisters


def _body(loop: LoopValues, placed: Sequence[tuple[SassText, int | None]], limit: int) -> _Body:
    timing = timing_table(loop.sm)
    texts = [text for text, _ in placed] + [loop.texts[-1]]
    origins = [place for _, place in placed] + [len(loop.texts) - 1]
    registers = loop_registers(loop, texts, limit)
    check_values(loop, texts, origins, registers)
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


# --- the kernel's new code ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """``instructions`` in place of those from ``first`` to ``end``, of which there may be none."""

    first: int
    end: int
    instructions: Sequence[KernelInstruction]

    @property
    def grown(self) -> int:
        """How many more there are."""
        return len(self.instructions) - (self.end - self.first)


def _replaced(
    cubin: CubinFile, name: str, code: SassCode, loop: LoopValues, parts: Sequence[_Part],
    begin: int,
) -> CubinFile:  # fmt: skip
    """The cubin with these parts, in order, of its kernel, whose loop begins at ``begin``."""
    table, size = encoding_table(cubin.sm), cubin.instruction_size
    count = len(code.instructions)
    words: list[SassInstruction] = []
    at = 0
    for part in parts:
        words += _rest(table, code, range(at, part.first), loop, parts)
        for x in part.instructions:
            text = _with_target(x.text, begin * size) if x.label == "loop" else x.text
            words.append(encode_instruction(table, text, x.control, (len(words) + 1) * size))
        at = part.end
    words += _rest(table, code, range(at, count), loop, parts)
    while len(words) % 8:
        words.append(encode_instruction(table, parse_instruction("NOP"), _LONG, 0))
    kept = [i for i in range(count) if not loop.first < i <= loop.last]
    offsets = {i * size: _moved(i, parts) * size for i in kept}
    motion = CodeMotion(offsets, count * size, len(words) * size)
    edited = with_code(cubin, name, encode_code(table, words), motion)
    needed = registers_needed(cubin.sm, [x.text for x in words if x.text is not None])
    return edited.with_registers(name, max(needed, cubin.registers(name)))


def _moved(index: int, parts: Sequence[_Part]) -> int:
    """Where an instruction outside the loop is now; of the loop's first one, what replaces it."""
    return index + sum(part.grown for part in parts if part.end <= index)


def _rest(
    table: EncodingTable, code: SassCode, indexes: range, loop: LoopValues, parts: Sequence[_Part]
) -> list[SassInstruction]:
    """The instructions outside the loop, their jumps going where they went."""
    size = 16
    found = []
    for i in indexes:
        x = code.instructions[i]
        target = code.target(i)
        if target is None or x.text is None or x.control is None:
            found.append(x)
            continue
        if loop.first < target <= loop.last:
            raise SassError("no jump may lead into a loop that is rewritten, got one")
        text = _with_target(x.text, _moved(target, parts) * size, x.target)
        found.append(encode_instruction(table, text, x.control, (_moved(i, parts) + 1) * size))
    return found


def _with_target(text: SassText, target: int, index: int | None = None) -> SassText:
    at = len(text.operands) - 1 if index is None else index
    operand = text.operands[at]
    operands = list(text.operands)
    operands[at] = replace(operand, numbers=(*operand.numbers[:-1], target))
    return replace(text, operands=tuple(operands))
