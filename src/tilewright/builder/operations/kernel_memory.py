"""Memory of a kernel: shared memory, register arrays, and address arithmetic.

Static shared memory is a variable of the kernel. Dynamic shared memory is one external array from
which ``dynamic_shared`` allocates; its size is recorded for the launch. Shared addresses are 32
bits wide.
"""

from __future__ import annotations

import operator
from typing import Any

from ...dtypes import DType
from ...ptx import tree
from ..emitter import Emitter
from ..operations.variables import Variables
from ..source_location import kernel_error
from ..values.pointer import Pointer
from ..values.register_class import checked_dtype
from ..values.registers import Reg, Registers, is_integer, other_trace_error

STATIC_SHARED_LIMIT = 48 * 1024  # bytes that a kernel may declare; more must be dynamic
DYNAMIC_SHARED = "dynamic_shared"


class KernelMemory:
    """Variables in shared memory, registers in arrays, addresses."""

    def __init__(self, emitter: Emitter, variables: Variables) -> None:
        self._emitter = emitter
        self._variables = variables
        self.variables: list[tree.Variable] = []
        self.static_bytes = 0
        self.dynamic_bytes = 0
        self.dynamic_align = 0

    def shared(
        self, dtype: str | DType, count: Any = 1, *, align: int | None = None, name: str = ""
    ) -> Pointer:
        """A static array of ``count`` elements (a number, or a layout: its cosize)."""
        t = checked_dtype(dtype)
        size = _elements(count) * t.bits // 8
        align = _alignment(align, t)
        name = name or f"shared_{len(self.variables)}"
        if any(v.name == name for v in self.variables):
            raise kernel_error(f"shared memory {name!r} is declared twice")
        self.static_bytes = -(-self.static_bytes // align) * align + size
        if self.static_bytes > STATIC_SHARED_LIMIT:
            raise kernel_error(
                f"{self.static_bytes} static shared bytes; the limit is {STATIC_SHARED_LIMIT}",
                "take k.dynamic_shared(bytes)",
            )
        self.variables.append(tree.Variable("shared", "b8", name, (size,), align))
        return Pointer(self._emitter.k, "shared", t, tree.Symbol(name), 0, align)

    def dynamic_shared(self, size: int, align: int = 128, *, dtype: str | DType = "b8") -> Pointer:
        """The next ``size`` bytes of dynamic shared memory, as a pointer to ``dtype``."""
        if not is_integer(size) or size < 0:
            raise kernel_error(
                f"the size of shared memory must be a static number of bytes, got {size!r}"
            )
        align = _alignment(align, checked_dtype(dtype))
        offset = -(-self.dynamic_bytes // align) * align
        self.dynamic_bytes = offset + operator.index(size)
        self.dynamic_align = max(self.dynamic_align, align)
        symbol = tree.Symbol(DYNAMIC_SHARED)
        return Pointer(self._emitter.k, "shared", dtype, symbol, offset, align)

    def array(self, dtype: str | DType, count: Any, init: Any = None) -> Registers:
        """An array of register variables (``count``: a number, or a layout: its cosize); ``[i]`` is
        a variable, ``k.mov`` of it its value now.
        """
        return Registers(
            tuple(self._variables.var(checked_dtype(dtype), init) for _ in range(_elements(count)))
        )

    def pointer(
        self, space: str, dtype: str | DType, address: Reg, *, align: int | None = None
    ) -> Pointer:
        """A pointer from an address in a register."""
        made = Pointer(self._emitter.k, space, dtype, address, 0, align)
        if address.k is not self._emitter.k:
            raise other_trace_error(address)
        if address.dtype.bits != made.width or address.dtype.kind not in ("uint", "int", "bits"):
            raise kernel_error(
                f"an address in {space or 'generic'} space has {made.width} bits, not {address!r}"
            )
        return made

    # --- addresses ---
    def symbol_address(self, symbol: tree.Symbol, offset: int, width: int) -> Reg:
        """The address of a variable in a register of the prologue."""
        full = tree.Symbol(symbol.name, symbol.offset + offset)
        return self._emitter.emit_once(full, f"mov.u{width}", full)

    def address_add(self, base: Reg, count: Reg, scale: int, *, into: Any = None) -> Reg:
        """``base + count * scale`` as an address: one multiply-add, widening where need be."""
        self._check_index(base, count)
        t = count.dtype
        if t.bits < base.dtype.bits:
            return self._emitter.compute(
                f"mad.wide.{t.name}", count, scale, base, into=into, dtype=base.dtype
            )
        if scale == 1:
            return self._emitter.compute(f"add.{t.name}", base, count, into=into, dtype=base.dtype)
        return self._emitter.compute(
            f"mad.lo.{t.name}", count, scale, base, into=into, dtype=base.dtype
        )

    def _check_index(self, base: Reg, count: Reg) -> None:
        t, bits = count.dtype, base.dtype.bits
        if t.kind not in ("int", "uint") or t.bits < 32:
            raise kernel_error(
                f"an index must be u32, s32, u64 or s64, got {t.name}", "convert it with .to('u32')"
            )
        if t.bits > bits:
            raise kernel_error(
                f"an index of {t.name} into memory with {bits}-bit addresses",
                "convert it with .to('u32')",
            )


def _elements(count: Any) -> int:
    cosize = getattr(count, "cosize", None)
    size = cosize() if callable(cosize) else count
    if not is_integer(size) or size < 0:
        raise kernel_error(
            f"the size of an array must be a static number or a layout, got {size!r}"
        )
    return operator.index(size)


def _alignment(align: int | None, t: DType) -> int:
    least = max(1, t.bits // 8)
    if align is None:
        return least
    if not is_integer(align) or align < 1 or align & (align - 1):
        raise kernel_error(f"an alignment must be a power of two, got {align!r}")
    return max(operator.index(align), least)
