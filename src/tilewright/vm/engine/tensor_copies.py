"""Tensor copies, in native code: the boxes of a tensor map, row by row.

``mma.tensor_maps.tma_copy`` defines what a copy does; this file implements the same rules. A row is
contiguous in global memory: a row of the innermost dimension, or with interleaved channels a slice
of 16 or 32 bytes. In shared memory the rows follow one another, with a swizzle at a pitch of the
swizzle's span; then the swizzle permutes their 16-byte chunks.
"""

from __future__ import annotations

import numpy as np

from ...mma.tensor_maps import tensor_map_fields as fields
from ...mma.tensor_maps.tma_copy import FILLED, MAX_SIZE
from ...native.intrinsics import at, copy, lowest, lshr
from ...native.native_language import Ptr, i64, native, u8, u32, u64
from ...number_conversion import decode, encode
from ..check.race_detector import check_grid_dependency
from ..state.lane_groups import fault
from ..state.records import (
    BAD_MAP,
    GENERIC,
    GLOBAL_BASE,
    MISALIGNED,
    READ_ONLY,
    WRITES,
    BulkCopy,
    WarpRecord,
)
from .async_reductions import reduce, reduce_bytes
from .memory_access import find_global, resolve

ADDRESS, IM2COL, RANK = fields.ADDRESS.low, fields.IM2COL.low, fields.RANK.low
TYPE, INTERLEAVE, SWIZZLE = fields.TYPE.low, fields.INTERLEAVE.low, fields.SWIZZLE.low
FILL, ROUNDED, PIXELS = fields.FILL.low, fields.ROUNDED.low, fields.PIXELS.low
STRIDE, STRIDE_TOP, SIZE = fields.STRIDE.low, fields.STRIDE_TOP.low, fields.SIZE.low
STEP, EXTENT = fields.STEP.low, fields.EXTENT.low
LOWER, UPPER = fields.corners(3)[0].low, fields.corners(3)[1].low
CODES = 10  # the largest code of an element type
LOGS = 0b01_11_10_10_01_11_11_10_10_01_00  # log2 of the bytes of each type, 2 bits each
MAP_BYTES = 64  # bytes of a map that the hardware reads
CHUNK = 16  # bytes that a swizzle moves together
BOX_ALIGN = 128  # alignment of a box in shared memory, in bytes
COORDINATES, OFFSETS = 4, 9  # rows of ``w.operands``
# errors of a map or its coordinates
NO_MAP, WRONG_RANK, WRONG_MODE, TOO_LONG, MISALIGNED_START, NEGATIVE, OUTSIDE, NO_REDUCTION = range(
    1, 9
)
NAN_LOW, NAN_HIGH = FILLED["nan"]  # bytes of the fill value for elements out of bounds
INFINITY, TF32_SHIFT = 0x7F800000, 13  # of f32; mantissa bits that tf32 lacks
NAN = int(encode("tf32", decode("f32", np.array(INFINITY + 1, np.uint32))))


@native(inline=True)
def bits_at(m: Ptr[u32], low: i64, width: i64) -> i64:
    """A field of a map. No field but the address crosses a word."""
    return lshr(m[low >> 5], low & 31) & ((1 << width) - 1)


@native(inline=True)
def signed_at(m: Ptr[u32], low: i64, width: i64) -> i64:
    return bits_at(m, low, width) << (64 - width) >> (64 - width)


