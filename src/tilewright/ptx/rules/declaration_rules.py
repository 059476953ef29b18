"""The rules of declarations: types and vectors of registers, variables and parameters that ptxas 13
accepts (PTX manual, "Vectors", "Predicate", "Parameter State Space").
"""

from __future__ import annotations

from ..tree import RegDecl, Variable
from ..types import bits, kind

MAX_VECTOR_BITS = 128
LENGTHS = (1, 2, 4)  # of a vector; 1 is a scalar


def declaration_error(d: RegDecl | Variable, kernel: bool = False) -> str:
    """Why ptxas rejects a declaration, or an empty string. ``kernel``: of a kernel's parameter."""
    if isinstance(d, RegDecl):
        return _wrong_type(d.type, d.vector, "reg", False)
    if kernel and d.space != "param":
        return f"a kernel's parameters must be in .param, got {d.name} in .{d.space}"
    return _wrong_type(d.type, d.vector, d.space, bool(d.dims))


def _wrong_type(type_: str, vector: int, space: str, array: bool) -> str:
    what = f".v{vector} .{type_}" if vector > 1 else f".{type_}"
    if vector not in LENGTHS:
        return f"a vector must have 2 or 4 elements, got {what}"
    if kind(type_) == "pred" and (vector > 1 or array):
        return f"{what}: predicates can't form vectors or arrays"
    if kind(type_) == "pred" and space != "reg":
        return f"a predicate must be in .reg, got {what} in .{space}"
    if kind(type_) == "opaque" and vector > 1:
        return f"{what}: .{type_} can't form vectors"
    if vector * bits(type_) > MAX_VECTOR_BITS:
        return f"{what} has {vector * bits(type_)} bits; a vector has at most {MAX_VECTOR_BITS}"
    if space == "reg" and array:
        return f"{what}: a register can't be an array"
    if space == "param" and not array and (vector > 1 or type_ == "f16x2"):
        return f"{what} can't be in .param: pass it as an array of bytes, or in .reg"
    return ""
