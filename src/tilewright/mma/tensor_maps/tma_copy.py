"""The semantics of a TMA copy (cp.async.bulk.tensor) of a tensor map, as arithmetic.

``copy_addresses`` returns the global and the shared address of each unit copied: an element, or 16
bytes where channels are interleaved. Each rule was measured on an H200 (1,709 copies, compared byte
by byte), also where the PTX manual is silent:

    box         steps through the tensor by the element strides: an extent covers ⌈extent / step⌉
                elements, the innermost dimension always all. Rows are consecutive in shared memory;
                with a swizzle each row begins at a multiple of the swizzle's bytes, and the swizzle
                permutes 16-byte chunks by their addresses.
    interleave  dimensions are W, H, D, slices of C, N; an element of dimension 0 is a slice of 16
                or 32 bytes, and a copy takes one slice regardless of the box.
    im2col      pixels are traversed in W, H, D within the bounding box, then in N, starting at the
                base; the offsets are added to the coordinates read, not to the traversal.
    outside     a load fills an element outside of the tensor in any dimension; a store does not
                write it. A store decides for 16-byte chunks as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from operator import add
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ...errors import LayoutError
from ...layout import upcast
from ...number_conversion import decode, encode
from ..matrix_descriptor import CHUNK_BYTES, swizzle_pattern
from .tensor_map import TensorMap
from .tensor_map_fields import corners
from .tensor_map_parameters import TYPES, Im2col
from .tma_boxes import ALIGNMENT

Array = npt.NDArray[Any]

MAX_SIZE = 1 << 31  # of a dimension for the hardware; the driver encodes 2^32
OUTSIDE = 0x7FF7  # the 16-bit NaN of an element outside of the tensor
FILLED = {"zero": bytes(2), "nan": OUTSIDE.to_bytes(2, "little")}  # the fill of each 16 bits


@dataclass(frozen=True, slots=True, eq=False)
class CopyAddresses:
    """The addresses of the units of a copy, arrays with an axis for each dimension that is copied,
    the innermost first: (box), or (channels, pixels).

    ``source`` are byte offsets from the map's address, -1 outside of the tensor; ``shared`` are
    byte addresses in shared memory. A unit has ``unit`` bytes.
    """

    source: Array
    shared: Array
    unit: int

    @property
    def bytes(self) -> int:
        """The bytes that complete a transaction, including those outside of the tensor."""
        return self.unit * self.source.size


def copy_addresses(
    m: TensorMap,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    start: int = 0,
    store: bool = False,
) -> CopyAddresses:
    """The addresses of a copy at ``coordinates`` (im2col: with ``offsets`` of W, H, D), a load to
    the address ``start`` of shared memory or a ``store`` from it.

    LayoutError where the hardware faults, and for offsets that PTX does not allow.
    """
    _check(m, coordinates, offsets, start, store)
    rows = _rows(m, coordinates, offsets or (0,) * m.rank)
    first = 0 if m.interleave else 1
    strides = (m.interleave, *m.strides) if m.interleave else m.strides
    inside = np.ones(rows[0].shape, bool) if rows else np.array(True)
    origin = np.zeros(inside.shape, np.int64)
    for at, size, stride in zip(rows, m.shape[first:], strides, strict=True):
        inside &= (at >= 0) & (at < size)
        origin += at * stride
    units, within, unit = _row(m, coordinates[0], store)
    source = np.where(np.logical_and.outer(within, inside), np.add.outer(units, origin), -1)
    width = unit * len(units)
    pitch = width if m.interleave else m.swizzle or width
    order = np.arange(inside.size).reshape(inside.shape, order="F")
    linear = np.add.outer(unit * np.arange(len(units)), start + pitch * order)
    return CopyAddresses(source, upcast(swizzle_pattern(m.swizzle), 8)(linear), unit)


def _check(
    m: TensorMap, coordinates: Sequence[int], offsets: Sequence[int], start: int, store: bool
) -> None:
    """LayoutError where the hardware reports an illegal instruction or address."""
    count = m.rank - 2 if isinstance(m.box, Im2col) and not store else 0
    if len(coordinates) != m.rank or len(offsets) != count:
        _reject(f"expected {m.rank} coordinates and {count} offsets", (*coordinates, *offsets))
    if start % ALIGNMENT:
        _reject(f"start must be a multiple of {ALIGNMENT} in shared memory", start)
    if max(m.shape) > MAX_SIZE:
        _reject("the tensor's sizes must be at most 2^31", m.shape)
    whole = CHUNK_BYTES // m.element_bytes
    if not m.interleave and coordinates[0] % whole:
        unit = f"{whole} ({CHUNK_BYTES} bytes)"
        _reject(f"coordinate 0 must be a multiple of {unit}", coordinates[0])
    if store and min(coordinates) < 0:
        _reject("the coordinates of a store must not be negative", coordinates)
    if isinstance(m.box, Im2col):
        _check_base(m, m.box, coordinates, offsets, store)


def _check_base(
    m: TensorMap, box: Im2col, coordinates: Sequence[int], offsets: Sequence[int], store: bool
) -> None:
    most = (1 << corners(m.rank)[0].width) - 1
    if not all(0 <= offset <= most for offset in offsets):
        _reject(f"offsets must be 0 … {most}", offsets)
    if store and (min(box.lower) < 0 or max(box.upper) > 0):
        _reject("the bounding box of a store must be inside the tensor", box)
    spatial = _spatial(m)
    for i, lower, upper in zip(spatial, box.lower, box.upper, strict=True):
        last = m.shape[i] - 1 + upper
        if not lower <= coordinates[i] <= last:
            bounds = f"{lower} … {last}"
            _reject(f"coordinate {i} must be in the bounding box, {bounds}", coordinates[i])


def _reject(rule: str, value: Any) -> NoReturn:
    raise LayoutError(f"tensor copy: {rule}, got {value}")


def _spatial(m: TensorMap) -> range:
    """im2col's dimensions W, H, D."""
    first = 0 if m.interleave else 1
    return range(first, first + m.rank - 2)