@native
def decode_map(c: BulkCopy, map_host: i64) -> i64:
    """Decode a map into a copy. Returns the error of an invalid map, or 0."""
    m = at(u32, map_host)
    rank = bits_at(m, RANK, 3) + 1
    code = bits_at(m, TYPE, 4)
    im2col = bits_at(m, IM2COL, 1)
    if rank > 5 or code > CODES or bits_at(m, INTERLEAVE, 2) > 2 or rank < 1 + 2 * im2col:
        return NO_MAP
    c.dimensions = rank
    c.code = code
    c.im2col = im2col
    c.element = 1 << (lshr(LOGS, 2 * code) & 3)
    c.interleave = bits_at(m, INTERLEAVE, 2) * CHUNK
    c.swizzle = CHUNK << bits_at(m, SWIZZLE, 2) & -2 * CHUNK
    c.fill = bits_at(m, FILL, 1)
    c.base = at(u64, map_host)[0]
    c.strides[0] = c.interleave if c.interleave != 0 else c.element
    for d in range(rank):
        c.extents[d] = bits_at(m, SIZE + 32 * d, 32) + 1
        if c.extents[d] > MAX_SIZE:
            return TOO_LONG
        c.element_strides[d] = bits_at(m, STEP + 3 * d, 3) + 1
        c.box[d] = bits_at(m, EXTENT + 8 * d, 8) + 1
        if d > 0:
            low = bits_at(m, STRIDE + 32 * (d - 1), 32) << 4
            c.strides[d] = low | bits_at(m, STRIDE_TOP + 4 * (d - 1), 4) << 36
    if im2col != 0:
        width = 16 if rank == 3 else 8 if rank == 4 else 5
        for i in range(rank - 2):
            c.lower[i] = signed_at(m, LOWER + width * i, width)
            c.upper[i] = signed_at(m, UPPER + width * i, width)
        c.pixels = bits_at(m, PIXELS, 10) + 1
    c.width = c.interleave if c.interleave != 0 else c.box[0] * c.element
    c.pitch = c.width
    if c.interleave == 0 and c.swizzle != 0:
        c.pitch = c.swizzle
    c.rounded = bits_at(m, ROUNDED, 1)
    return 0


