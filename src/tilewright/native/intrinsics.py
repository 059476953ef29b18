"""Intrinsics of native code: functions that the translator replaces with instructions.

The integer intrinsics also run in Python, with the same results.
"""

from __future__ import annotations

from typing import TypeVar, overload

from .native_language import Int, Ptr, Struct

StructT = TypeVar("StructT", bound=Struct)
IntT = TypeVar("IntT", bound=Int | int)

_ALL_BITS = (1 << 64) - 1


# --- integers -------------------------------------------------------------------------------------


def popcount(a: int) -> int:
    """The number of bits set."""
    return (a & _ALL_BITS).bit_count()


def lowest(a: int) -> int:
    """The index of the lowest bit set (64 for 0)."""
    return (a & -a).bit_length() - 1 if a & _ALL_BITS else 64


def highest(a: int) -> int:
    """The index of the highest bit set (−1 for 0)."""
    return (a & _ALL_BITS).bit_length() - 1


def below(a: int, b: int) -> int:
    """Whether a < b as unsigned numbers."""
    return a & _ALL_BITS < b & _ALL_BITS


def lshr(a: int, count: int) -> int:
    """A logical shift to the right."""
    return _signed((a & _ALL_BITS) >> count)


def umod(a: int, b: int) -> int:
    """The remainder of an unsigned division."""
    return _signed((a & _ALL_BITS) % (b & _ALL_BITS))


def _signed(a: int) -> int:
    return a - (a >> 63 << 64)


# --- memory and calls -----------------------------------------------------------------------------


def address(pointer: Ptr[object] | Struct) -> int:
    """A pointer as a number."""
    raise NotImplementedError


@overload
def at(kind: type[StructT], address: int | Ptr[object] | Struct) -> StructT: ...
@overload
def at(kind: type[IntT], address: int | Ptr[object] | Struct) -> Ptr[IntT]: ...
def at(kind: type[object], address: int | Ptr[object] | Struct) -> object:
    """The record, or a pointer to the integers, at an address."""
    raise NotImplementedError


def copy(target: Ptr[Int], source: Ptr[Int], size: int) -> int:
    """Copy ``size`` bytes (memcpy); returns ``size``."""
    raise NotImplementedError


def indirect(function: int, *arguments: int | Ptr[object] | Struct) -> int:
    """Call code at an address that returns a number."""
    raise NotImplementedError
