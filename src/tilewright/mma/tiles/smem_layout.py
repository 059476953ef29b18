"""Shared-memory layouts that tensor cores read without bank conflicts, and their wgmma descriptors.

A layout atom is 8 rows of 16, 32, 64 or 128 bytes (along K if ``K``-major, else along M or N) whose
16-byte chunks are permuted by a swizzle. Repeated to a shape, it is the layout for ldmatrix and
wgmma:
    K-major, 128 bytes, f16     Sw<3,3,3> o (8,64):(64,1)       CuTe's Layout_K_SW128_Atom
    MN-major, 64 bytes, f16     Sw<2,3,3> o (32,8):(1,32)       CuTe's Layout_MN_SW64_Atom

``make_descriptor`` is the inverse: it derives the descriptor's fields from a tile's layout, or
raises the reason why there are none. Layouts count elements from a multiple of the swizzle's
period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtypes import DType, dtype
from ...errors import DtypeError, LayoutError
from ...layout import IntTuple, Layout, LayoutLeft, Tensor, make_layout, tile_to_shape, upcast
from ...layout.algebra.function_properties import layout_of
from ...layout.composed_layout import AnyLayout, inside, make_swizzled
from ...layout.int_tuple import is_static
from ...layout.scaled_basis import has_basis
from ...layout.symbolic import Number, add, is_power_of_two
from ..array_inputs import is_integer
from ..matrix_descriptor import (
    CHUNK_BYTES,
    SWIZZLES,
    MatrixDescriptor,
    swizzle_atom,
    swizzle_pattern,
)


def make_smem_layout_atom(type_: DType | str, major: str = "K", swizzle: int = 128) -> AnyLayout:
    """The layout atom (M or N, K) → element for rows of ``swizzle`` bytes, 0 for no swizzle.

    LayoutError for another major than ``K`` and ``MN`` or another swizzle; DtypeError for elements
    whose width is not a power of two.
    """
    bits = _bits(type_)
    return make_swizzled(upcast(swizzle_pattern(swizzle), bits), swizzle_atom(bits, swizzle, major))


def smem_selector(type_: DType | str, major: str, shape_mn_k: tuple[int, ...]) -> int:
    """The widest swizzle whose atom divides a tile (M or N, K). LayoutError where none does."""
    _check_tile(shape_mn_k)
    for swizzle in sorted(SWIZZLES, reverse=True):
        one = swizzle_atom(_bits(type_), swizzle, major)
        if all(have % mode.size() == 0 for have, mode in zip(shape_mn_k, one, strict=False)):
            return swizzle
    raise LayoutError(
        f"no {major}-major layout atom of {type_} divides {shape_mn_k}",
        hint=f"the smallest is {swizzle_atom(_bits(type_), 0, major).shape}",
    )


def _check_tile(shape: object) -> None:
    if not isinstance(shape, tuple):
        raise LayoutError(f"a tile in shared memory must be (M or N, K, …), got {shape!r}")


def make_smem_layout(
    type_: DType | str,
    major: str,
    shape: IntTuple,
    swizzle: int | None = None,
    order: Any = LayoutLeft,
) -> AnyLayout:
    """The atom repeated to a tile (M or N, K) or (M or N, K, stages), along its modes in ``order``.

    ``swizzle`` defaults to the widest that fits.
    """
    _check_tile(shape)
    if swizzle is None:
        swizzle = smem_selector(type_, major, shape[:2])
    layout: AnyLayout = tile_to_shape(make_smem_layout_atom(type_, major, swizzle), shape, order)
    return layout


def _bits(type_: DType | str) -> int:
    found = dtype(type_)
    if not is_power_of_two(found.bits):
        expected = "the width of elements must be a power of two"
        raise DtypeError(f"{expected}, got {found.bits} bits ({found})")
    return found.bits


# --- descriptors ----------------------------------------------------------------------------------


def make_descriptor(
    tile: AnyLayout | Tensor, type_: DType | str, major: str = "K", start: int = 0
) -> MatrixDescriptor:
    """The descriptor of one instruction's operand (M or N, K) with this layout.

    ``start`` is the byte address of the layout's offset 0. Swizzle, leading and stride are derived
    from the layout and checked for every element. LayoutError with the reason where wgmma can't
    read the layout.
    """
    layout = layout_of(tile)
    bits = _bits(type_)
    if not is_integer(start):
        raise LayoutError(f"a descriptor's start must be a byte address, got {start!r}")
    swizzle, first, inner = _parts(layout, bits)
    base = _base_offset(swizzle, start)
    if len(inner) != 2 or not inner.is_static() or has_basis(inner.stride):
        raise LayoutError(f"a descriptor needs a static tile (M or N, K), got {layout}")
    address = start + first * bits // 8
    try:
        leading, stride = _fields(inner, bits, swizzle, major)
        descriptor = MatrixDescriptor(address, leading, stride, swizzle, base)
        reads = descriptor.offsets(bits, inner.size(0), inner.size(1), major)
    except LayoutError as e:
        raise LayoutError(f"{_not_canonical(layout, swizzle, major)}: {e.message}") from None
    actual = inner.indices().reshape(reads.shape, order="F") * bits
    wrong = np.argwhere(actual != reads)
    if len(wrong):
        row, column = (int(x) for x in wrong[0])
        raise LayoutError(
            f"{_not_canonical(layout, swizzle, major)}: ({row},{column}) must be at byte "
            f"{reads[row, column] / 8:g}, got {actual[row, column] / 8:g}",
            hint=f"for leading {leading} and stride {stride} bytes",
        )
    return descriptor


def _not_canonical(layout: AnyLayout, swizzle: int, major: str) -> str:
    kind = f"swizzled by {swizzle} bytes" if swizzle else "without swizzle"
    return f"{layout} is not a canonical {major}-major layout {kind}"


def _parts(layout: AnyLayout, bits: int) -> tuple[int, int, Layout]:
    """(the swizzle in bytes, elements before the tile, the layout inside the swizzle)."""
    if isinstance(layout, Layout):
        return 0, 0, layout
    known = {upcast(swizzle_pattern(size), bits): size for size in SWIZZLES if size}
    if getattr(layout.outer, "bits", None) == 0:
        known[layout.outer] = 0
    if layout.outer not in known:
        allowed = ", ".join(map(str, known))
        raise LayoutError(
            f"wgmma's swizzle of {bits}-bit elements must be {allowed}, got {layout.outer}"
        )
    if not is_static(layout.offset):
        raise LayoutError(
            f"a descriptor needs a layout with a static offset, got {layout}",
            hint="make the descriptor of a tile at 0 and add the offset in units of 16 bytes",
        )
    return known[layout.outer], layout.offset, layout.inner


def _base_offset(swizzle: int, start: int) -> int:
    """Rows of 128 bytes from a multiple of the swizzle's period to ``start``."""
    offset = start % (8 * swizzle) if swizzle else 0
    if offset % 128:
        raise LayoutError(f"a swizzled tile must start at a multiple of 128 bytes, got {start}")
    return offset // 128