@native
def replace_field(w: WarpRecord, mask: i64, space: i64, low: i64, width: i64, pc: i64) -> i64:
    """``tensormap.replace``: set the ``width`` bits from bit ``low`` of the maps at ``w.addresses``
    to the low bits of the 64-bit values in ``w.operands``. Returns 1 after a fault.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        map_host = resolve(w, space + WRITES, w.addresses[lane], MAP_BYTES, lane, pc)
        if map_host == 0:
            return 1
        value = at(u64, w.operands)[lane]
        if width == 64:
            at(u64, map_host)[0] = value
        else:
            word = at(u32, map_host) + (low >> 5)
            field_mask = ((1 << width) - 1) << (low & 31)
            word[0] = word[0] & ~field_mask | value << (low & 31) & field_mask
    return 0


# --- rows -----------------------------------------------------------------------------------------


@native(inline=True)
def first_row_dim(c: BulkCopy) -> i64:
    """The innermost dimension along which rows are counted."""
    return 0 if c.interleave != 0 else 1


@native
def first_row(c: BulkCopy) -> i64:
    c.row = 0
    for d in range(5):
        c.position[d] = c.coordinates[d]
    return 0


@native
def next_row(c: BulkCopy) -> i64:
    """Advance to the next row. Returns 0 after the last row."""
    c.row += 1
    first = first_row_dim(c)
    rank = c.dimensions
    if c.im2col != 0:
        for i in range(rank - 2):
            d = first + i
            c.position[d] = c.position[d] + c.element_strides[d]
            if c.position[d] <= c.extents[d] - 1 + c.upper[i]:
                return c.row < c.pixels
            c.position[d] = c.lower[i]
        c.position[rank - 1] = c.position[rank - 1] + c.element_strides[rank - 1]
        return c.row < c.pixels
    for d in range(first, rank):
        if c.interleave == 0 or d != rank - 2:
            c.position[d] = c.position[d] + c.element_strides[d]
            if c.position[d] - c.coordinates[d] < c.box[d]:
                return 1
            c.position[d] = c.coordinates[d]
    return 0


@native
def row_offset(c: BulkCopy) -> i64:
    """The offset of the row in bytes from the tensor's start, without its coordinate in dimension
    0; −1 where the row is out of bounds.
    """
    first = first_row_dim(c)
    total = 0
    for d in range(first, c.dimensions):
        coordinate = c.position[d]
        if c.im2col != 0 and d < first + c.dimensions - 2:
            coordinate = coordinate + c.offsets[d - first]
        if coordinate < 0 or coordinate >= c.extents[d]:
            return -1
        total = total + coordinate * c.strides[d]
    return total


@native
def clip_row(c: BulkCopy, out: i64) -> i64:
    """Set the bytes of a row that are in bounds in dimension 0. For a copy to global memory a
    16-byte chunk that is partly in bounds counts as in bounds.
    """
    c.begin = 0
    c.end = c.width
    if c.interleave == 0:
        start = c.coordinates[0] * c.element
        size = c.extents[0] * c.element
        if out != 0:
            size = (size + CHUNK - 1) & -CHUNK
        if start < 0:
            c.begin = -start
        if size - start < c.end:
            c.end = size - start
        if c.end < c.begin:
            c.end = c.begin
    return 0


@native
def check_box_bounds(w: WarpRecord, c: BulkCopy, out: i64, lane: i64, pc: i64) -> i64:
    """Whether all bytes of global memory that the copy accesses are allocated, and writable if it
    goes ``out``; 0 after a fault. Sets the copy's size.
    """
    start = c.base
    if c.interleave == 0:
        start = start + c.coordinates[0] * c.element
    if (c.base & (CHUNK - 1)) != 0 or c.base < GLOBAL_BASE:
        return fault(w, BAD_MAP, pc, lane, c.base)
    first_row(c)
    c.bytes = 0
    has_row = 1
    while has_row != 0:
        c.bytes += c.width
        offset = row_offset(c)
        if offset >= 0 and c.end > c.begin:
            a = start + offset + c.begin
            if a < w.worker.low or a > w.worker.high - (c.end - c.begin):
                if find_global(w, a, c.end - c.begin, lane, pc) == 0:
                    return 0
            if out != 0 and w.worker.read_only != 0:
                return fault(w, READ_ONLY, pc, lane, a)
        has_row = next_row(c)
    return 1


@native(inline=True)
def swizzled_address(c: BulkCopy, a: i64) -> i64:
    """The swizzled address of a chunk in shared memory."""
    return a ^ (((a >> 7) & (lshr(c.swizzle, 4) - 1)) << 4)


@native
def move_row(c: BulkCopy, row: i64, shared: i64, start: i64, out: i64) -> i64:
    """Copy the row at host address ``row`` (0: out of bounds) to or from offset ``start`` of the
    shared memory at ``shared``.
    """
    begin = c.begin if row != 0 else c.end
    step = CHUNK if c.swizzle != 0 else c.width
    p = 0
    while p < c.width:
        size = step if step < c.width - p else c.width - p
        host = shared + (swizzled_address(c, start + p) if c.swizzle != 0 else start + p)
        low = begin - p if begin > p else 0
        high = c.end - p if c.end - p < size else size
        if low > high or row == 0:
            low = size
            high = size
        if out != 0:
            if high > low and c.reduce != 0:
                reduce_bytes(c.reduce, row + p + low, host + low, high - low)
            elif high > low:
                copy(at(u8, row + p + low), at(u8, host + low), high - low)
        else:
            fill_bytes(c, host, low)
            if high > low:
                copy(at(u8, host + low), at(u8, row + p + low), high - low)
                round_words(c, host + low, high - low)
            fill_bytes(c, host + high, size - high)
        p += step
    return 0


@native
def fill_bytes(c: BulkCopy, start: i64, size: i64) -> i64:
    """The fill value for elements out of bounds: zeros, or NaNs of 16 bits."""
    for i in range(size):
        at(u8, start)[i] = (NAN_HIGH if (i & 1) != 0 else NAN_LOW) * c.fill
    return 0


@native
def round_words(c: BulkCopy, start: i64, size: i64) -> i64:
    """Round f32 to the nearest tf32 if the map says so."""
    words = at(u32, start)
    for i in range(size >> 2 if c.rounded != 0 else 0):
        x = words[i]
        if (x & INFINITY) != INFINITY:
            x = (
                (x + (1 << (TF32_SHIFT - 1)) - 1 + (x >> TF32_SHIFT & 1))
                >> TF32_SHIFT
                << TF32_SHIFT
            )
        elif (x & (INFINITY ^ 0x7FFFFFFF)) != 0:
            x = NAN
        words[i] = x
    return 0


@native
def outside_bounding_box(c: BulkCopy, out: i64) -> i64:
    """Whether an im2col copy starts outside of its bounding box, or stores with a bounding box that
    exceeds the tensor.
    """
    for i in range(c.dimensions - 2):
        d = first_row_dim(c) + i
        if c.coordinates[d] < c.lower[i] or c.coordinates[d] > c.extents[d] - 1 + c.upper[i]:
            return 1
        if out != 0 and (c.lower[i] < 0 or c.upper[i] > 0):
            return 1
    return 0


@native(deferred=True)
def move_box(c: BulkCopy, hosts: i64, shared: i64, shared_offset: i64, out: i64) -> i64:
    """Copy all rows. ``hosts`` + device address = host address."""
    start = hosts + c.base
    if c.interleave == 0:
        start = start + c.coordinates[0] * c.element
    first_row(c)
    has_row = 1
    while has_row != 0:
        offset = row_offset(c)
        host = start + offset if offset >= 0 else 0
        move_row(c, host, shared, shared_offset + c.row * c.pitch, out)
        has_row = next_row(c)
    return 0


# --- issuing --------------------------------------------------------------------------------------


@native
def fault_map(w: WarpRecord, error: i64, pc: i64, lane: i64, address_: i64) -> i64:
    w.worker.fault_value = error
    return fault(w, BAD_MAP, pc, lane, address_)


@native
def setup_box(
    w: WarpRecord, c: BulkCopy, map_: i64, lane: i64, box: i64, shared: i64, pc: i64
) -> i64:
    """Set up a copy's box: its map is at a generic address, coordinates and im2col offsets are in
    ``w.operands``. ``box``: the number of dimensions, + 8 for im2col, + 16 for a copy to global
    memory. Returns 0 after a fault.
    """
    map_host = resolve(w, GENERIC, map_, MAP_BYTES, lane, pc)
    if map_host == 0 or check_grid_dependency(w, map_, lane, pc) != 0:
        return 0
    error = decode_map(c, map_host)
    if error == 0 and c.dimensions != (box & 7):
        error = WRONG_RANK
    if error == 0 and c.im2col != (box >> 3 & 1):
        error = WRONG_MODE
    out = box >> 4
    for d in range(box & 7):
        c.coordinates[d] = w.operands[32 * (COORDINATES + d) + lane] << 32 >> 32
        if error == 0 and out != 0 and c.coordinates[d] < 0:
            error = NEGATIVE
    for i in range(3):
        c.offsets[i] = w.operands[32 * (OFFSETS + i) + lane]
    if error == 0 and c.interleave == 0 and (c.coordinates[0] * c.element & (CHUNK - 1)) != 0:
        error = MISALIGNED_START
    if error == 0 and c.im2col != 0 and outside_bounding_box(c, out) != 0:
        error = OUTSIDE
    if c.reduce != 0:
        c.reduce = c.reduce | c.code
        if error == 0 and reduce(c.reduce, 0, 0, 0) != 0:
            error = NO_REDUCTION
    if error != 0:
        return fault_map(w, error, pc, lane, map_)
    if (shared & (BOX_ALIGN - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, shared)
    clip_row(c, out)
    return check_box_bounds(w, c, out, lane, pc)
