"""Register classes, and which register types an operand accepts."""

from __future__ import annotations

from ...dtypes import DTYPES, DType
from ...dtypes import dtype as as_dtype
from ...errors import DtypeError
from ..source_location import kernel_error

_BY_SIZE = ((16, "b16", "%rs"), (32, "b32", "%r"), (64, "b64", "%rd"), (128, "b128", "%rq"))
_INTEGER = frozenset(("int", "uint", "bits"))


def register_class(t: DType) -> tuple[str, str]:
    """Declared type and name prefix of a type's registers, as nvcc writes them: b32, %r."""
    if t.name == "pred":
        return "pred", "%p"
    if t.name in ("f32", "f64"):
        return t.name, {"f32": "%f", "f64": "%fd"}[t.name]
    return next((declared, prefix) for size, declared, prefix in _BY_SIZE if t.bits <= size)


CLASSES = {name: register_class(t) for name, t in DTYPES.items()}


def checked_dtype(name: str | DType) -> DType:
    """The type of a name. Raises KernelError at the user's line for an unknown one."""
    if isinstance(name, DType):
        return name
    try:
        return as_dtype(name)
    except DtypeError as error:
        raise kernel_error(error.message, error.hint) from None


def accepts(operand: DType, register: DType, relaxed: bool = False) -> bool:
    """Whether an operand of one type may be a register of another.

    PTX's rule: bit types go with every type of their size, signed with unsigned, floats only with
    themselves. ``relaxed``: the register may be larger, as loads, stores and conversions allow.
    """
    if operand.name == register.name:
        return True
    if (operand.name == "pred") != (register.name == "pred"):
        return False
    if operand.bits != register.bits:
        fits = relaxed and operand.bits < register.bits and operand.kind in _INTEGER
        return fits and register.kind in _INTEGER
    if "bits" in (operand.kind, register.kind) or operand.name == "tf32":
        return True
    return operand.kind in _INTEGER and register.kind in _INTEGER
