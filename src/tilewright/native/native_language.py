"""A small typed subset of Python that is compiled to machine code: types, structs, functions.

The virtual machine's scheduler, asynchronous units and bounds checks and the fast call have to be
machine code, and there is no C compiler on a user's machine. A function decorated with ``@native``
becomes LLVM IR (``translator.py``): every number is a signed 64-bit integer, pointers are typed
(``Ptr(u32)``, ``Ptr(Warp)``), a ``Struct``'s fields are read and written by name. Declaring
something here needs no LLVM.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


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
    """A function to be compiled; calling it from Python is not possible.

    Functions of one ``part`` are compiled together: those of a module, where nothing else is said.
    Other parts call a ``deferred`` function through its slot, a pointer in memory, so they can be
    loaded without it. While its own part is not loaded, such a call does nothing and gives 0.
    """

    function: Callable[..., Any]
    inline: bool
    emit: Callable[[Any], None] | None = None  # writes the body; None: it is translated
    part: str = ""
    deferred: bool = False

    def __post_init__(self) -> None:
        self.part = self.part or self.function.__module__.rpartition(".")[2]

    @property
    def name(self) -> str:
        return f"tw_{self.function.__name__}"

    @property
    def slot(self) -> str:
        """The name of the slot of a deferred function."""
        return f"tw_slot_{self.function.__name__}"

    @cached_property
    def signature(self) -> tuple[list[Any], Any]:
        """The kinds of its parameters and of what it returns."""
        hints = inspect.get_annotations(self.function, eval_str=True)
        names = list(inspect.signature(self.function).parameters)
        return [hints[n] for n in names], hints.get("return")


def native(
    function: Callable[..., Any] | None = None,
    *,
    inline: bool = False,
    emit: Callable[[Any], None] | None = None,
    part: str = "",
    deferred: bool = False,
) -> Any:
    """Mark a function as native code; where ``emit`` writes its body it has only a signature."""
    if function is None:
        return lambda f: Native(f, inline, emit, part, deferred)
    return Native(function, inline, emit, part, deferred)
