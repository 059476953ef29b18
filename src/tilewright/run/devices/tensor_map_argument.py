"""Tensor maps as arguments of a launch: ``tensor_map(array, box)`` names an array and what one copy
takes of it; the launch makes the 128 bytes, for where the array then is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...dtypes import DType
from ...errors import LayoutError
from ...layout import IntTuple, Layout
from ...layout.composed_layout import AnyLayout, ComposedLayout
from ...mma import Im2col, TensorMap
from ..arrays import array_view
from ..arrays.array_view import ArrayView

_STAND_IN = 1 << 20  # for the address of an array that has to be copied to the device


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMap:
    """A tensor map of an array, as the argument of a kernel's ``tensor_map`` parameter."""

    array: Any
    view: ArrayView
    map: TensorMap
    encoded: bytes

    def at(self, address: int) -> bytes:
        """The 128 bytes for the array's elements from this address on."""
        return TensorMap.replace_address(self.encoded, address)

    def __repr__(self) -> str:
        return f"tensor_map({self.map})".replace(f" at {self.map.address:#x}", "")


def tensor_map(
    array: Any,
    box: tuple[int, ...] | AnyLayout | Im2col,
    swizzle: int = 0,
    *,
    tile: IntTuple | None = None,
    dtype: str | DType | None = None,
    l2_promotion: int = 0,
    oob_fill: str = "zero",
) -> ArrayMap:
    """The tensor map of an array of one to five dimensions, the last one contiguous, for a launch.

    ``box``: the elements that a copy takes along each of the array's dimensions, with the swizzle
    in bytes (0, 32, 64, 128); or the layout of a tile in shared memory, which says both (``tile``:
    which elements of the array a tile is, if not as many in each mode); or, of an array N×W×C,
    N×H×W×C or N×D×H×W×C, the pixels that an im2col copy takes (``mma.Im2col``). A kernel names
    coordinates innermost first: ``k.tma_load(…, map, (column, row), …)``. ``dtype``: another format
    of the same size, ``tf32`` (rounded on the way). ``oob_fill``: what is read outside of the
    array, zero or nan. The array may be the argument of several maps and pointers; it is one on the
    device.

    LayoutError, with the rule, for what can't be a map; DtypeError for elements of less than a
    byte.
    """
    view = array_view.view(array)
    type_ = view.dtype if dtype is None else dtype
    address = _STAND_IN if view.device == "cpu" else view.address
    options: dict[str, Any] = {"l2_promotion": l2_promotion, "oob_fill": oob_fill}
    if isinstance(box, Layout | ComposedLayout):
        if swizzle:
            raise LayoutError(f"the layout {box} says how it is swizzled, swizzle={swizzle} too")
        given = Layout(view.shape, view.strides)
        made = TensorMap.of(given, box, type_, tile, address, **options)
    else:
        if tile is not None:
            raise LayoutError(f"tile={tile}: a layout may take another tile, {box} says its own")
        made = _boxed(view, type_, box, address, swizzle=swizzle, **options)
    return ArrayMap(array, view, made, made.encode())


def _boxed(
    view: ArrayView, type_: str | DType, box: object, address: int, **options: Any
) -> TensorMap:
    shape, strides = view.shape, view.strides
    if not isinstance(box, Im2col) and (
        not isinstance(box, tuple | list) or len(box) != len(shape)
    ):
        raise LayoutError(
            f"a box has as many extents as its array dimensions, {len(shape)}, not {box!r}"
        )
    if not shape or (strides[-1] != 1 and shape[-1] != 1):
        hint = "the map of the transposed array, array.T" if strides[:1] == (1,) else ""
        raise LayoutError(
            f"a tensor map is of an array whose last dimension is contiguous, not of shape {shape} "
            f"and strides {strides}",
            hint=hint,
        )
    outer = [stride * view.itemsize for stride in strides[-2::-1]]
    if isinstance(box, Im2col):
        taken = box.lower, box.upper, box.channels, box.pixels
        return TensorMap.im2col(address, type_, shape[::-1], outer, *taken, **options)
    return TensorMap.tiled(address, type_, shape[::-1], outer, box[::-1], **options)
