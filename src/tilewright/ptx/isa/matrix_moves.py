"""Fragment moves: ``wmma.load``, ``wmma.store``, ``ldmatrix``, ``stmatrix``, ``movmatrix``.

Forms, fragments, versions and alignment come from ``mma.FRAGMENT_MOVES``. Addresses are computed
from the fragment's layouts, which map (thread, value) to a line and a position in it. One access
moves the values that are neighbours in memory and share a register.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ... import mma
from ...layout import composition, right_inverse
from ...layout.symbolic import add, floordiv, mul
from .load_store import space_of
from .matrix import Values, operand
from .primitives import Primitives, Value
from .row import Form, listed

EFFECTS, LOADS = "convergent whole memory", "convergent whole memory reads"


def _family(
    name: str,
) -> tuple[tuple[mma.FragmentMove, ...], Callable[[str], mma.FragmentMove | None]]:
    """The moves of a family, and what finds one."""

    def find(opcode: str) -> mma.FragmentMove | None:
        found = mma.find_fragment_move(opcode)
        return found if found and found.family == name else None

    return tuple(move for move in mma.FRAGMENT_MOVES if move.family == name), find


# --- addresses ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneInteger:
    """A lane value with the operators that layouts use; other operands are of its width or ints,
    divisors powers of two.
    """

    m: Primitives
    value: Value

    def _of(self, other: LaneInteger | int) -> Value:
        if isinstance(other, LaneInteger):
            return other.value
        return self.m.const(self.m.width(self.value), other)

    def __add__(self, other: LaneInteger | int) -> LaneInteger:
        return LaneInteger(self.m, self.m.add(self.value, self._of(other)))

    def __mul__(self, other: LaneInteger | int) -> LaneInteger:
        return LaneInteger(self.m, self.m.mul(self.value, self._of(other)))

    def __and__(self, other: LaneInteger | int) -> LaneInteger:
        return LaneInteger(self.m, self.m.and_(self.value, self._of(other)))

    def __floordiv__(self, other: int) -> LaneInteger:
        count = self.m.const(32, other.bit_length() - 1)
        return LaneInteger(self.m, self.m.lshr(self.value, count))

    def __mod__(self, other: int) -> LaneInteger:
        return self & (other - 1)


@dataclass(frozen=True, slots=True)
class FragmentAccess:
    """Values of a register that one access moves: line and position of the first, and the count."""

    line: int
    place: int
    size: int


@cache
def accesses(move: mma.FragmentMove) -> tuple[tuple[FragmentAccess, ...], ...]:
    """Of each register, what thread 0 has in it; another thread's lines and places are further on,
    all by the same.
    """
    fragment = move.fragment
    per = fragment.word // fragment.bits
    line, place = (layout[1].indices() for layout in move.line_layouts())
    made = []
    for first in range(0, fragment.values, per):
        held = [(int(line[v]), int(place[v])) for v in range(first, first + per)]
        size = per
        while not _neighbours(held, size):
            size //= 2
        made.append(tuple(FragmentAccess(*held[i], size) for i in range(0, per, size)))
    return tuple(made)


def _neighbours(held: list[tuple[int, int]], size: int) -> bool:
    return all(at == (held[i - i % size][0], held[i - i % size][1] + i % size)
               for i, at in enumerate(held))  # fmt: skip


def _first_value(m: Primitives, move: mma.FragmentMove, width: int) -> tuple[Any, Any]:
    """The line and place of each thread's first value: numbers, of ``width`` bits if not 0."""
    lane = LaneInteger(m, m.zext(m.lane(), width))
    line, place = (layout((lane, 0)) for layout in move.line_layouts())
    return line, place


