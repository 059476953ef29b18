"""The types and declarations of native code: a typed subset of Python compiled to machine code.

The virtual machine's scheduler, asynchronous units and bounds checks and the fast call have to be
machine code, and a user's machine has no C compiler. A function decorated with ``@native`` is
translated to LLVM IR (``translator.py``). Its values are:

- numbers, ``i64``: signed 64-bit integers; arithmetic wraps;
- pointers, ``Ptr[u32]``: ``p[i]`` reads and writes elements, ``p + i`` advances by elements;
- records: a value of a ``Struct`` class is a reference, its fields are read and written by name.

It calls other native functions and the intrinsics of ``intrinsics.py``. A type checker checks its
body as Python. Declarations need no LLVM.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

if TYPE_CHECKING:
    import llvmlite.ir as ir

LINE = 64  # records, and arrays of at least as many bytes, are aligned to it

T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
StructT = TypeVar("StructT", bound="Struct")


# --- integers -------------------------------------------------------------------------------------


class Int:
    """An integer in memory; its value is a number of 64 bits."""

    bits: ClassVar[int]
    signed: ClassVar[bool] = False
    size: ClassVar[int]

    def __init_subclass__(cls) -> None:
        cls.size = cls.bits // 8

    if TYPE_CHECKING:

        def __get__(self, record: object, owner: object) -> int: ...
        def __set__(self, record: object, value: int) -> None: ...


class u8(Int):
    bits = 8


class u16(Int):
    bits = 16


class u32(Int):
    bits = 32


class u64(Int):
    bits = 64


class i32(Int):
    bits, signed = 32, True


if TYPE_CHECKING:
    i64: TypeAlias = int
else:

    class i64(Int):
        """A number, and a signed integer of 64 bits in memory."""

        bits, signed = 64, True


# --- registers ------------------------------------------------------------------------------------


class Lanes:
    """A register: 32 lanes of an integer. Only functions with an ``emit`` take or return it."""

    bits: ClassVar[int]


class Lanes8(Lanes):
    bits = 8


class Lanes16(Lanes):
    bits = 16


class Lanes32(Lanes):
    bits = 32


class Lanes64(Lanes):
    bits = 64


# --- pointers and records -------------------------------------------------------------------------


class Ptr(Generic[T_co]):
    """A pointer to an integer or a record, or to the first of several: ``Ptr[u32]``."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self: Ptr[Int], index: int) -> int: ...
        @overload
        def __getitem__(self: Ptr[int], index: int) -> int: ...
        @overload
        def __getitem__(self: Ptr[StructT], index: int) -> StructT: ...
        def __getitem__(self, index: int) -> object: ...
        def __setitem__(self: Ptr[Int] | Ptr[int], index: int, value: int) -> None: ...
        def __add__(self, count: int) -> Ptr[T_co]: ...


class Array(Ptr[T_co]):
    """Declares a field of ``count`` elements inside the record: ``grid: Ptr[u32] = Array(3)``.

    Reading the field gives a pointer to the first element.
    """

    def __init__(self, count: int) -> None:
        self.count = count


class Struct:
    """A record in memory; a subclass declares its fields in order, as ``name: type``.

    Fields are aligned as in C; arrays of 64 bytes and more as cache lines, to be loaded as vectors.
    A field whose type is a record holds a pointer to it.
    """

    fields: ClassVar[dict[str, tuple[int, FieldType]]]
    size: ClassVar[int]

    def __init_subclass__(cls) -> None:
        offset, fields = 0, {}
        names = vars(sys.modules[cls.__module__])
        for name, hint in inspect.get_annotations(cls).items():
            known = names.get(hint)  # most are plain names
            kind = kind_of(eval(hint, names) if known is None else known)
            declared = vars(cls).get(name)
            unit = align = min(kind.size, 8)
            if isinstance(declared, Array):
                assert isinstance(kind, PointerType)
                unit = kind.to.size
                kind = ArrayType(kind.to, declared.count)
                align = LINE if kind.size >= LINE else min(unit, 8)
            offset = -(-offset // align) * align
            fields[name] = (offset, kind)
            offset += kind.size
        cls.fields = fields
        cls.size = -(-offset // LINE) * LINE

    @classmethod
    def offset(cls, name: str) -> int:
        """Where a field begins, in bytes."""
        return cls.fields[name][0]


# --- the types as the translator sees them --------------------------------------------------------


@dataclass(frozen=True)
class PointerType:
    """A pointer to an integer or a record."""

    to: type[Int] | type[Struct]
    size: ClassVar[int] = 8


@dataclass(frozen=True)
class ArrayType:
    """A field of ``count`` equal elements in a record."""

    of: type[Int] | type[Struct]
    count: int

    @property
    def size(self) -> int:
        return self.of.size * self.count


FieldType: TypeAlias = type[Int] | PointerType | ArrayType


def kind_of(annotation: Any) -> Any:
    """The kind of a variable or a field: ``Ptr[T]`` and records become a ``PointerType``."""
    if get_origin(annotation) is Ptr:
        return PointerType(*get_args(annotation))
    is_record = isinstance(annotation, type) and issubclass(annotation, Struct)
    return PointerType(annotation) if is_record else annotation


# --- functions ------------------------------------------------------------------------------------


@dataclass
class Native:
    """A function to be compiled.

    Functions of one ``part`` are compiled together; by default a part is a module. Other parts call
    a ``deferred`` function through its slot, a pointer in memory, so they can be loaded without it.
    While its own part is not loaded, such a call does nothing and returns 0.
    """

    function: Callable[..., Any]
    inline: bool
    emit: Callable[[ir.Module, Native], None] | None = None  # None: the body is translated
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
        """The kinds of its parameters and of its result."""
        hints = inspect.get_annotations(self.function, eval_str=True)
        names = list(inspect.signature(self.function).parameters)
        return [kind_of(hints[n]) for n in names], kind_of(hints["return"])


class NativeFunction(Native, Generic[P, R_co]):
    """A ``Native`` with the types of its parameters and of its result."""

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R_co:
        raise TypeError(f"{self.function.__name__} is native code: Python cannot call it")


@overload
def native(function: Callable[P, R_co], /) -> NativeFunction[P, R_co]: ...
@overload
def native(
    *,
    inline: bool = False,
    emit: Callable[[ir.Module, Native], None] | None = None,
    part: str = "",
    deferred: bool = False,
) -> Callable[[Callable[P, R_co]], NativeFunction[P, R_co]]: ...
def native(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inline: bool = False,
    emit: Callable[[ir.Module, Native], None] | None = None,
    part: str = "",
    deferred: bool = False,
) -> Any:
    """Mark a function as native code. ``emit`` writes its body instead of the translator."""
    if function is None:
        return lambda f: NativeFunction(f, inline, emit, part, deferred)
    return NativeFunction(function, inline, emit, part, deferred)
