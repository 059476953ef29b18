"""Pointers: an address with a state space and an element type.

``p[i]`` loads, ``p[i] = v`` stores, ``p + i`` advances by elements. A static offset is folded into
the instruction's immediate, a dynamic one costs one multiply-add. So a pointer is an engine for
tensors. The alignment of static offsets is checked, that of dynamic offsets is assumed.
"""

from __future__ import annotations

import operator
from math import gcd
from typing import Any, NoReturn, Union

from ...dtypes import DType
from ...layout import OffsetSum
from ...ptx import tree
from ..source_location import kernel_error
from ..values.register_memory import RegisterMemory, make_register_memory
from .address_terms import moved
from .register_class import checked_dtype
from .registers import Operations, Reg, Var

_MAX_VECTOR = 16  # bytes of one load or store


def memory_type(t: DType) -> str:
    """The type of loads and stores of a format: untyped bits for 16-bit floats and packed types."""
    return t.name if t.kind in ("int", "uint") or t.name in ("f32", "f64") else f"b{max(8, t.bits)}"


class Pointer:
    """An address in a state space (``global``, ``shared``, ``local``, ``param``, ``const``; empty
    is generic).

    ``base`` is a register (32 bits wide in shared memory, else 64) or a variable's symbol,
    ``offset`` a static number of bytes, ``align`` the alignment of the base in bytes, or None.
    ``sure`` is the alignment that holds for any value of the dynamic offsets.
    """

    __slots__ = ("align", "base", "dtype", "k", "offset", "space", "sure")
    __array_ufunc__ = None  # NumPy's operators are those of the pointer

    def __init__(
        self,
        k: Operations,
        space: str,
        dtype: str | DType,
        base: Union[Reg, tree.Symbol],
        offset: int = 0,
        align: int | None = None,
        sure: int | None = None,
    ) -> None:
        self.k = k
        self.space = space
        self.dtype = checked_dtype(dtype)
        self.base = base
        self.offset = offset
        self.align = align
        self.sure = sure or align or self.size

    def __repr__(self) -> str:
        base = self.base.operand.name if isinstance(self.base, Reg) else self.base.name
        return f"{self.space or 'generic'} {self.dtype.name} [{base}{self.offset:+d}]"

    @property
    def size(self) -> int:
        """Bytes per element."""
        return max(8, self.dtype.bits) // 8

    @property
    def operand(self) -> tree.MemoryOperand:
        """The memory operand ``[base+offset]``."""
        if isinstance(self.base, Reg):
            return tree.MemoryOperand(self.base.operand, self.offset)
        return tree.MemoryOperand(tree.Symbol(self.base.name), self.base.offset + self.offset)

    @property
    def width(self) -> int:
        """Bits of an address in this space."""
        return 32 if self.space.startswith("shared") else 64

    # --- other pointers ---
    def _with(self, base: Union[Reg, tree.Symbol], offset: int, multiple: int = 0) -> Pointer:
        """A pointer with another base, a dynamic multiple of ``multiple`` bytes away."""
        sure = gcd(self.sure, multiple)
        return Pointer(self.k, self.space, self.dtype, base, offset, self.align, sure)

    def __add__(self, count: Any) -> Pointer:
        if type(count) is int and not isinstance(self.base, Var):
            return self._with(self.base, self.offset + count * self.size)
        return self.add_bytes(count, self.size)

    __radd__ = __add__

    def __sub__(self, count: Any) -> Pointer:
        if isinstance(count, Reg):
            raise kernel_error(
                "only a static count can be subtracted from a pointer",
                "add a negative s32 or s64 register",
            )
        return self + -_static(count)

    def add_bytes(self, count: Any, scale: int = 1) -> Pointer:
        """The pointer advanced by ``count * scale`` bytes; a variable is copied first."""
        if not isinstance(count, Reg):
            base = self.k.mov(self.base) if isinstance(self.base, Var) else self.base
            return self._with(base, self.offset + _static(count) * scale)
        return self.by_register(count, scale, scale)

    def by_register(self, count: Reg, scale: int, multiple: int) -> Pointer:
        """The pointer advanced by ``count * scale`` bytes, a multiple of ``multiple``."""
        return self._with(self.k.address_add(self._register(), count, scale), self.offset, multiple)

    def cast(self, dtype: str | DType) -> Pointer:
        """The same address with another element type."""
        t = checked_dtype(dtype)
        return Pointer(self.k, self.space, t, self.base, self.offset, self.align, self.sure)

    def aligned(self, align: int) -> Pointer:
        """The same address, which the caller asserts to be a multiple of ``align`` bytes."""
        return Pointer(self.k, self.space, self.dtype, self.address(), 0, align)

    def address(self) -> Reg:
        """The whole address in a register: 32 bits in shared memory, else 64."""
        if isinstance(self.base, tree.Symbol):
            return self.k.symbol_address(self.base, self.offset, self.width)
        return self.k.add(self.base, self.offset)

    def _register(self) -> Reg:
        return (
            self.base
            if isinstance(self.base, Reg)
            else self.k.symbol_address(self.base, 0, self.width)
        )

    @property
    def alignment(self) -> int:
        """The alignment of the address in bytes, for any value of the dynamic offsets."""
        return gcd(self.sure, self.offset)

    # --- as an engine of tensors ---
    def moved(
        self, outside: OffsetSum, outer: Any = None, inside: OffsetSum | None = None
    ) -> Pointer:
        """The pointer advanced by ``outside + outer(inside)`` elements."""
        return moved(self, outside, outer, inside)

    def recast(self, dtype: DType) -> Pointer:
        """The same address with another element type; both types have whole bytes."""
        if dtype.bits % 8 or self.dtype.bits % 8:
            raise kernel_error(
                f"elements in memory must be whole bytes for a recast, got {self.dtype} to {dtype}"
            )
        return self.cast(dtype)

    def like(self, count: int, dtype: DType) -> RegisterMemory:
        """Registers of this thread for ``count`` elements."""
        return make_register_memory(self.k, count, dtype)

    # --- variables ---
    def set(self, other: Pointer) -> None:
        """Assign another address to a pointer variable (``k.var(pointer)``)."""
        self.k.add(other._register(), other.offset - self.offset, into=self._variable())

    def advance(self, count: Any) -> None:
        """Advance a pointer variable by ``count`` elements."""
        base = self._variable()
        if isinstance(count, Reg) and count.dtype.bits == self.width:
            self.k.address_add(base, self.k.mul(count, self.size), 1, into=base)
        elif isinstance(count, Reg):
            self.k.address_add(base, count, self.size, into=base)
        else:
            self.k.add(base, _static(count) * self.size, into=base)

    def _variable(self) -> Var:
        if not isinstance(self.base, Var):
            raise kernel_error(
                f"the pointer must be a variable, got {self!r}", "p = k.var(pointer) makes one"
            )
        return self.base

    # --- access ---
    def _at(self, index: Any) -> Pointer:
        if type(index) is int:
            return self._with(self.base, self.offset + index * self.size) if index else self
        return self.__add__(index)

    def __getitem__(self, index: Any) -> Reg:
        loaded: Reg = self._at(index)._load("", "", 1)
        return loaded

    def __iter__(self) -> NoReturn:
        raise kernel_error(
            f"{self!r} has no length and can't be iterated over", "loop over indices"
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self._at(index)._store((value,), "", "", 1)

    def load(
        self, count: int = 1, *, index: Any = 0, order: str = "", cache: str = "", into: Any = None
    ) -> tuple[Reg, ...]:
        """Load ``count`` (1, 2, 4) consecutive elements with one instruction, as a tuple of new
        registers or of the variables ``into``.

        ``order`` is the qualifier before the state space: ``volatile``, ``relaxed.gpu``,
        ``acquire.sys``; ``cache`` the one after it: ``nc``, ``cg``,
        ``nc.L1::no_allocate.L2::128B``.
        """
        loaded = self._at(index)._load(order, cache, count, into)
        return (loaded,) if count == 1 else loaded

    def store(self, values: Any, *, index: Any = 0, order: str = "", cache: str = "") -> None:
        """Store 1, 2 or 4 values with one instruction. ``order`` and ``cache`` as for ``load``."""
        items = (values,) if _is_scalar(values) else tuple(values)
        self._at(index)._store(items, order, cache, len(items))

    def atomic(self, op: str, *values: Any, index: Any = 0, order: str = "", kind: str = "") -> Reg:
        """An atomic read-modify-write; returns the old value.

        ``op``: add, min, max, inc, dec, and, or, xor, exch, cas (compare, then value). ``order``:
        ``relaxed.gpu``, ``acq_rel.sys``, …. ``kind`` overrides the operation's type.
        """
        opcode = _dotted("atom", order, self.space, _atomic(op, self.dtype, kind))
        return self.k.compute(opcode, self._at(index), *values, dtype=self.dtype)

    def reduce(
        self, op: str, value: Any, *, index: Any = 0, order: str = "", kind: str = ""
    ) -> None:
        """``atomic`` without the old value (``red``)."""
        self.k.emit(
            _dotted("red", order, self.space, _atomic(op, self.dtype, kind)), self._at(index), value
        )

    def _opcode(self, name: str, order: str, cache: str, count: int) -> str:
        needed = count * self.size
        if count not in (1, 2, 4) or (needed > _MAX_VECTOR and count > 1):
            raise kernel_error(
                f"a vector must have 2 or 4 elements and at most {_MAX_VECTOR} bytes, got "
                f"{count} of {self.dtype.name}"
            )
        if self.align is not None and gcd(self.align, self.offset) < needed:
            have = gcd(self.align, self.offset)
            raise kernel_error(
                f"{count} × {self.dtype.name} must be aligned to {needed} bytes, got {self!r}, "
                f"aligned to {have}",
                "declare it with align=…, or assert the alignment with p.aligned(n)",
            )
        vector = f"v{count}" if count > 1 else ""
        return _dotted(name, order, self.space, cache, vector, memory_type(self.dtype))

    def _load(self, order: str, cache: str, count: int, into: Any = None) -> Any:
        if into is not None and count == 1:
            (into,) = into
        opcode = self._opcode("ld", order, cache, count)
        return self.k.emit(opcode, self, into=into, dtype=self.dtype)

    def _store(self, values: tuple[Any, ...], order: str, cache: str, count: int) -> None:
        for value in values:
            if isinstance(value, Reg) and value.dtype is not self.dtype:
                self._check_value(value.dtype)
        fixed = [v if isinstance(v, Reg) else self.k.immediate(self.dtype, v) for v in values]
        self.k.emit(
            self._opcode("st", order, cache, count), self, fixed[0] if count == 1 else fixed
        )

    def _check_value(self, given: DType) -> None:
        same = given.bits == self.dtype.bits and "bits" in (given.kind, self.dtype.kind)
        integers = given.kind in ("int", "uint") and self.dtype.kind in ("int", "uint", "bits")
        if not same and not (integers and given.bits == max(16, self.dtype.bits)):
            raise kernel_error(
                f"a {given.name} register can't be stored as {self.dtype.name}",
                f"convert it: .to({self.dtype.name!r}), or the pointer: p.cast({given.name!r})",
            )


def _static(count: Any) -> int:
    """A static count of elements or bytes."""
    try:
        return operator.index(count)
    except TypeError:
        raise kernel_error(
            "an index of a pointer must be an int or a u32, s32, u64 or s64 register, got "
            f"{count!r}"
        ) from None


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (Reg, int, float))


