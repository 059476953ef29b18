"""Vector registers as operands: ``%v`` is expanded to ``{%v.x, %v.y}``.

A call passes bits: an argument may be a register of another type, a vector of other elements, or a
scalar of the vector's size (ptxas compares sizes). Such a copy goes through one scalar register.
"""

from __future__ import annotations

from dataclasses import replace

from ...ptx import parameter_block, tree
from ...ptx.special_registers import AXES
from .bound_operands import VectorOperand
from .flat_code import FlatCode, NameScope


def expand_vectors(flat: FlatCode, s: tree.Instruction, scope: NameScope) -> tree.Instruction:
    """The instruction with the components of each vector register in place of its name: a row's
    signatures differ by the number of elements that are written.
    """
    if not flat.vectors:
        return s
    written = tuple(vector_components(flat, o, scope) or o for o in s.operands)
    return s if written == s.operands else replace(s, operands=written)


def vector_components(flat: FlatCode, o: tree.Operand, scope: NameScope) -> tree.Vector | None:
    """``{%v.x, %v.y}`` for ``%v``; None for what is not a vector register."""
    if not flat.vectors or not isinstance(o, tree.Register) or not scope.find(o.name):
        return None
    found = flat.lookup(o.name, scope, -1)
    if not isinstance(found, VectorOperand):
        return None
    return tree.Vector(tuple(tree.Register(f"{o.name}.{c}") for c in AXES[: len(found.items)]))


def packed_type(formal: tree.Variable) -> str:
    """The type of a constant that is passed for a parameter: of a vector, as many bits."""
    return f"b{8 * parameter_block.size_and_align(formal)[0]}" if formal.vector > 1 else formal.type


def pack_vectors(
    flat: FlatCode, operands: tree.Vector, scope: NameScope
) -> tuple[tree.Vector, list[tuple[str, tree.Operand, tree.Operand]]]:
    """Operands of a call with a scalar register, which ``scope`` gets, for each vector register;
    and for each of those its type, the scalar and the vector.
    """
    written, made = [], []
    for o in operands.items:
        found = flat.lookup(o.name, scope, -1) if vector_components(flat, o, scope) else None
        if isinstance(found, VectorOperand):
            type_ = f"b{sum(flat.registers[item.index].width for item in found.items)}"
            word = tree.Register(f"passed bits {len(flat.registers)}")
            scope.names[word.name] = flat.new_register(word.name, type_)
            made.append((type_, word, o))
            o = word
        written.append(o)
    return tree.Vector(tuple(written)), made
