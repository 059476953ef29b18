"""Tensor maps as kernel arguments: ``tensor_map(array, box)`` describes an array and the box that
one copy transfers. The launch encodes the 128 bytes with the array's address on the device.
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

_PLACEHOLDER = 1 << 20  # the address of an array that is not yet uploaded


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMap:
    """A tensor map of an array, as the argument of a kernel's ``tensor_map`` parameter."""

    array: Any
    view: ArrayView
    map: TensorMap
    encoded: bytes

    def at(self, address: int) -> bytes:
        """The encoded tensor map with this address."""
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
    """The tensor map of an array as a kernel argument; the array has one to five dimensions, the
    last one contiguous.

    ``box`` is one of:

    - the extents of the box that a copy transfers, one for each dimension of the array, with
      ``swizzle`` in bytes (0, 32, 64, 128);
    - the layout of a tile in shared memory, which determines box and swizzle (``tile``: the shape
      of the tile in the array, if it differs from the layout's shape);
    - ``mma.Im2col``, for an array N×W×C, N×H×W×C or N×D×H×W×C.

    A kernel gives coordinates innermost first: ``k.tma_load(…, map, (column, row), …)``. ``dtype``
    is another format of the same size, such as ``tf32`` (the copy rounds). ``oob_fill`` is the
    value read outside of the array, ``"zero"`` or ``"nan"``. An array may be the argument of
    several maps and pointers; it is uploaded once.

    Raises LayoutError with the violated rule, DtypeError for elements of less than a byte.
    """
    view = array_view.view(array)
    type_ = view.dtype if dtype is None else dtype
    address = _PLACEHOLDER if view.device == "cpu" else view.address
    options: dict[str, Any] = {"l2_promotion": l2_promotion, "oob_fill": oob_fill}
    if isinstance(box, Layout | ComposedLayout):
        if swizzle:
            raise LayoutError(
                f"swizzle must not be given with a layout, which has its own, got {swizzle}"
            )
        layout = Layout(view.shape, view.strides)
        map_ = TensorMap.of(layout, box, type_, tile, address, **options)
    else:
        if tile is not None:
            raise LayoutError(f"tile must be given only if box is a layout, got tile={tile}, {box}")
        map_ = _boxed(view, type_, box, address, swizzle=swizzle, **options)
    return ArrayMap(array, view, map_, map_.encode())


def _boxed(
    view: ArrayView, type_: str | DType, box: object, address: int, **options: Any
) -> TensorMap:
    shape, strides = view.shape, view.strides
    if not isinstance(box, Im2col) and (
        not isinstance(box, tuple | list) or len(box) != len(shape)
    ):
        raise LayoutError(
            f"box must have one extent for each of the array's {len(shape)} dimensions, got {box!r}"
        )
    if not shape or (strides[-1] != 1 and shape[-1] != 1):
        raise LayoutError(
            f"the last dimension must be contiguous, got shape {shape} and strides {strides}",
            hint="pass the transposed array, array.T" if strides[:1] == (1,) else "",
        )
    outer = [stride * view.itemsize for stride in strides[-2::-1]]
    if isinstance(box, Im2col):
        pixels = box.lower, box.upper, box.channels, box.pixels
        return TensorMap.im2col(address, type_, shape[::-1], outer, *pixels, **options)
    return TensorMap.tiled(address, type_, shape[::-1], outer, box[::-1], **options)