def _dotted(*words: str) -> str:
    return ".".join(filter(None, words))


def _atomic(op: str, t: DType, kind: str) -> str:
    """The operation and type of an atomic; bit operations and exchanges have bit types."""
    if kind:
        return f"{op}.{kind}"
    if op in ("and", "or", "xor", "exch", "cas"):
        return f"{op}.b{t.bits}"
    if op == "add" and t.name in ("f16", "bf16", "f16x2", "bf16x2"):
        return f"add.noftz.{t.name}"
    if op == "add" and t.name == "s64":
        return "add.u64"
    return f"{op}.{t.name}"


def check_start(engine: Pointer, align: int, swizzle: int, user: str) -> None:
    """Check that a tile in shared memory is aligned for the hardware: to the period of its swizzle,
    which is applied to addresses, or without one to ``align`` bytes. ``user``: wgmma or a copy.
    """
    align = 8 * swizzle or align
    if engine.alignment % align:
        under = f" with swizzle {swizzle}" if swizzle else ""
        raise kernel_error(
            f"a tile for {user}{under} must be aligned to {align} bytes, got {engine!r}, aligned "
            f"to {engine.alignment}",
            f"k.make_smem_tensor(…, align={align}), k.dynamic_shared(size, {align}), or"
            f" p.aligned({align})",
        )
