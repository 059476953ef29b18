"""``wgmma``'s operands in shared memory, by descriptor, in native code.

A warp loads its own 16 rows of A and all of B to scratch memory, one element per 32-bit word:
``A[k][m]`` and ``B[k][n]`` (``matrix/mma_plan.py``). Shared memory is read in chunks of 16 bytes,
the unit of swizzles. ``mma.MatrixDescriptor`` defines their addresses; ``chunk_k`` and ``chunk_mn``
implement the same rules.
"""

from __future__ import annotations

from ...mma.matrix_descriptor import MatrixDescriptor
from ...native.intrinsics import at, lowest, lshr
from ...native.native_language import Ptr, i64, native, u8, u16, u32, u64
from ..matrix.mma_sparse import CODE
from ..state.lane_groups import fault
from ..state.records import BAD_DESCRIPTOR, BAD_METADATA, BAD_WARPGROUP, OUT_OF_BOUNDS, WarpRecord

ROWS = 16  # rows of A of a warp
CHUNK = 16  # bytes
FROM_SHARED, TRANS_A, TRANS_B, NEGATE = 1, 2, 4, 8  # bits of ``flags``
_MOST = (1 << 18) - CHUNK
RESERVED = (1 << 64) - 1 ^ MatrixDescriptor(_MOST, _MOST, _MOST, 32, 7).bits


@native
def check_descriptor(w: WarpRecord, mask: i64, lanes: Ptr[u64], pc: i64) -> i64:
    """Returns 1 after a fault if the lanes of ``mask`` have different descriptors, or reserved bits
    are set.
    """
    first = lowest(mask)
    invalid = lanes[first] & RESERVED
    for lane in range(32):
        invalid = invalid | ((lanes[lane] ^ lanes[first]) & -((mask >> lane) & 1))
    if invalid == 0:
        return 0
    fault(w, BAD_DESCRIPTOR, pc, first, lanes[first])
    return 1


