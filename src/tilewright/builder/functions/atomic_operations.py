"""Atomic operations on memory, by name. ``pointer.atomic`` has every form of the instruction."""

from __future__ import annotations

from typing import Any

from ..source_location import kernel_error
from ..values.pointer import Pointer
from ..values.registers import Reg, Scalar


class AtomicOperations:
    """Read-modify-writes. ``order`` is the memory order and scope, such as ``relaxed.gpu`` (PTX's
    default) or ``acq_rel.sys``.
    """

    def atomic_add(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Add ``value`` to the element that ``pointer`` points to (u32, s32, u64, s64, f32, f64,
        f16, bf16, f16x2, bf16x2); returns the old element. Raises KernelError.
        """
        return _atomic("add", pointer, value, order=order)

    def atomic_min(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Replace an integer by the smaller of it and ``value``; returns the old one. Raises
        KernelError.
        """
        return _atomic("min", pointer, value, order=order)

    def atomic_max(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Replace an integer by the larger of it and ``value``; returns the old one. Raises
        KernelError.
        """
        return _atomic("max", pointer, value, order=order)

    def atomic_and(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Bitwise and with ``value``, of 32 or 64 bits; returns the old element."""
        return _atomic("and", pointer, value, order=order)

    def atomic_or(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Bitwise or with ``value``, of 32 or 64 bits; returns the old element."""
        return _atomic("or", pointer, value, order=order)

    def atomic_xor(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Bitwise exclusive or with ``value``, of 32 or 64 bits; returns the old element."""
        return _atomic("xor", pointer, value, order=order)

    def atomic_exchange(self, pointer: Pointer, value: Scalar, *, order: str = "") -> Reg:
        """Store ``value`` of 32 or 64 bits; returns the old element."""
        return _atomic("exch", pointer, value, order=order)

    def atomic_compare_exchange(
        self, pointer: Pointer, expected: Scalar, value: Scalar, *, order: str = ""
    ) -> Reg:
        """Store ``value`` if the element equals ``expected`` (16, 32 or 64 bits); returns the old
        element.
        """
        return _atomic("cas", pointer, expected, value, order=order)


def _atomic(op: str, pointer: Any, *values: Any, order: str) -> Reg:
    if not isinstance(pointer, Pointer):
        raise kernel_error(f"an atomic operation must be given a pointer, got {pointer!r:.60}")
    return pointer.atomic(op, *values, order=order)