def _bytes(move: mma.FragmentMove, elements: Any) -> Any:
    bits = move.fragment.bits
    return mul(elements, bits // 8) if bits >= 8 else floordiv(elements, 8 // bits)


# --- wmma -----------------------------------------------------------------------------------------


def _addresses(
    m: Primitives, f: Form, move: mma.FragmentMove, a: Value, stride: Value | None
) -> Callable[[FragmentAccess], Value]:
    """The address of a piece; a fault where ``a`` or the stride is not aligned."""
    leading: Any = move.leading if stride is None else LaneInteger(m, m.zext(stride, 64))
    widest = max(piece.size * move.fragment.bits for held in accesses(move) for piece in held)
    if widest < 8 * move.alignment:
        _expect_aligned(m, f, move, a, _bytes(move, leading))
    line, place = _first_value(m, move, 64)
    start = add(add(LaneInteger(m, a), _bytes(move, mul(line, leading))), _bytes(move, place))

    def address(piece: FragmentAccess) -> Value:
        further = _bytes(move, mul(leading, piece.line))
        return add(add(start, further), _bytes(move, piece.place)).value

    return address


def _expect_aligned(m: Primitives, f: Form, move: mma.FragmentMove, a: Value, pitch: Any) -> None:
    """A load as wide as the alignment, of an address that is odd where the stride is."""
    if isinstance(pitch, LaneInteger):
        a = m.or_(a, (pitch % move.pitch).value)
    width = min(move.alignment, 16)
    m.load(space_of(f), a, 8 * width, move.alignment // width)


def _wmma_operands(f: Form) -> str:
    move: mma.FragmentMove = f.entry
    assert move.instruction
    held = operand(move.instruction, move.operand)
    first = f"{held} = [p:space]" if move.loads else f"[p:space], {held}"
    return f"{first}, stride:u32?"


@listed("wmma", "wmma.load.{operand}.sync[.aligned].{layout}.{shape}[.{space}].{T}",
        _wmma_operands, *_family("wmma.load"), LOADS)  # fmt: skip
def wmma_load(m: Primitives, f: Form, p: Value, stride: Value | None = None) -> Values:
    """Load a matrix for ``wmma.mma``: lines from ``p`` on, one every ``stride`` elements."""
    move: mma.FragmentMove = f.entry.on(m.arch)
    address = _addresses(m, f, move, p, stride)
    bits, made = move.fragment.bits, {}
    for held in accesses(move):
        if held not in made:  # f16 operands are held twice
            loaded = (m.load(space_of(f), address(x), x.size * bits)[0] for x in held)
            made[held] = m.join(*loaded)
    return tuple(made[held] for held in accesses(move))


@listed("wmma", "wmma.store.d.sync[.aligned].{layout}.{shape}[.{space}].{T}",
        _wmma_operands, *_family("wmma.store"), EFFECTS)  # fmt: skip
def wmma_store(m: Primitives, f: Form, p: Value, d: Values, stride: Value | None = None) -> None:
    """Store what ``wmma.mma`` gave: lines from ``p`` on, one every ``stride`` elements."""
    move: mma.FragmentMove = f.entry.on(m.arch)
    address = _addresses(m, f, move, p, stride)
    for part, piece in _parts(m, move, d):
        m.store(space_of(f), address(piece), (part,))


def _parts(
    m: Primitives, move: mma.FragmentMove, registers: Values
) -> Iterator[tuple[Value, FragmentAccess]]:
    for register, held in zip(registers, accesses(move), strict=True):
        parts = m.split(register, move.fragment.word // len(held))
        yield from zip(parts, held, strict=True)


# --- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------


def _lines(m: Primitives, move: mma.FragmentMove, a: Value) -> Callable[[FragmentAccess], Value]:
    """The address of a piece's line, from the lane that has it."""
    first, _ = _first_value(m, move, 32)
    known: dict[int, Value] = {}

    def line(piece: FragmentAccess) -> Value:
        if piece.line not in known:
            known[piece.line] = m.shuffle(a, (first + piece.line).value)
        return known[piece.line]

    return line


def _load_operands(f: Form) -> str:
    return f"d:b32*{f.entry.registers} = [a:space]"


@listed("ldmatrix", "ldmatrix.sync.aligned.{shape}.{num}[.trans][.{space}].{T}[.{source}]",
        _load_operands, *_family("ldmatrix"), LOADS)  # fmt: skip
def ldmatrix(m: Primitives, f: Form, a: Value) -> Values:
    """Load matrices from lines of 16 bytes, lane i's ``a`` the address of line i."""
    move: mma.FragmentMove = f.entry
    if move.shape == "m8n8":
        return m.ldmatrix(space_of(f), a, move.count, move.trans)
    line, (_, place), lines = _lines(m, move, a), _first_value(m, move, 32), {}
    bits, mask = move.fragment.dtype.bits, m.const(8, (1 << move.fragment.dtype.bits) - 1)

    def element(piece: FragmentAccess, at: int) -> Value:
        if piece.line not in lines:
            lines[piece.line] = m.load(space_of(f), line(piece), 128)[0]
        moved = m.lshr(lines[piece.line], ((place + at) * bits).value)
        return m.and_(m.trunc(moved, 8), mask)

    return tuple(
        m.join(*(element(x, x.place + i) for x in held for i in range(x.size)))
        for held in accesses(move)
    )


def _store_operands(f: Form) -> str:
    return f"[a:space], b:b32()*{f.entry.registers}"


@listed("stmatrix", "stmatrix.sync.aligned.{shape}.{num}[.trans][.{space}].{T}",
        _store_operands, *_family("stmatrix"), EFFECTS)  # fmt: skip
def stmatrix(m: Primitives, f: Form, a: Value, b: Values) -> None:
    """Store matrices to lines of 16 bytes, lane i's ``a`` the address of line i."""
    move: mma.FragmentMove = f.entry
    if move.shape == "m8n8":
        m.stmatrix(space_of(f), a, b, move.trans)
        return
    line, (_, place) = _lines(m, move, a), _first_value(m, move, 64)
    checked = set()
    for part, piece in _parts(m, move, b):
        if piece.line not in checked:
            m.reach(space_of(f), line(piece), 8 * move.alignment)  # faults as all the line would
            checked.add(piece.line)
        at = _bytes(move, place + piece.place)
        m.store(space_of(f), m.add(line(piece), at.value), (part,))


@listed("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16", lambda f: "d:b32 = a:b32()",
        *_family("movmatrix"), "convergent whole")  # fmt: skip
def movmatrix(m: Primitives, f: Form, a: Value) -> Value:
    """Transpose an 8×8 matrix of 16-bit elements, held as ldmatrix gives it."""
    holder = composition(right_inverse(mma.ldmatrix(1).layout), f.entry.fragment.layout)
    halves = []
    for value in (0, 1):
        whose = holder((LaneInteger(m, m.lane()), value))  # lane + 32 * which half
        register = m.shuffle(a, whose.value)
        halves.append(m.trunc(m.lshr(register, (whose // 32 * 16).value), 16))
    return m.join(*halves)