def _row(m: TensorMap, first: int, store: bool) -> tuple[Array, Array, int]:
    """(byte offsets in the row, whether inside, bytes of a unit) of the contiguous dimension."""
    if m.interleave:
        chunks = np.arange(0, m.interleave, CHUNK_BYTES)
        return chunks, np.ones(len(chunks), bool), CHUNK_BYTES
    count = m.box.channels if isinstance(m.box, Im2col) else m.box[0]
    elements = first + np.arange(count)
    decides = elements - elements % (CHUNK_BYTES // m.element_bytes) if store else elements
    return elements * m.element_bytes, (decides >= 0) & (decides < m.shape[0]), m.element_bytes


def _rows(m: TensorMap, coordinates: Sequence[int], offsets: Sequence[int]) -> list[Array]:
    """The coordinates of each row, an array for each dimension but the contiguous one."""
    if isinstance(m.box, Im2col):
        walk = list(_pixels(m, m.box, coordinates, offsets))
        return list(np.array(walk, np.int64).T)
    first = 0 if m.interleave else 1
    axes = []
    for i in range(first, m.rank):
        count = ceil(m.box[i] / m.element_strides[i])
        if m.interleave and i == m.rank - 2:
            count = 1
        axes.append(coordinates[i] + m.element_strides[i] * np.arange(count))
    return list(np.meshgrid(*axes, indexing="ij"))


def _pixels(
    m: TensorMap, box: Im2col, coordinates: Sequence[int], offsets: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The coordinates of each pixel: W, H, D, (slice of C,) N."""
    spatial = _spatial(m)
    last = [m.shape[i] - 1 + upper for i, upper in zip(spatial, box.upper, strict=True)]
    steps = [m.element_strides[i] for i in spatial]
    base, image = [coordinates[i] for i in spatial], coordinates[-1]
    slices = [coordinates[-2]] if m.interleave else []
    for _ in range(box.pixels):
        yield *map(add, base, offsets), *slices, image
        for i, step in enumerate(steps):
            base[i] += step
            if base[i] <= last[i]:
                break
            base[i] = box.lower[i]
        else:
            image += m.element_strides[-1]


# --- on memory ------------------------------------------------------------------------------------


def load(
    m: TensorMap,
    memory: Array,
    shared: Array,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    start: int = 0,
) -> None:
    """Copy to ``shared`` memory, both as bytes (uint8); ``memory`` begins at the map's address.

    For tf32 the copy rounds f32 to the nearest tf32; ``.ftz`` does not change subnormals.
    """
    addresses = copy_addresses(m, coordinates, offsets, start)
    source, width = _bytes(addresses.source, addresses.unit), addresses.unit
    inside = addresses.source.ravel() >= 0
    units = np.tile(np.frombuffer(FILLED[m.oob_fill], np.uint8), (inside.size, width))[:, :width]
    units[inside] = memory[source[inside]]
    if TYPES[m.dtype].rounded:
        units[inside] = _rounded(units[inside])
    shared[_bytes(addresses.shared, width)] = units


def store(
    m: TensorMap, memory: Array, shared: Array, coordinates: Sequence[int], start: int = 0
) -> None:
    """Copy from ``shared`` memory, both as bytes (uint8)."""
    addresses = copy_addresses(m, coordinates, (), start, store=True)
    inside, unit = addresses.source.ravel() >= 0, addresses.unit
    target, source = _bytes(addresses.source, unit), _bytes(addresses.shared, unit)
    memory[target[inside]] = shared[source[inside]]


def _bytes(starts: Array, unit: int) -> Array:
    """The address of each byte of each unit, (units, bytes)."""
    return starts.reshape(-1, 1) + np.arange(unit)


def _rounded(units: Array) -> Array:
    return encode("tf32", decode("f32", units.view("<u4"))).astype("<u4").view(np.uint8)
