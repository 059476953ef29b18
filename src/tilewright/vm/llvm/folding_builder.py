"""An ``IRBuilder`` that computes what is constant instead of emitting an instruction for it.

The code of regions is compiled without LLVM's optimizer, and an instruction that folds away there
has been made, printed and parsed before. Folded are integers that are constant, in all lanes the
same, and operations that give one of their operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .expressions import TextConstant, element_of, float_splat, splat, width_of

Value = Any  # an ir.Value; llvmlite has no types

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def constant_of(value: Value) -> int | None:
    """The integer ≥ 0 that a constant holds, in every lane of a vector; None if it is no such."""
    if isinstance(value, TextConstant):
        return value.integer
    if isinstance(value, ir.Constant) and isinstance(value.constant, int):
        return int(value.constant) & ones(value.type)
    return None


def ones(type_: ir.Type) -> int:
    """The integer whose bits are all set, in one lane."""
    return (1 << width_of(type_)) - 1


def broadcast_of(value: Value) -> Value | None:
    """The scalar that the instruction ``value`` copies to every lane; None if it is no such."""
    if not isinstance(value, ir.ShuffleVector) or constant_of(value.operands[2]) != 0:
        return None
    lanes = value.operands[0]
    first = isinstance(lanes, ir.InsertElement) and constant_of(lanes.operands[2]) == 0
    return lanes.operands[1] if first else None


class FoldingBuilder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite has no types
    """Emits what it can't fold. Each method is that of ``IRBuilder``."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self._bitcasts: dict[tuple[int, int], ir.CastInstr] = {}  # by the ids of block and operand

    def add(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            return splat(lhs.type, a + b)
        if a == 0 or b == 0:
            return lhs if b == 0 else rhs
        return super().add(lhs, rhs, name)

    def sub(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            return splat(lhs.type, a - b)
        return lhs if b == 0 else super().sub(lhs, rhs, name)

    def mul(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            return splat(lhs.type, a * b)
        if a == 0 or b == 0:
            return splat(lhs.type, 0)
        if a == 1 or b == 1:
            return lhs if b == 1 else rhs
        return super().mul(lhs, rhs, name)

    def and_(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b, every = constant_of(lhs), constant_of(rhs), ones(lhs.type)
        if a is not None and b is not None:
            return splat(lhs.type, a & b)
        if a == 0 or b == 0:
            return splat(lhs.type, 0)
        if a == every or b == every:
            return lhs if b == every else rhs
        return super().and_(lhs, rhs, name)

    def or_(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b, every = constant_of(lhs), constant_of(rhs), ones(lhs.type)
        if a is not None and b is not None:
            return splat(lhs.type, a | b)
        if a == every or b == every:
            return splat(lhs.type, every)
        if a == 0 or b == 0:
            return lhs if b == 0 else rhs
        return super().or_(lhs, rhs, name)

    def xor(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            return splat(lhs.type, a ^ b)
        if a == 0 or b == 0:
            return lhs if b == 0 else rhs
        return super().xor(lhs, rhs, name)

    def not_(self, value: Value, name: str = "") -> Value:
        return self.xor(value, splat(value.type, -1), name)

    def shl(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None and b < width_of(lhs.type):
            return splat(lhs.type, a << b)
        return lhs if b == 0 else super().shl(lhs, rhs, name)

    def lshr(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None and b < width_of(lhs.type):
            return splat(lhs.type, a >> b)
        return lhs if b == 0 else super().lshr(lhs, rhs, name)

    def ashr(self, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None and b < width_of(lhs.type):
            return splat(lhs.type, _signed(a, lhs.type) >> b)
        return lhs if b == 0 else super().ashr(lhs, rhs, name)

    # --- comparison and choice ---

    def icmp_unsigned(self, cmpop: str, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            return splat(_like(lhs.type, 1), _RELATIONS[cmpop](a, b))
        return super().icmp_unsigned(cmpop, lhs, rhs, name)

    def icmp_signed(self, cmpop: str, lhs: Value, rhs: Value, name: str = "") -> Value:
        a, b = constant_of(lhs), constant_of(rhs)
        if a is not None and b is not None:
            holds = _RELATIONS[cmpop](_signed(a, lhs.type), _signed(b, rhs.type))
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
        return splat(typ, _signed(bits, value.type))

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
        bits, scalar = constant_of(vector), broadcast_of(vector)
        if bits is not None:
            return splat(element_of(vector.type), bits)
        return super().extract_element(vector, idx, name) if scalar is None else scalar


def _signed(bits: int, type_: ir.Type) -> int:
    return bits - (bits >> width_of(type_) - 1 << width_of(type_))


def _signaling(bits: int) -> bool:
    """Whether these are the bits of a signaling NaN of 32 bits."""
    return bits & 0x7FC00000 == 0x7F800000 and bits & 0x3FFFFF != 0


def _like(type_: ir.Type, width: int) -> ir.Type:
    """The type with as many lanes, of integers of ``width`` bits."""
    element = ir.IntType(width)
    return ir.VectorType(element, type_.count) if isinstance(type_, ir.VectorType) else element
