"""Moves of the values that are live around a rewritten loop, to the registers that they have in it
and back.

Moves into the loop that nothing hinders are made ahead of the wait for the first copies, those that
need no load ahead of the wait for the first fragments. Every other one is an IMAD, as the integer
unit takes one in two cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ....errors import SassError
from ...control_code import ControlCode
from ...machine.code_paths import SassCode
from ...machine.register_effects import register_effects
from ...sass_text import SassText, parse_instruction
from ..kernel_instruction import KernelInstruction
from ..timing_table import TimingTable, timing_table
from .loop_registers import LoopRegisters
from .loop_values import LoopValues, live_registers

_BARRIERS = range(1, 7)
_FIRST = 2  # register that may be moved through: R1 is the stack's
_REST = 15  # cycles in which all instructions of a fixed latency end
_MOVE = 6  # from a move to an instruction that reads its result
_FORMS = "MOV R{}, R{}", "IMAD.MOV.U32 R{}, RZ, RZ, R{}"
Moves = dict[int, int]  # the register that is moved, by the one that it is moved to


@dataclass(frozen=True)
class MovesIn:
    """``early`` instructions ahead of instruction ``place``, ``late`` ones ahead of the loop."""

    place: int
    early: list[KernelInstruction]
    late: list[KernelInstruction]


def moves_in(
    code: SassCode, loop: LoopValues, registers: LoopRegisters, kept: frozenset[int], limit: int
) -> MovesIn:
    """The moves into the loop, by registers below ``limit``. ``kept`` are the barriers that copies
    signal.
    """
    written = _written(code, loop)
    left = {
        registers.known[n]: r
        for r, n in loop.live_in.items()
        if n in registers.entering and r in written and registers.known[n] != r
    }
    before = _Before(code, loop)
    early = {t: s for t, s in left.items() if before.is_early(t, s)}
    left = {t: s for t, s in left.items() if t not in early}
    ready = {t: s for t, s in left.items() if t not in left.values() and before.is_ready(t, s)}
    left = {t: s for t, s in left.items() if t not in ready}
    wait = _instruction("NOP", ControlCode(stall=1, wait=_mask(kept)))
    spare = _spare(loop, registers, limit, before.loaded | before.read)
    late = [_rest(_REST), *_moved(ready), wait, *_moved(left, spare)]
    first = [_rest(_REST), *_moved(early)] if early else []
    return MovesIn(before.place, first, [*late, _rest(_MOVE)])


def moves_out(
    loop: LoopValues, registers: LoopRegisters, kept: frozenset[int], limit: int
) -> list[KernelInstruction]:
    """The moves behind the loop, where what the loop left unfinished ends."""
    targets = {r: registers.known[n] for r, n in loop.live_out.items() if registers.known[n] != r}
    moves = _moved(targets, _spare(loop, registers, limit, set()))
    stall = max(_MOVE, _REST - len(moves))
    wait = _instruction("NOP", ControlCode(stall=stall, wait=_mask(kept), yields=True))
    return [wait, *moves, _rest(_MOVE)]


class _Before:
    """The code ahead of the loop, in which the first copies are started and waited for, at
    instruction ``place``; from there to the loop it is one block but for jumps that leave it.
    """

    def __init__(self, code: SassCode, loop: LoopValues) -> None:
        first, timing = loop.first, timing_table(code.sm)
        names = [code.name(i) for i in range(first)]
        waits = [i for i in range(first) if names[i] == "DEPBAR"]
        targets = [code.target(i) for i in range(len(code.instructions)) if i != loop.last]
        self.place = waits[-1] if waits else first
        jumps = any(t is not None and self.place <= t <= first for t in targets)
        self.has_place = bool(waits) and not jumps
        self.used = live_registers(code, self.place) | _touched(code, range(self.place, first))[0]
        self.changed = _touched(code, range(self.place, first))[1]
        self.loaded, self.read = _in_flight(code, timing, range(first))

    def is_ready(self, target: int, source: int) -> bool:
        """Whether no load writes the source, and no memory access needs the target."""
        return source not in self.loaded and target not in self.loaded | self.read

    def is_early(self, target: int, source: int) -> bool:
        """Whether this can be moved at ``place``."""
        free = source not in self.changed and target not in self.used
        return self.has_place and free and self.is_ready(target, source)


def _touched(code: SassCode, indexes: Sequence[int]) -> tuple[set[int], set[int]]:
    """The registers that instructions read or write, and those that they write."""
    effects = [register_effects(code.sm, t) for t in _texts(code, indexes)]
    writes = {n for e in effects for f, n in e.writes if f == "R"}
    return {n for e in effects for f, n in e.reads if f == "R"} | writes, writes


def _in_flight(code: SassCode, timing: TimingTable, indexes: range) -> tuple[set[int], set[int]]:
    """The registers that instructions without a fixed latency write, and those that they read."""
    variable = [t for t in _texts(code, indexes) if timing.is_variable(t)]
    effects = [register_effects(code.sm, t) for t in variable]
    writes = {n for e in effects for f, n in e.writes if f == "R"}
    return writes, {n for e in effects for f, n in e.reads if f == "R"}


def _texts(code: SassCode, indexes: Sequence[int]) -> list[SassText]:
    found = [code.instructions[i].text for i in indexes]
    return [text for text in found if text is not None]


def _written(code: SassCode, loop: LoopValues) -> set[int]:
    """The registers that any instruction outside the loop writes."""
    outside = [*range(loop.first), *range(loop.last + 1, len(code.instructions))]
    return _touched(code, outside)[1]


def _spare(
    loop: LoopValues, registers: LoopRegisters, limit: int, in_flight: set[int]
) -> int | None:
    """A register to move through: above all others, or one that holds nothing around the loop, and
    that no memory access ahead of it reads or writes; None if there is none.
    """
    used = {*registers.known.values(), *loop.live_in, *loop.live_out}
    candidates = chain(range(max(used) + 1, limit), range(_FIRST, limit))
    return next((r for r in candidates if r not in used | in_flight), None)


def _mask(kept: frozenset[int]) -> int:
    """All barriers but those that copies signal."""
    return sum(1 << b - 1 for b in _BARRIERS if b not in kept)


def _instruction(text: str, control: ControlCode) -> KernelInstruction:
    return KernelInstruction(parse_instruction(text), control)


def _rest(stall: int) -> KernelInstruction:
    return _instruction("NOP", ControlCode(stall=stall, yields=True))


def _moved(moves: Mapping[int, int], spare: int | None = None) -> list[KernelInstruction]:
    """Moves that happen at once. The first source of a cycle is kept in ``spare``, the only
    register that a later move reads. Raises SassError where that is missing.
    """
    left, pairs = dict(moves), []
    while left:
        free = [t for t in left if t not in left.values()]
        if free:
            pairs.append((free[0], left.pop(free[0])))
            continue
        if spare is None:
            raise SassError("a loop's values must leave a register to move through, got none")
        target = next(iter(left))
        pairs.append((spare, target))
        left = {t: spare if s == target else s for t, s in left.items()}
    return [
        _instruction(_FORMS[i % 2].format(t, s), ControlCode(stall=_MOVE if t == spare else 1))
        for i, (t, s) in enumerate(pairs)
    ]
