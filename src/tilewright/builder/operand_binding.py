"""Operand binding: the arguments of an instruction become operands of the PTX tree.

The signatures of the opcode define the types of the arguments; the first signature that accepts all
arguments is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes import DType
from ..errors import KernelError
from ..ptx import tree
from .opcode_signature import OpcodeSignature, OperandSlot, operand_mismatch
from .source_location import kernel_error
from .values.immediates import check_immediates
from .values.pointer import Pointer
from .values.registers import Operations, Reg, Registers, is_integer, other_trace_error

_TREE_OPERANDS = (
    tree.Register,
    tree.Imm,
    tree.FloatImm,
    tree.Symbol,
    tree.Vector,
    tree.Sink,
    tree.MemoryOperand,
)


class OperandBinding:
    """Converts arguments to operands. ``immediate`` converts a Python number."""

    def __init__(
        self, k: Operations, immediate: Callable[[DType | None, Any], tree.Operand]
    ) -> None:
        self._k = k
        self._immediate = immediate

    def bind(
        self, opcode: str, signatures: tuple[OpcodeSignature, ...], args: tuple[Any, ...]
    ) -> tuple[OpcodeSignature, list[tree.Operand]]:
        """The first signature that accepts these arguments, and the operands."""
        failure: KernelError | None = None
        count = len(args)
        for signature in signatures:
            if signature.least <= count <= len(signature.sources):
                try:
                    pairs = zip(signature.sources, args, strict=False)
                    operands = [self._source(opcode, slot, value) for slot, value in pairs]
                    for i in signature.limited:
                        if i < count:
                            check_immediates(opcode, signature.sources[i], operands[i], args[i])
                    return signature, operands
                except KernelError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        allowed = " or ".join(map(str, signatures))
        raise kernel_error(f"{opcode} takes {allowed}, got {count} operands")

    def _source(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, (Reg, Pointer)) and value.k is not self._k:
            raise other_trace_error(value)
        if slot.kind == "map":
            return _tensor(opcode, slot, value)
        if slot.count:
            return self._vector(opcode, slot, value)
        if slot.kind == "reg":
            if isinstance(value, Reg):
                if value.dtype.name not in slot.accepted:
                    raise operand_mismatch(opcode, slot, value)
                return value.operand
            if isinstance(value, Pointer):
                return self._source(opcode, slot, value.address())
            return (
                value if isinstance(value, _TREE_OPERANDS) else self._immediate(slot.dtype, value)
            )
        if slot.kind == "address":
            return self._address(opcode, slot, value)
        return self._name(opcode, slot, value)

    def _vector(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, tree.Vector):
            return value
        if not isinstance(value, (tuple, list, Registers)) or len(value) != slot.count:
            size = f"{len(value)} values" if hasattr(value, "__len__") else repr(value)
            raise kernel_error(
                f"{opcode}: operand {slot.name} must be a vector of {slot.count}, got {size}"
            )
        accepted = slot.accepted
        items = []
        for item in value:
            if slot.kind == "imm":
                items.append(self._name(opcode, slot, item))
            elif not isinstance(item, Reg):
                items.append(
                    item if isinstance(item, _TREE_OPERANDS) else self._immediate(slot.dtype, item)
                )
            elif item.dtype.name in accepted:
                if item.k is not self._k:
                    raise other_trace_error(item)
                items.append(item.operand)
            else:
                raise operand_mismatch(opcode, slot, item)
        return tree.Vector(tuple(items))

    def _address(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, Pointer):
            if value.space.split("::")[0] != slot.space.split("::")[0]:
                raise kernel_error(
                    f"{opcode}: operand [{slot.name}] must be a {slot.space or 'generic'} address, "
                    f"got a {value.space or 'generic'} pointer",
                    "name the state space in the opcode, or convert the address with cvta",
                )
            return value.operand
        if _is_offset_register(value):
            if value[0].k is not self._k:
                raise other_trace_error(value[0])
            return tree.MemoryOperand(value[0].operand, value[1].__index__())
        if isinstance(value, Reg) and value.dtype.bits in (32, 64):
            return tree.MemoryOperand(value.operand)
        if isinstance(value, tree.MemoryOperand):
            return value
        raise kernel_error(
            f"{opcode}: operand [{slot.name}] must be an address, got {value!r}",
            "pass a pointer, a register, or (register, byte offset)",
        )

    def _name(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, _TREE_OPERANDS):
            return value
        if slot.kind != "imm":
            if isinstance(value, str):
                return tree.Symbol(value)
            if isinstance(value, Pointer):
                base = value.base
                return (
                    tree.Symbol(base.name, base.offset + value.offset)
                    if isinstance(base, tree.Symbol)
                    else base.operand
                )
            if isinstance(value, Reg) and slot.kind == "any":
                return value.operand
        if is_integer(value):
            return tree.Imm(value.__index__())
        kind = _KINDS.get(slot.kind, f"a {slot.kind}")
        raise kernel_error(f"{opcode}: operand {slot.name} must be {kind}, got {value!r}")


_KINDS = {"imm": "an immediate", "any": "a name"}


def _tensor(opcode: str, slot: OperandSlot, value: Any) -> tree.MemoryOperand:
    """A tensor map's address with coordinates, as ``k.tensor_address`` returns it."""
    if not isinstance(value, tree.MemoryOperand) or len(value.coords or ()) != slot.count:
        expected = f"a tensor map's address with {slot.count} coordinates"
        raise kernel_error(f"{opcode}: operand {slot.name} must be {expected}, got {value!r}")
    return value


def _is_offset_register(value: Any) -> bool:
    """Whether a value is (register, byte offset)."""
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and isinstance(value[0], Reg) and is_integer(value[1])