def _fields(inner: Layout, bits: int, swizzle: int, major: str) -> tuple[int, int]:
    """(leading, stride) in bytes: the distances to the next swizzle atoms, 0 where there are none.
    Leading of K-major swizzled rows is 16, as in CuTe.
    """
    one = swizzle_atom(bits, swizzle, major)
    down = int(inner((one.size(0), 0))) * bits // 8 if inner.size(0) > one.size(0) else 0
    on = int(inner((0, one.size(1)))) * bits // 8 if inner.size(1) > one.size(1) else 0
    if major == "MN":
        return (on, down) if swizzle == 0 else (down, on)
    return on or (CHUNK_BYTES if swizzle else 0), down


@dataclass(frozen=True, slots=True)
class DescriptorIterator:
    """The engine of a tensor of descriptors: ``[i]`` is ``bits``, advanced by ``i`` times 16 bytes.

    ``bits`` may be dynamic: a register with the static fields and an address.
    """

    bits: Number

    def __getitem__(self, i: Number) -> Number:
        return add(self.bits, i)

    def __add__(self, i: Number) -> DescriptorIterator:
        return DescriptorIterator(add(self.bits, i))

    def __str__(self) -> str:
        return "descriptor"


def make_descriptor_tensor(
    parts: AnyLayout | Tensor, type_: DType | str, major: str = "K", start: int = 0
) -> Tensor:
    """The tensor (1, RestM, RestK, …) of descriptors of an operand in shared memory, partitioned by
    ``partition_A`` or ``_B`` to ((M,K), RestM, RestK, …). They differ from the first in ``start``.
    """
    layout = layout_of(parts)
    first = make_descriptor(layout[0], type_, major, start)
    inner = inside(layout)
    steps = upcast(inner, 8 * CHUNK_BYTES // _bits(type_))
    offsets = make_layout(Layout(1, 0), *list(steps)[1:])
    return Tensor(DescriptorIterator(first.bits), offsets)
