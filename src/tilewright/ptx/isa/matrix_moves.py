"""Fragment moves: ``wmma.load``, ``wmma.store``, ``ldmatrix``, ``stmatrix``, ``movmatrix``.

Forms, fragments, versions and alignment come from ``mma.FRAGMENT_MOVES``. Addresses are computed
from the fragment's layouts, which map (thread, value) to a row in memory and a position in it. One
access moves the values of a register that are adjacent in memory.
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
    """The moves of a family, and the function that finds one by its opcode."""

    def find(opcode: str) -> mma.FragmentMove | None:
        found = mma.find_fragment_move(opcode)
        return found if found and found.family == name else None

    return tuple(move for move in mma.FRAGMENT_MOVES if move.family == name), find


# --- addresses ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneInteger:
    """A lane value with the operators that layouts use. Other operands are values of its width or
    ints; divisors are powers of two.
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
    """Values of a register that one access moves: row and position of the first, and the count."""

    row: int
    position: int
    size: int


@cache
def accesses(move: mma.FragmentMove) -> tuple[tuple[FragmentAccess, ...], ...]:
    """The accesses of thread 0 for each register. For another thread, all rows and positions are
    offset by the same amount.
    """
    fragment = move.fragment
    per = fragment.word // fragment.bits
    row, position = (layout[1].indices() for layout in move.line_layouts())
    by_register = []
    for first in range(0, fragment.values, per):
        spots = [(int(row[v]), int(position[v])) for v in range(first, first + per)]
        size = per
        while not _adjacent(spots, size):
            size //= 2
        by_register.append(tuple(FragmentAccess(*spots[i], size) for i in range(0, per, size)))
    return tuple(by_register)


def _adjacent(spots: list[tuple[int, int]], size: int) -> bool:
    """Whether each group of ``size`` values lies in one row, at consecutive positions."""
    return all(spot == (spots[i - i % size][0], spots[i - i % size][1] + i % size)
               for i, spot in enumerate(spots))  # fmt: skip


def _first_value(m: Primitives, move: mma.FragmentMove, width: int) -> tuple[Any, Any]:
    """The row and position of each thread's first value: numbers, of ``width`` bits if not 0."""
    lane = LaneInteger(m, m.zext(m.lane(), width))
    row, position = (layout((lane, 0)) for layout in move.line_layouts())
    return row, position


