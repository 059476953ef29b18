"""Addresses from offsets: an offset comes as a sum of terms, and each becomes one instruction.

``moved`` is what a tensor asks of a pointer. What is static ends in the immediate of the access; a
term's factor and the size of an element are multiplied now; 32-bit numbers widen on the way. Under
a swizzle, bytes are swizzled instead of elements, so that nothing is left to be scaled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..layout import Sum, Swizzle
from ..layout.arithmetic import Term
from .registers import Reg
from .source import kernel_error

if TYPE_CHECKING:
    from .pointer import Pointer


def moved(pointer: Pointer, outside: Sum, outer: Any, inside: Sum | None) -> Pointer:
    """The pointer ``outside`` + ``outer(inside)`` elements on."""
    with pointer.k.sharing():
        if inside is not None:
            pointer = _through(pointer, outer, inside)
        for term in outside.terms:
            pointer = _term_on(pointer, term)
        return pointer + outside.static


def _through(pointer: Pointer, outer: Any, inside: Sum) -> Pointer:
    """The pointer ``outer(inside)`` elements on."""
    size = pointer.size
    if not inside.terms:
        return pointer + outer(inside.static)
    if not isinstance(outer, Swizzle) or size & (size - 1):
        return _term_on(pointer, Term(outer(inside.total()), 1, 1))
    low = inside.static & (_lowest_bit(inside.unit | 1 << outer.base) - 1)  # stays where it is
    offset = Sum((inside.static - low) * size)
    for term in inside.terms:
        offset.add(term.value, term.factor * size, term.unit // abs(term.factor))
    swizzle = Swizzle(outer.bits, outer.base + size.bit_length() - 1, outer.shift)
    whole = _lowest_bit(offset.unit | offset.static | 1 << swizzle.base)
    return pointer.by_register(swizzle(offset.total()), 1, whole) + low


def _lowest_bit(number: int) -> int:
    return number & -number


def _term_on(pointer: Pointer, term: Term) -> Pointer:
    """The pointer a term's elements on."""
    value, factor, size = term.value, term.factor, pointer.size
    _check(value)
    if isinstance(factor, Reg):
        _check(factor)
        value, factor = _product(pointer, value, factor)
    elif factor < 0 and pointer.width > value.dtype.bits and value.dtype.kind == "uint":
        value = value.to("u64")
    return pointer.by_register(value, factor * size, term.unit * size)


def _product(pointer: Pointer, value: Reg, factor: Reg) -> tuple[Reg, int]:
    """Two registers' product in the width of an address, and what is left to multiply it by."""
    k = pointer.k
    if value.dtype is factor.dtype and value.dtype.bits < pointer.width:
        kind = value.dtype.name
        return k.emit(f"mul.wide.{kind}", value, factor, like=f"{kind[0]}{pointer.width}"), 1
    kind = f"u{pointer.width}"
    return k.mul(_as(value, kind), _as(factor, kind)), 1


def _as(value: Reg, kind: str) -> Reg:
    """An integer widened by its own sign, as ``kind``."""
    bits = int(kind[1:])
    wide = value if value.dtype.bits == bits else value.to(f"{value.dtype.name[0]}{bits}")
    return wide.view(kind)


def _check(number: Any) -> None:
    if not isinstance(number, Reg) or number.dtype.kind not in ("int", "uint"):
        raise kernel_error(
            f"{number!r} is not a coordinate or stride of memory",
            "an int, or a u32, s32, u64, s64 register",
        )
