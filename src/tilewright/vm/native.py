"""A small typed subset of Python, compiled by LLVM: what the virtual machine itself is written in.

The scheduler, the asynchronous engine and the bounds checks have to be machine code, and there is
no C compiler on a user's machine. A function decorated with ``@native`` becomes LLVM IR
(``translate.py``): every number is a signed 64-bit integer, pointers are typed (``Ptr(u32)``,
``Ptr(Warp)``), a ``Struct``'s fields are read and written by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import llvmlite.ir as ir

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()


@dataclass(frozen=True)
class Int:
    """An integer in memory: ``u8`` … ``i64``. In a variable it is 64 bits wide."""

    bits: int
    signed: bool

    @property
    def size(self) -> int:
        return self.bits // 8


@dataclass(frozen=True)
class Ptr:
    """A pointer to an ``Int``, to a ``Struct`` class or to another pointer."""

    to: Any
    size = 8


@dataclass(frozen=True)
class Array:
    """A field of ``count`` equal elements in a struct; reading it gives a pointer to the first."""

    of: Any
    count: int

    @property
    def size(self) -> int:
        return int(self.of.size) * self.count


@dataclass(frozen=True)
class Lanes:
    """A register: 32 lanes of an integer. Only what has its body written takes or returns it."""

    bits: int


u8, u16, u32, u64 = Int(8, False), Int(16, False), Int(32, False), Int(64, False)
i32, i64 = Int(32, True), Int(64, True)


class Struct:
    """A record in memory; a subclass lists its fields as ``name = type`` in order.

    Fields are aligned as in C; arrays of 64 bytes and more as whole lines, to be loaded as vectors.
    """

    fields: dict[str, tuple[int, Any]]
    size: int

    def __init_subclass__(cls) -> None:
        offset, fields = 0, {}
        for name, kind in list(vars(cls).items()):
            if isinstance(kind, (Int, Ptr, Array)):
                unit = kind.of.size if isinstance(kind, Array) else kind.size
                align = 64 if isinstance(kind, Array) and kind.size >= 64 else min(unit, 8)
                offset = -(-offset // align) * align
                fields[name] = (offset, kind)
                offset += kind.size
        cls.fields = fields
        cls.size = -(-offset // 64) * 64

    @classmethod
    def offset(cls, name: str) -> int:
        """Where a field begins, in bytes."""
        return cls.fields[name][0]


@dataclass
class Native:
    """A function to be compiled; calling it from Python is not possible."""

    function: Callable[..., Any]
    inline: bool
    emit: Callable[[ir.Module], None] | None = None  # writes the body; None: it is translated

    @property
    def name(self) -> str:
        return f"tw_{self.function.__name__}"

    @cached_property
    def signature(self) -> tuple[list[Any], Any]:
        """The kinds of its parameters and of what it returns."""
        hints = inspect.get_annotations(self.function, eval_str=True)
        names = list(inspect.signature(self.function).parameters)
        return [hints[n] for n in names], hints.get("return")

    def declare(self, module: ir.Module) -> ir.Function:
        """The function in ``module``, declared where it isn't yet."""
        if self.name in module.globals:
            return module.globals[self.name]
        kinds, result = self.signature
        type_ = ir.FunctionType(llvm_type(result), [llvm_type(k) for k in kinds])
        made = ir.Function(module, type_, self.name)
        if self.inline:
            made.attributes.add("alwaysinline")
            made.linkage = "internal"
        return made


def native(
    function: Callable[..., Any] | None = None,
    *,
    inline: bool = False,
    emit: Callable[[ir.Module], None] | None = None,
) -> Any:
    """Mark a function as native code; where ``emit`` writes its body it has only a signature."""
    if function is None:
        return lambda f: Native(f, inline, emit)
    return Native(function, inline)


def llvm_type(kind: Any) -> ir.Type:
    if isinstance(kind, Lanes):
        return ir.VectorType(ir.IntType(kind.bits), 32)
    return POINTER if isinstance(kind, Ptr) else I64
