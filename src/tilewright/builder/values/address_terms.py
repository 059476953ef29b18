"""Address computation: an offset is a sum of terms, and each dynamic term costs one instruction.

``moved`` advances a pointer for a tensor. The static part becomes the immediate offset of the
access. A term's factor and the element size are multiplied at trace time; 32-bit values are widened
by the multiply-add. Under a swizzle, the swizzle is applied to byte offsets instead of elements, so
that no scaling remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self, TypeVar

from ...dtypes import DType
from ...layout import Layout, OffsetSum, Swizzle, Tensor, flatten
from ...layout.symbolic import Term
from ..source_location import kernel_error
from .registers import Operations, Reg


class Address(Protocol):
    """A pointer, as far as this module needs it."""

    k: Operations
    dtype: DType

    @property
    def size(self) -> int: ...
    @property
    def width(self) -> int: ...
    def add_bytes(self, count: Any, scale: int = 1) -> Self: ...
    def by_register(self, count: Reg, scale: int, multiple: int) -> Self: ...


AddressType = TypeVar("AddressType", bound=Address)


def moved(
    pointer: AddressType, outside: OffsetSum, outer: Any, inside: OffsetSum | None
) -> AddressType:
    """The pointer advanced by ``outside`` + ``outer(inside)`` elements."""
    stays = all(not o.terms and o.static == 0 for o in (outside, inside or outside))
    if pointer.dtype.bits < 8 and not stays:
        raise kernel_error(
            f"elements must be at least a byte wide to be indexed in memory, got {pointer.dtype}",
            "recast the tensor to a type of bytes",
        )
    with pointer.k.eliminate_common_subexpressions():
        if inside is not None:
            pointer = _through(pointer, outer, inside)
        for term in outside.terms:
            pointer = _term_on(pointer, term)
        return pointer.add_bytes(outside.static, pointer.size)


def _through(pointer: AddressType, outer: Any, inside: OffsetSum) -> AddressType:
    """The pointer advanced by ``outer(inside)`` elements."""
    size = pointer.size
    if not inside.terms:
        return pointer.add_bytes(outer(inside.static), size)
    if not isinstance(outer, Swizzle) or size & (size - 1):
        return _term_on(pointer, Term(outer(inside.total()), 1, 1))
    low = inside.static & (
        _lowest_bit(inside.unit | 1 << outer.base) - 1
    )  # not changed by the swizzle
    offset = OffsetSum((inside.static - low) * size)
    for term in inside.terms:
        offset.add(term.value, term.factor * size, term.unit // abs(term.factor))
    swizzle = Swizzle(outer.bits, outer.base + size.bit_length() - 1, outer.shift)
    multiple = _lowest_bit(offset.unit | offset.static | 1 << swizzle.base)
    return pointer.by_register(swizzle(offset.total()), 1, multiple).add_bytes(low, size)


def _lowest_bit(number: int) -> int:
    return number & -number


def _term_on(pointer: AddressType, term: Term) -> AddressType:
    """The pointer advanced by a term. A static factor is folded into the multiply-add; a stride in
    a register is scaled to bytes first, once for all terms that use it.
    """
    value, factor, bytes_ = term.value, term.factor, term.unit * pointer.size
    _check(value)
    if isinstance(factor, Reg):
        _check(factor)
        value, factor = _product(pointer, value, factor), 1
    elif value.dtype.bits < pointer.width:
        factor *= pointer.size
        if factor < 0 and value.dtype.kind == "uint":
            value = value.to("u64")
    elif pointer.width == 64:
        value, factor = pointer.k.mul(value, factor * pointer.size), 1
    else:
        factor *= pointer.size
    return pointer.by_register(value, factor, bytes_)


def _product(pointer: Address, value: Reg, stride: Reg) -> Reg:
    """A number times a stride, in bytes."""
    k, kind = pointer.k, value.dtype.name
    if value.dtype is stride.dtype and value.dtype.bits < pointer.width:
        wide = k.emit(f"mul.wide.{kind}", value, stride, dtype=f"{kind[0]}{pointer.width}")
        return k.mul(wide, pointer.size)
    wide = f"u{pointer.width}"
    return k.mul(_as(value, wide), k.mul(_as(stride, wide), pointer.size))


def _as(value: Reg, kind: str) -> Reg:
    """An integer widened by its own sign, as ``kind``."""
    bits = int(kind[1:])
    wide = value if value.dtype.bits == bits else value.to(f"{value.dtype.name[0]}{bits}")
    return wide.view(kind)


def _check(number: Any) -> None:
    if not isinstance(number, Reg) or number.dtype.kind not in ("int", "uint"):
        raise kernel_error(
            "a coordinate or stride of memory must be an int or a u32, s32, u64 or s64 register, "
            f"got {number!r}"
        )


def iterate_slices(tensor: Tensor) -> Iterator[Tensor]:
    """The slices of mode 0 of a tensor at each coordinate of mode 1.

    With dynamic strides, each address is computed from a previous one, so that only the stride
    needs a register and not each multiple of it.
    """
    engine, layout = tensor.engine, tensor.layout
    if not hasattr(engine, "moved") or not isinstance(layout, Layout) or layout.is_static():
        yield from (tensor[None, i] for i in range(tensor.size(1)))
        return
    modes = list(zip(flatten(layout[1].shape), flatten(layout[1].stride), strict=True))
    starts = [engine] * len(modes)  # for each mode: at its digit, with all lower digits 0
    digits = [0] * len(modes)
    yield Tensor(engine, layout[0])
    for _ in range(1, layout.size(1)):
        i = next(i for i, (size, _) in enumerate(modes) if digits[i] < size - 1)
        digits[: i + 1] = [*[0] * i, digits[i] + 1]
        step = OffsetSum()
        step.add(modes[i][1])
        starts[: i + 1] = [starts[i].moved(step)] * (i + 1)
        yield Tensor(starts[i], layout[0])
