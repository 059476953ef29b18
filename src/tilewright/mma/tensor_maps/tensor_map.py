"""Tensor-map encoding: the 128-byte descriptor of a tensor in global memory, and of the box that
one TMA copy transfers. Encoded and decoded bit for bit as by the CUDA driver.

Dimensions are in the driver's order, the innermost first. Strides are in bytes; the innermost
dimension is contiguous and has none. A copy transfers a box of elements, or (``Im2col``) a number
of channels of a number of pixels.
    f16 (1024,512):(2,2048) at 0x7f0000000000, box (64,128), swizzle 128

``tensor_map_rules`` has the driver's rules, ``tensor_map_fields`` the bit fields, ``tma_copy`` the
semantics of a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from ...dtypes import DType
from ...errors import DtypeError, LayoutError
from ...layout import ComposedLayout, IntTuple, Layout, Tensor
from ...layout.int_tuple import text
from ..array_inputs import is_integer
from . import tensor_map_fields as at
from .tensor_map_fields import TensorMapField
from .tensor_map_parameters import TYPES, Im2col, TensorMapParameters, element_type
from .tensor_map_rules import (
    FILLS,
    INTERLEAVES,
    PROMOTIONS,
    SWIZZLES,
    check,
    check_address,
    recorded_bytes,
)
from .tma_boxes import TmaTiling

BYTES = 128  # of a tensor map
_HARDWARE_BYTES = 64  # of them that the hardware reads; the others are the driver's
_NAMES = {(row.code, row.rounded): name for name, row in TYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorMap(TensorMapParameters):
    """A tensor map. LayoutError, naming the rule, where the driver would reject it.

    ``dtype`` is a name in ``TYPES``. ``strides`` are those of dimensions 1 and up.
    ``element_strides`` step through the tensor, ``interleave`` is 0, 16 or 32 bytes, ``swizzle`` 0,
    32, 64 or 128, ``l2_promotion`` 0, 64, 128 or 256; ``oob_fill`` is ``zero`` or ``nan``.
    """

    def __post_init__(self) -> None:
        _check_kinds(self)
        check(self)

    @classmethod
    def tiled(
        cls,
        address: int,
        dtype: str | DType,
        shape: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        element_strides: Sequence[int] | None = None,
        interleave: int = 0,
        swizzle: int = 0,
        l2_promotion: int = 0,
        oob_fill: str = "zero",
    ) -> TensorMap:
        """As cuTensorMapEncodeTiled: a copy transfers a box of elements.

        ``dtype`` may be any number format of 8, 16, 32 or 64 bits.
        """
        tensor = _int(address), element_type(dtype), _ints(shape), _ints(strides)
        steps = _ints(element_strides or (1,) * len(shape))
        return cls(*tensor, _ints(box), steps, interleave, swizzle, l2_promotion, oob_fill)

    @classmethod
    def im2col(
        cls,
        address: int,
        dtype: str | DType,
        shape: Sequence[int],
        strides: Sequence[int],
        lower: Sequence[int],
        upper: Sequence[int],
        channels: int,
        pixels: int,
        element_strides: Sequence[int] | None = None,
        interleave: int = 0,
        swizzle: int = 0,
        l2_promotion: int = 0,
        oob_fill: str = "zero",
    ) -> TensorMap:
        """As cuTensorMapEncodeIm2col: copies channels of pixels. Dimensions are C, W, H, D, N."""
        tensor = _int(address), element_type(dtype), _ints(shape), _ints(strides)
        box = Im2col(_ints(lower), _ints(upper), _int(channels), _int(pixels))
        steps = _ints(element_strides or (1,) * len(shape))
        return cls(*tensor, box, steps, interleave, swizzle, l2_promotion, oob_fill)

    @classmethod
    def of(
        cls,
        tensor: Layout | Tensor,
        shared: Layout | ComposedLayout,
        dtype: str | DType | None = None,
        tile: IntTuple | None = None,
        address: int = 0,
        l2_promotion: int = 0,
        oob_fill: str = "zero",
    ) -> TensorMap:
        """The map for copies of a tensor's tiles to ``shared`` memory (CuTe's make_tma_copy);
        ``TmaTiling.of`` the same layouts has the coordinates of each copy.

        ``dtype`` defaults to that of the tensor. LayoutError where no box fills the tile.
        """
        layout = tensor.layout if isinstance(tensor, Tensor) else tensor
        if dtype is None:
            if not isinstance(tensor, Tensor):
                raise DtypeError(f"the tensor map of layout {layout} needs dtype, got None")
            dtype = tensor.dtype
        type_ = element_type(dtype)
        tiling = TmaTiling.of(layout, shared, 8 * TYPES[type_].bytes, tile)
        return cls.tiled(
            address,
            type_,
            tiling.shape,
            tiling.strides,
            tiling.box,
            swizzle=tiling.swizzle,
            l2_promotion=l2_promotion,
            oob_fill=oob_fill,
        )

    def encode(self) -> bytes:
        """The 128 bytes."""
        bits = sum(field.put(values) for field, values in _fields(self))
        return bits.to_bytes(BYTES, "little")

    @classmethod
    def decode(cls, encoded: bytes) -> TensorMap:
        """The map of 128 bytes. LayoutError if the hardware's 64 differ from those of ``encode``.

        The driver's bytes after them are not read: tensormap.replace does not update them.
        """
        _check_bytes(encoded)
        decoded = _read(int.from_bytes(encoded, "little"))
        pairs = zip(encoded[:_HARDWARE_BYTES], decoded.encode(), strict=False)
        for i, (byte, expected) in enumerate(pairs):
            if byte != expected:
                why = f"byte {i} must be {expected:#04x} for {decoded}, got {byte:#04x}"
                raise LayoutError(f"invalid tensor map of sm_90: {why}")
        return decoded

    @staticmethod
    def replace_address(encoded: bytes, address: int) -> bytes:
        """The map with another address, as cuTensorMapReplaceAddress: 8 bytes change.

        LayoutError unless the address is a multiple of 16 below 2^57, and not 0.
        """
        _check_bytes(encoded)
        return check_address(_int(address), least=1).to_bytes(8, "little") + encoded[8:]

    def __str__(self) -> str:
        strides = (self.element_bytes, *self.strides)
        words = [f"{self.dtype} {text(self.shape)}:{text(strides)} at {self.address:#x}"]
        words.append(str(self.box) if isinstance(self.box, Im2col) else f"box {text(self.box)}")
        if any(step != 1 for step in self.element_strides):
            words.append(f"steps {text(self.element_strides)}")
        for name in ("interleave", "swizzle", "l2_promotion"):
            if getattr(self, name):
                words.append(f"{name} {getattr(self, name)}")
        if self.oob_fill != "zero":
            words.append(f"filled with {self.oob_fill}")
        return ", ".join(words)


def _check_bytes(encoded: object) -> None:
    if not isinstance(encoded, bytes | bytearray | memoryview):
        raise LayoutError(f"a tensor map must be bytes, got {encoded!r}")
    if len(encoded) != BYTES:
        raise LayoutError(f"a tensor map must have {BYTES} bytes, got {len(encoded)}")


def _check_kinds(m: TensorMap) -> None:
    for name in (m.dtype, m.oob_fill):
        _expect(name.__class__ is str, "dtype and oob_fill must be str", name)
    box = m.box
    boxes: tuple[object, ...] = (box,)
    if isinstance(box, Im2col):
        boxes = (box.lower, box.upper, (box.channels, box.pixels))
    sizes = (m.address, m.interleave, m.swizzle, m.l2_promotion)
    for value in (sizes, m.shape, m.strides, m.element_strides, *boxes):
        all_integers = isinstance(value, tuple) and all(map(is_integer, value))
        _expect(all_integers, "expected a tuple of integers", value)


def _expect(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise LayoutError(f"tensor map: {rule}, got {value!r}")


def _int(value: Any) -> int:
    _expect(is_integer(value), "expected an integer", value)
    return index(value)


def _ints(values: Any) -> tuple[int, ...]:
    _expect(isinstance(values, Iterable), "expected a tuple of integers", values)
    return tuple(map(_int, values))


# --- bits -----------------------------------------------------------------------------------------


def _fields(m: TensorMap) -> Iterator[tuple[TensorMapField, Iterable[int]]]:
    row = TYPES[m.dtype]
    yield at.ADDRESS, [m.address]
    yield at.IM2COL, [isinstance(m.box, Im2col)]
    yield at.RANK, [m.rank - 1]
    yield at.TYPE, [row.code]
    yield at.ROUNDED, [row.rounded]
    yield at.INTERLEAVE, [INTERLEAVES.index(m.interleave)]
    yield at.SWIZZLE, [SWIZZLES.index(m.swizzle)]
    yield at.PROMOTION, [PROMOTIONS.index(m.l2_promotion)]
    yield at.FILL, [FILLS.index(m.oob_fill)]
    yield at.STRIDE, [stride >> 4 for stride in m.strides]
    yield at.STRIDE_TOP, [stride >> 36 for stride in m.strides]
    yield at.SIZE, [size - 1 for size in m.shape]
    yield at.STEP, [step - 1 for step in m.element_strides]
    if isinstance(m.box, Im2col):
        lower, upper = at.corners(m.rank)
        yield lower, m.box.lower
        yield upper, m.box.upper
        yield at.EXTENT.at(0), [m.box.channels - 1]
        yield at.PIXELS, [m.box.pixels - 1]
    else:
        yield at.EXTENT, [extent - 1 for extent in m.box]
    yield at.BOX_BYTES, [recorded_bytes(m)]
    yield at.SWIZZLE_PERIOD, [8 * m.swizzle or 16]


def _read(bits: int) -> TensorMap:
    def one(field: TensorMapField) -> int:
        return field.get(bits)[0]

    rank, im2col = one(at.RANK) + 1, one(at.IM2COL)
    kind = (one(at.TYPE), bool(one(at.ROUNDED)))
    if kind not in _NAMES or not 1 + 2 * im2col <= rank <= 5 or one(at.INTERLEAVE) > 2:
        word = bits >> 64 & (1 << 32) - 1
        raise LayoutError(f"invalid tensor map of sm_90: bytes 8 … 11 are {word:#010x}")
    tops = zip(at.STRIDE_TOP.get(bits), at.STRIDE.get(bits), strict=True)
    box: tuple[int, ...] | Im2col = _more(at.EXTENT, bits, rank)
    if im2col:
        lower, upper = (tuple(_signed(x, f.width) for x in f.get(bits)) for f in at.corners(rank))
        box = Im2col(lower, upper, one(at.EXTENT) + 1, one(at.PIXELS) + 1)
    return TensorMap(
        one(at.ADDRESS),
        _NAMES[kind],
        _more(at.SIZE, bits, rank),
        tuple((top << 36) + (low << 4) for top, low in tops)[: rank - 1],
        box,
        _more(at.STEP, bits, rank),
        INTERLEAVES[one(at.INTERLEAVE)],
        SWIZZLES[one(at.SWIZZLE)],
        PROMOTIONS[one(at.PROMOTION)],
        FILLS[one(at.FILL)],
    )


def _more(field: TensorMapField, bits: int, count: int) -> tuple[int, ...]:
    """The first ``count`` numbers of a field that stores them minus one."""
    return tuple(x + 1 for x in field.get(bits)[:count])


def _signed(value: int, width: int) -> int:
    return value - (value >> width - 1 << width)
