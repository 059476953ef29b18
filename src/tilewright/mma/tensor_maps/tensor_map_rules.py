"""The rules of tensor maps: which parameters the driver accepts.

The rules are those of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col in driver 13.0 on an H200,
tested with 73,727 maps. Where the driver differs from its documentation, the driver decides: a box
is at most as large as shared memory, interleaved channels may have any swizzle, and the corners of
a bounding box are compared in 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, NoReturn

from ...errors import DtypeError, LayoutError
from .. import matrix_descriptor
from ..matrix_descriptor import CHUNK_BYTES
from .tensor_map_fields import corners
from .tensor_map_parameters import TYPES, Im2col, TensorMapParameters

# In bytes; a field holds the index in its tuple.
INTERLEAVES = (0, 16, 32)
SWIZZLES = tuple(sorted(matrix_descriptor.SWIZZLES))
PROMOTIONS = (0, 64, 128, 256)
FILLS = ("zero", "nan")

# Maxima.
RANK = 5  # dimensions
EXTENT = 256  # elements of a box along a dimension
SHARED_MEMORY = 228 << 10  # bytes of a box


def check(m: TensorMapParameters) -> None:
    """LayoutError, with the rule, where the driver would reject a map."""
    _check_options(m)
    _check_lengths(m)
    _check_tensor(m)
    for i, step in enumerate(m.element_strides):
        _within(f"element stride {i}", step, 1, 8)
    if isinstance(m.box, tuple):
        for i, extent in enumerate(m.box):
            _within(f"box extent {i}", extent, 1, EXTENT)
        _check_row(m, m.box[0])
    else:
        _check_pixels(m, m.box)
        _check_row(m, m.box.channels)
    if recorded_bytes(m) > SHARED_MEMORY:
        _reject(f"a box must have at most {SHARED_MEMORY} bytes", recorded_bytes(m))


def recorded_bytes(m: TensorMapParameters) -> int:
    """The box's bytes in the driver's count: extents are divided by the steps, rounding down."""
    if isinstance(m.box, tuple):
        steps = zip(m.box, m.element_strides, strict=True)
        return m.element_bytes * prod(extent // step for extent, step in steps)
    return m.element_bytes * m.box.channels * m.box.pixels


def check_address(address: int, unit: int = CHUNK_BYTES, least: int = 0) -> int:
    """The address; LayoutError unless it is a multiple of ``unit`` below 2^57."""
    if address % unit or not least <= address < 1 << 57:
        _reject(f"the address must be a multiple of {unit} below 2^57", f"{address:#x}")
    return address


def _check_options(m: TensorMapParameters) -> None:
    if m.dtype not in TYPES:
        raise DtypeError(f"a tensor map's dtype must be one of {', '.join(TYPES)}, got {m.dtype!r}")
    _one_of("interleave", m.interleave, INTERLEAVES)
    _one_of("swizzle", m.swizzle, SWIZZLES)
    _one_of("l2_promotion", m.l2_promotion, PROMOTIONS)
    _one_of("oob_fill", m.oob_fill, FILLS)
    if m.oob_fill == "nan" and not TYPES[m.dtype].floating:
        _reject("oob_fill='nan' needs floating-point elements", m.dtype)


def _check_lengths(m: TensorMapParameters) -> None:
    what, least = ("an interleaved map", 3) if m.interleave else ("a tensor map", 1)
    if not isinstance(m.box, tuple):
        what, least = "an im2col map", 3
    if not least <= m.rank <= RANK:
        _reject(f"{what} must have {least} to {RANK} dimensions", m.shape)
    lengths: list[tuple[str, tuple[int, ...], int]] = [
        ("strides", m.strides, m.rank - 1),
        ("element_strides", m.element_strides, m.rank),
    ]
    if isinstance(m.box, tuple):
        lengths.append(("box", m.box, m.rank))
    else:
        lengths += [("lower", m.box.lower, m.rank - 2), ("upper", m.box.upper, m.rank - 2)]
    for name, values, count in lengths:
        if len(values) != count:
            _reject(f"{name} must have length {count} for rank {m.rank}", values)


def _check_tensor(m: TensorMapParameters) -> None:
    unit = max(CHUNK_BYTES, m.interleave)
    check_address(m.address, unit)
    for i, size in enumerate(m.shape):
        _within(f"size {i}", size, 1, 1 << 32)
    for i, stride in enumerate(m.strides, 1):
        if stride % unit or not 0 <= stride < 1 << 40:
            _reject(f"stride {i} must be a multiple of {unit} bytes below 2^40", stride)


def _check_pixels(m: TensorMapParameters, box: Im2col) -> None:
    _within("channels", box.channels, 1, EXTENT)
    _within("pixels", box.pixels, 1, 1024)
    limit = 1 << corners(m.rank)[0].width - 1
    first = 0 if m.interleave else 1  # the dimension of W
    for i, (lower, upper) in enumerate(zip(box.lower, box.upper, strict=True)):
        _within(f"corner {i}", lower, -limit, limit - 1)
        _within(f"corner {i}", upper, -limit, limit - 1)
        end = (m.shape[first + i] + upper + (1 << 31)) % (1 << 32) - (1 << 31)
        if end <= lower:
            _reject(f"the bounding box of dimension {first + i} must not be empty", (lower, end))


def _check_row(m: TensorMapParameters, elements: int) -> None:
    row = elements * m.element_bytes
    if row % CHUNK_BYTES:
        _reject(f"a row of the box must be a multiple of {CHUNK_BYTES} bytes", row)
    if m.swizzle and not m.interleave and row > m.swizzle:
        _reject(f"a row of the box must have at most the {m.swizzle} bytes of its swizzle", row)


def _within(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        _reject(f"{what} must be {least} … {most}", value)


def _one_of(what: str, value: Any, allowed: Iterable[Any]) -> None:
    if value not in allowed:
        _reject(f"{what} must be one of {', '.join(map(str, allowed))}", value)


def _reject(rule: str, value: Any) -> NoReturn:
    raise LayoutError(f"tensor map: {rule}, got {value}")