def _bytes(move: mma.FragmentMove, elements: Any) -> Any:
    bits = move.fragment.bits
    return mul(elements, bits // 8) if bits >= 8 else floordiv(elements, 8 // bits)


# --- wmma -----------------------------------------------------------------------------------------


def _addresses(
    m: Primitives, f: Form, move: mma.FragmentMove, a: Value, stride: Value | None
) -> Callable[[FragmentAccess], Value]:
    """The address of an access; a fault if ``a`` or the stride is not aligned."""
    leading: Any = move.leading if stride is None else LaneInteger(m, m.zext(stride, 64))
    widest = max(x.size * move.fragment.bits for register in accesses(move) for x in register)
    if widest < 8 * move.alignment:
        _expect_aligned(m, f, move, a, _bytes(move, leading))
    row, position = _first_value(m, move, 64)
    start = add(add(LaneInteger(m, a), _bytes(move, mul(row, leading))), _bytes(move, position))

    def address(access: FragmentAccess) -> Value:
        row_offset = _bytes(move, mul(leading, access.row))
        return add(add(start, row_offset), _bytes(move, access.position)).value

    return address


def _expect_aligned(m: Primitives, f: Form, move: mma.FragmentMove, a: Value, pitch: Any) -> None:
    """A load of the alignment's width, from an address that is misaligned if the stride is."""
    if isinstance(pitch, LaneInteger):
        a = m.or_(a, (pitch % move.pitch).value)
    width = min(move.alignment, 16)
    m.load(space_of(f), a, 8 * width, move.alignment // width)


def _wmma_operands(f: Form) -> str:
    move: mma.FragmentMove = f.entry
    assert move.instruction
    fragment = operand(move.instruction, move.operand)
    first = f"{fragment} = [p:space]" if move.loads else f"[p:space], {fragment}"
    return f"{first}, stride:u32?"


@listed("wmma", "wmma.load.{operand}.sync[.aligned].{layout}.{shape}[.{space}].{T}",
        _wmma_operands, *_family("wmma.load"), LOADS)  # fmt: skip
def wmma_load(m: Primitives, f: Form, p: Value, stride: Value | None = None) -> Values:
    """Load a matrix for ``wmma.mma`` from ``p``; ``stride`` is its leading dimension."""
    move: mma.FragmentMove = f.entry.on(m.arch)
    address = _addresses(m, f, move, p, stride)
    bits, loaded = move.fragment.bits, {}
    for register in accesses(move):
        if register not in loaded:  # two registers hold the same values of an f16 operand
            parts = (m.load(space_of(f), address(x), x.size * bits)[0] for x in register)
            loaded[register] = m.join(*parts)
    return tuple(loaded[register] for register in accesses(move))


@listed("wmma", "wmma.store.d.sync[.aligned].{layout}.{shape}[.{space}].{T}",
        _wmma_operands, *_family("wmma.store"), EFFECTS)  # fmt: skip
def wmma_store(m: Primitives, f: Form, p: Value, d: Values, stride: Value | None = None) -> None:
    """Store a result of ``wmma.mma`` from ``p`` on; ``stride`` is its leading dimension."""
    move: mma.FragmentMove = f.entry.on(m.arch)
    address = _addresses(m, f, move, p, stride)
    for part, access in _parts(m, move, d):
        m.store(space_of(f), address(access), (part,))


def _parts(
    m: Primitives, move: mma.FragmentMove, registers: Values
) -> Iterator[tuple[Value, FragmentAccess]]:
    for register, its_accesses in zip(registers, accesses(move), strict=True):
        parts = m.split(register, move.fragment.word // len(its_accesses))
        yield from zip(parts, its_accesses, strict=True)


# --- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------


def _row_address(
    m: Primitives, move: mma.FragmentMove, a: Value
) -> Callable[[FragmentAccess], Value]:
    """The address of an access's row, from the lane that has it."""
    first, _ = _first_value(m, move, 32)
    known: dict[int, Value] = {}

    def address(access: FragmentAccess) -> Value:
        if access.row not in known:
            known[access.row] = m.shuffle(a, (first + access.row).value)
        return known[access.row]

    return address


def _load_operands(f: Form) -> str:
    return f"d:b32*{f.entry.registers} = [a:space]"


@listed("ldmatrix", "ldmatrix.sync.aligned.{shape}.{num}[.trans][.{space}].{T}[.{source}]",
        _load_operands, *_family("ldmatrix"), LOADS)  # fmt: skip
def ldmatrix(m: Primitives, f: Form, a: Value) -> Values:
    """Load matrices from rows of 16 bytes; lane i's ``a`` is the address of row i."""
    move: mma.FragmentMove = f.entry
    if move.shape == "m8n8":
        return m.ldmatrix(space_of(f), a, move.count, move.trans)
    address, (_, first), rows = _row_address(m, move, a), _first_value(m, move, 32), {}
    bits, mask = move.fragment.dtype.bits, m.const(8, (1 << move.fragment.dtype.bits) - 1)

    def element(access: FragmentAccess, position: int) -> Value:
        if access.row not in rows:
            rows[access.row] = m.load(space_of(f), address(access), 128)[0]
        shifted = m.lshr(rows[access.row], ((first + position) * bits).value)
        return m.and_(m.trunc(shifted, 8), mask)

    return tuple(
        m.join(*(element(x, x.position + i) for x in register for i in range(x.size)))
        for register in accesses(move)
    )


def _store_operands(f: Form) -> str:
    return f"[a:space], b:b32()*{f.entry.registers}"


@listed("stmatrix", "stmatrix.sync.aligned.{shape}.{num}[.trans][.{space}].{T}",
        _store_operands, *_family("stmatrix"), EFFECTS)  # fmt: skip
def stmatrix(m: Primitives, f: Form, a: Value, b: Values) -> None:
    """Store matrices to rows of 16 bytes; lane i's ``a`` is the address of row i."""
    move: mma.FragmentMove = f.entry
    if move.shape == "m8n8":
        m.stmatrix(space_of(f), a, b, move.trans)
        return
    row_address, (_, first) = _row_address(m, move, a), _first_value(m, move, 64)
    checked = set()
    for part, access in _parts(m, move, b):
        start = row_address(access)
        if access.row not in checked:
            m.reach(space_of(f), start, 8 * move.alignment)  # faults if the whole row would
            checked.add(access.row)
        offset = _bytes(move, first + access.position)
        m.store(space_of(f), m.add(start, offset.value), (part,))


@listed("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16", lambda f: "d:b32 = a:b32()",
        *_family("movmatrix"), "convergent whole")  # fmt: skip
def movmatrix(m: Primitives, f: Form, a: Value) -> Value:
    """Transpose an 8×8 matrix of 16-bit elements, distributed as by ldmatrix."""
    holder = composition(right_inverse(mma.ldmatrix(1).layout), f.entry.fragment.layout)
    halves = []
    for value in (0, 1):
        whose = holder((LaneInteger(m, m.lane()), value))  # lane + 32 * which half
        register = m.shuffle(a, whose.value)
        halves.append(m.trunc(m.lshr(register, (whose // 32 * 16).value), 16))
    return m.join(*halves)
