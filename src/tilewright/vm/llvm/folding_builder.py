"""An ``IRBuilder`` that computes what is constant instead of emitting an instruction for it.

The code of regions is compiled without LLVM's optimizer, and an instruction that folds away there
has been made, printed and parsed before. Folded are integers that are constant, in all lanes the
same, and operations that give one of their operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.ir as ir

from .expressions import TextConstant, element_of, float_splat, splat, width_of

Value = Any  # an ir.Value; llvmlite has no types

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def constant_of(value: Value) -> int | None:
    """The integer of a constant, ≥ 0, which all lanes of a vector have; None for other values."""
    if isinstance(value, TextConstant):
        return value.integer
    if isinstance(value, ir.Constant) and isinstance(value.constant, int):
        return int(value.constant) & (1 << width_of(value.type)) - 1
    return None


def scalar_of(vector: Value) -> Value | None:
    """The scalar that all lanes of a constant or of a broadcast have; None for other values."""
    bits = constant_of(vector)
    if bits is not None:
        return splat(element_of(vector.type), bits)
    if not isinstance(vector, ir.ShuffleVector) or constant_of(vector.operands[2]) != 0:
        return None
    lanes = vector.operands[0]
    first = isinstance(lanes, ir.InsertElement) and constant_of(lanes.operands[2]) == 0
    return lanes.operands[1] if first else None


class _Rule(NamedTuple):
    """How an operation of two integers folds. ``compute`` takes both and their width. A right
    operand of ``neutral`` gives the left one; any operand of ``absorbing`` gives that constant. If
    it ``commutes``, a left operand of ``neutral`` gives the right one.
    """

    compute: Callable[[int, int, int], int]
    neutral: int = 0
    absorbing: int | None = None
    commutes: bool = False
    is_shift: bool = False  # undefined for a count of the width or more

    def fold(self, lhs: Value, rhs: Value) -> Value | None:
        """The result without an instruction; None if it needs one."""
        a, b, width = constant_of(lhs), constant_of(rhs), width_of(lhs.type)
        if a is not None and b is not None and not (self.is_shift and b >= width):
            return splat(lhs.type, self.compute(a, b, width))
        ones = (1 << width) - 1
        if self.absorbing is not None and self.absorbing & ones in (a, b):
            return splat(lhs.type, self.absorbing)
        if b == self.neutral & ones:
            return lhs
        return rhs if self.commutes and a == self.neutral & ones else None


_RULES = {
    "add": _Rule(lambda a, b, _: a + b, commutes=True),
    "sub": _Rule(lambda a, b, _: a - b),
    "mul": _Rule(lambda a, b, _: a * b, neutral=1, absorbing=0, commutes=True),
    "and_": _Rule(lambda a, b, _: a & b, neutral=-1, absorbing=0, commutes=True),
    "or_": _Rule(lambda a, b, _: a | b, absorbing=-1, commutes=True),
    "xor": _Rule(lambda a, b, _: a ^ b, commutes=True),
    "shl": _Rule(lambda a, b, _: a << b, is_shift=True),
    "lshr": _Rule(lambda a, b, _: a >> b, is_shift=True),
    "ashr": _Rule(lambda a, b, width: _signed(a, width) >> b, is_shift=True),
}


class FoldingBuilder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite has no types
    """Emits what it can't fold. Each method is that of ``IRBuilder``."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self._bitcasts: dict[tuple[int, int], ir.CastInstr] = {}  # by the ids of block and operand

    def _fold(self, op: str, lhs: Value, rhs: Value, name: str) -> Value:
        folded = _RULES[op].fold(lhs, rhs)
        return getattr(super(), op)(lhs, rhs, name) if folded is None else folded

    def add(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("add", lhs, rhs, name)

    def sub(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("sub", lhs, rhs, name)

    def mul(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("mul", lhs, rhs, name)

    def and_(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("and_", lhs, rhs, name)

    def or_(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("or_", lhs, rhs, name)

    def xor(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("xor", lhs, rhs, name)

    def shl(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("shl", lhs, rhs, name)

    def lshr(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("lshr", lhs, rhs, name)

    def ashr(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        return self._fold("ashr", lhs, rhs, name)

    def not_(self, value: Value, name: str = "") -> Value:
        return self.xor(value, splat(value.type, -1), name)

    # --- comparison and choice ---

    def icmp_unsigned(self, cmpop: str, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            return splat(_like(lhs.type, 1), _RELATIONS[cmpop](a, b))
        return super().icmp_unsigned(cmpop, lhs, rhs, name)

    def icmp_signed(self, cmpop: str, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            width = width_of(lhs.type)
            holds = _RELATIONS[cmpop](_signed(a, width), _signed(b, width))
            return splat(_like(lhs.type, 1), holds)
        return super().icmp_signed(cmpop, lhs, rhs, name)

    def select(self, cond: Value, lhs: Value, rhs: Value, name: str = "", flags: Any = ()) -> Value:
        chosen = constant_of(cond)
        if chosen is not None:
            return lhs if chosen else rhs
        return lhs if lhs is rhs else super().select(cond, lhs, rhs, name, flags)

    # --- conversion ---

    def trunc(self, value: Value, typ: ir.Type, name: str = "") -> Value:
        bits = constant_of(value)
        return super().trunc(value, typ, name) if bits is None else splat(typ, bits)

    def zext(self, value: Value, typ: ir.Type, name: str = "") -> Value:
        bits = constant_of(value)
        return super().zext(value, typ, name) if bits is None else splat(typ, bits)

    def sext(self, value: Value, typ: ir.Type, name: str = "") -> Value:
        bits = constant_of(value)
        if bits is None:
            return super().sext(value, typ, name)
        return splat(typ, _signed(bits, width_of(value.type)))

    def bitcast(self, value: Value, typ: ir.Type, name: str = "") -> Value:
        while isinstance(value, ir.CastInstr) and value.opname == "bitcast":
            value = value.operands[0]
        if value.type == typ:
            return value
        bits = constant_of(value)
        if bits is not None and not isinstance(element_of(typ), ir.IntType):
            if width_of(typ) == 64 or not _signaling(bits):
                return float_splat(typ, bits)
        key = id(self.block), id(value)
        known = self._bitcasts.get(key)
        if known is None or known.type != typ:
            known = self._bitcasts[key] = super().bitcast(value, typ, name)
        return known

    # --- lanes ---

    def extract_element(self, vector: Value, idx: Value, name: str = "") -> Value:
        scalar = scalar_of(vector)
        return super().extract_element(vector, idx, name) if scalar is None else scalar


def _signed(bits: int, width: int) -> int:
    return bits - (bits >> width - 1 << width)


def _signaling(bits: int) -> bool:
    """Whether these are the bits of a signaling NaN of 32 bits."""
    return bits & 0x7FC00000 == 0x7F800000 and bits & 0x3FFFFF != 0


def _like(type_: ir.Type, width: int) -> ir.Type:
    """The type with as many lanes, of integers of ``width`` bits."""
    element = ir.IntType(width)
    return ir.VectorType(element, type_.count) if isinstance(type_, ir.VectorType) else element
