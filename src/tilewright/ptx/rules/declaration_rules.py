"""What can be declared: types and vectors of registers, variables and parameters, as ptxas 13
judges them (PTX manual, "Vectors", "Predicate", "Parameter State Space").
"""

from __future__ import annotations

from ..tree import RegDecl, Variable
from ..types import bits, kind

MOST_BITS = 128  # of a vector
LENGTHS = (1, 2, 4)


def declaration_error(d: RegDecl | Variable, kernel: bool = False) -> str:
    """Why it can't be declared, or an empty string. ``kernel``: it is a kernel's parameter."""
    if isinstance(d, RegDecl):
        return _wrong_type(d.type, d.vector, "reg", False)
    if kernel and d.space != "param":
        return f"{d.name} is in .{d.space}; the parameters of a kernel are in .param"
    return _wrong_type(d.type, d.vector, d.space, bool(d.dims))


def _wrong_type(type_: str, vector: int, space: str, array: bool) -> str:
    what = f".v{vector} .{type_}" if vector > 1 else f".{type_}"
    if vector not in LENGTHS:
        return f"{what}: a vector has 2 or 4 elements"
    if kind(type_) == "pred" and (vector > 1 or array):
        return f"{what}: there are no vectors or arrays of predicates"
    if kind(type_) == "pred" and space != "reg":
        return f"{what} can't be in .{space}: a predicate is a register"
    if kind(type_) == "opaque" and vector > 1:
        return f"{what}: there are no vectors of .{type_}"
    if vector * bits(type_) > MOST_BITS:
        return f"{what} has {vector * bits(type_)} bits, a vector has {MOST_BITS} at most"
    if space == "reg" and array:
        return f"{what}: a register can't be an array"
    if space == "param" and not array and (vector > 1 or type_ == "f16x2"):
        return f"{what} can't be in .param: pass it as an array of bytes, or in .reg"
    return ""
