"""Vector registers as operands: ``%v`` is expanded to ``{%v.x, %v.y}``.

A call passes bits: an argument may be a register of another type, a vector with other elements, or
a scalar of the vector's size (ptxas compares sizes only). Such a copy goes through one scalar
register.
"""

from __future__ import annotations

from dataclasses import replace

from ...ptx import parameter_block, tree
from ...ptx.special_registers import AXES
from .bound_operands import VectorOperand, registers
from .flat_code import FlatCode, NameScope


def expand_vectors(flat: FlatCode, s: tree.Instruction, scope: NameScope) -> tree.Instruction:
    """Replace each vector register of the instruction by its components: a row's signatures differ
    by the number of elements.
    """
    if not flat.vectors:
        return s
    expanded = tuple(vector_components(flat, o, scope) or o for o in s.operands)
    return s if expanded == s.operands else replace(s, operands=expanded)


def vector_components(flat: FlatCode, o: tree.Operand, scope: NameScope) -> tree.Vector | None:
    """``{%v.x, %v.y}`` for ``%v``; None if the operand is not a vector register."""
    if not flat.vectors or not isinstance(o, tree.Register) or not scope.find(o.name):
        return None
    bound = flat.lookup(o.name, scope, -1)
    if not isinstance(bound, VectorOperand):
        return None
    return tree.Vector(tuple(tree.Register(f"{o.name}.{c}") for c in AXES[: len(bound.items)]))


def packed_type(formal: tree.Variable) -> str:
    """The type of a constant that is passed for a parameter; for a vector, bits of its size."""
    return f"b{8 * parameter_block.size_and_align(formal)[0]}" if formal.vector > 1 else formal.type


def pack_vectors(
    flat: FlatCode, operands: tree.Vector, scope: NameScope
) -> tuple[tree.Vector, list[tuple[str, tree.Operand, tree.Operand]]]:
    """Replace each vector register among the operands of a call by a new scalar register, declared
    in ``scope``. Also returns (type, scalar, vector) of each.
    """
    items: list[tree.Operand] = []
    packed: list[tuple[str, tree.Operand, tree.Operand]] = []
    for o in operands.items:
        bound = None
        if isinstance(o, tree.Register) and vector_components(flat, o, scope):
            bound = flat.lookup(o.name, scope, -1)
        if isinstance(bound, VectorOperand):
            type_ = f"b{sum(flat.registers[index].width for index in registers(bound))}"
            scalar = tree.Register(f"packed vector {len(flat.registers)}")
            scope.names[scalar.name] = flat.new_register(scalar.name, type_)
            packed.append((type_, scalar, o))
            items.append(scalar)
        else:
            items.append(o)
    return tree.Vector(tuple(items)), packed