@native
def check_operands(w: WarpRecord, mask: i64, flags: i64, pc: i64) -> i64:
    """Check the warpgroup and the descriptors. Returns 1 after a fault."""
    if (w.index // 4 * 4 + 4) * 32 > w.launch.threads:
        fault(w, BAD_WARPGROUP, pc, lowest(mask), w.launch.threads)
        return 1
    if flags & FROM_SHARED and check_descriptor(w, mask, w.addresses, pc) != 0:
        return 1
    return check_descriptor(w, mask, w.addresses2, pc)


# --- shared memory --------------------------------------------------------------------------------


@native(inline=True)
def field_bytes(d: i64, low: i64) -> i64:
    """A 14-bit field of a descriptor, in bytes: start address, leading or stride offset."""
    return ((d >> low) & 0x3FFF) << 4


@native(inline=True)
def row_bits(d: i64) -> i64:
    """log2 of the bytes of a row: the span of the swizzle, or 16 bytes without one."""
    kind = lshr(d, 62)
    return 8 - kind if kind != 0 else 4


@native(inline=True)
def swizzled(d: i64, row: i64, byte: i64, stride: i64) -> i64:
    """The swizzled address of a byte of the row at ``row``. Each span of the swizzle starts
    ``stride`` bytes behind the previous one.
    """
    span_bits = row_bits(d)
    a = row + (byte & ((1 << span_bits) - 1)) + (byte >> span_bits) * stride
    offset = (d >> 49) & 7
    permuted = (1 << (span_bits - 4)) - 1
    return a ^ ((((a >> 7) - offset) & permuted) << 4)


@native(inline=True)
def unpack_elements(chunk: i64, out: Ptr[u32], step: i64, bits: i64) -> i64:
    """Unpack the elements of 16 bytes to words, with a stride of ``step`` words."""
    if bits == 16:
        for i in range(8):
            out[i * step] = at(u16, chunk)[i]
    elif bits == 8:
        for i in range(16):
            out[i * step] = at(u8, chunk)[i]
    else:
        for i in range(4):
            out[i * step] = at(u32, chunk)[i]
    return 0


@native(inline=True)
def chunk_k(d: i64, row: i64, chunk: i64) -> i64:
    """The address of the ``chunk``-th chunk of a row of a K-major operand."""
    row_start = field_bytes(d, 0) + ((row & 7) << row_bits(d)) + (row >> 3) * field_bytes(d, 32)
    return swizzled(d, row_start, chunk << 4, field_bytes(d, 16))


@native(inline=True)
def chunk_mn(d: i64, first: i64, k: i64, chunk: i64) -> i64:
    """The address of the ``chunk``-th chunk from row ``first`` on, for one k of an MN-major
    operand.
    """
    leading = field_bytes(d, 16)
    stride = field_bytes(d, 32)
    kind = lshr(d, 62)
    span_stride = leading if kind != 0 else stride
    group_stride = stride if kind != 0 else leading
    row_start = field_bytes(d, 0) + ((k & 7) << row_bits(d)) + (k >> 3) * group_stride
    return swizzled(d, row_start, (first << 1) + (chunk << 4), span_stride)


@native
def gather_k(
    w: WarpRecord,
    d: i64,
    bits: i64,
    first: i64,
    rows: i64,
    chunks: i64,
    out: Ptr[u32],
    pc: i64,
) -> i64:
    """Load ``rows`` rows of a K-major operand from row ``first`` on, ``chunks`` of 16 bytes each.
    Returns 1 after a fault.
    """
    chunk_words = 128 // bits * rows
    last = w.launch.shared_bytes - CHUNK
    for r in range(rows):
        for chunk in range(chunks):
            a = chunk_k(d, first + r, chunk)
            if a > last:
                fault(w, OUT_OF_BOUNDS, pc, 0, a)
                return 1
            unpack_elements(w.cta.shared + a, out + (chunk * chunk_words + r), rows, bits)
    return 0


@native
def gather_mn(
    w: WarpRecord, d: i64, first: i64, rows: i64, count: i64, out: Ptr[u32], pc: i64
) -> i64:
    """Load ``rows`` rows of an MN-major operand of 16-bit elements, for ``count`` values of k.
    Returns 1 after a fault.
    """
    last = w.launch.shared_bytes - CHUNK
    for k in range(count):
        for chunk in range(rows >> 3):
            a = chunk_mn(d, first, k, chunk)
            if a > last:
                fault(w, OUT_OF_BOUNDS, pc, 0, a)
                return 1
            unpack_elements(w.cta.shared + a, out + (k * rows + (chunk << 3)), 1, 16)
    return 0


@native
def gather_a(w: WarpRecord, flags: i64, bits: i64, k: i64, out: Ptr[u32], pc: i64) -> i64:
    """Load the warp's rows of A, ``k`` elements each. Returns 1 after a fault."""
    first = (w.index & 3) * ROWS
    d = w.addresses[0]
    if flags & TRANS_A:
        return gather_mn(w, d, first, ROWS, k, out, pc)
    if bits == 16:
        return gather_k(w, d, 16, first, ROWS, k * 16 // 128, out, pc)
    return gather_k(w, d, bits, first, ROWS, k * bits // 128, out, pc)


@native
def gather_b(w: WarpRecord, flags: i64, bits: i64, n: i64, k: i64, out: Ptr[u32], pc: i64) -> i64:
    """Load all of B. Returns 1 after a fault."""
    d = w.addresses2[0]
    if flags & TRANS_B:
        return gather_mn(w, d, 0, n, k, out, pc)
    return gather_k(w, d, bits, 0, n, k * bits // 128, out, pc)


# --- scratch memory -------------------------------------------------------------------------------


@native
def fill_words(words: Ptr[u32], count: i64, value: i64) -> i64:
    for i in range(count):
        words[i] = value
    return 0


@native
def mask_words(words: Ptr[u32], count: i64, and_mask: i64, xor_mask: i64) -> i64:
    """Replace each word by ``word & and_mask ^ xor_mask``."""
    for i in range(count):
        words[i] = words[i] & and_mask ^ xor_mask
    return 0


@native
def check_metadata(w: WarpRecord, status: i64, pc: i64) -> i64:
    """Returns 1 after a fault if the status of ``mma_sparse`` is not 0."""
    if status == 0:
        return 0
    row = (status & ((1 << CODE) - 1)) - 1
    fault(w, BAD_METADATA, pc, (row & 7) * 4, status >> CODE)
    return 1
