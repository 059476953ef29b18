"""``wgmma``'s operands from shared memory, by descriptor, in native code.

A warp takes its own 16 rows of A and all of B. Scratch is as ``llvm_mma_plan`` has it: words of one
element, ``A[k][m]`` and ``B[k][n]``. Shared memory is read in the pieces that swizzles move, 16
bytes each; ``mma.MatrixDescriptor`` says where they stand, and ``gather`` is its rule once more.
"""

from __future__ import annotations

from ...mma.matrix_descriptor import MatrixDescriptor
from ...native.intrinsics import at, lowest, lshr
from ...native.native_language import Ptr, i64, native, u8, u16, u32, u64
from ..matrix.mma_sparse import CODE
from ..state.lane_groups import fault
from ..state.records import BAD_DESCRIPTOR, BAD_METADATA, BAD_WARPGROUP, OUT_OF_BOUNDS, WarpRecord

ROWS = 16  # of a warp
CHUNK = 16  # bytes
FROM_SHARED, TRANS_A, TRANS_B, NEGATE = 1, 2, 4, 8  # bits of ``how``
_MOST = (1 << 18) - CHUNK
RESERVED = (1 << 64) - 1 ^ MatrixDescriptor(_MOST, _MOST, _MOST, 32, 7).bits


@native
def check_descriptor(w: WarpRecord, mask: i64, lanes: Ptr[u64], pc: i64) -> i64:
    """A fault (1) where lanes of ``mask`` have not the same descriptor, or one with stray bits."""
    first = lowest(mask)
    bad = lanes[first] & RESERVED
    for lane in range(32):
        bad = bad | ((lanes[lane] ^ lanes[first]) & -((mask >> lane) & 1))
    if bad == 0:
        return 0
    fault(w, BAD_DESCRIPTOR, pc, first, lanes[first])
    return 1


@native
def check_operands(w: WarpRecord, mask: i64, flags: i64, pc: i64) -> i64:
    """What must hold of the warp and its descriptors; 1 after a fault."""
    if (w.index // 4 * 4 + 4) * 32 > w.launch.threads:
        fault(w, BAD_WARPGROUP, pc, lowest(mask), w.launch.threads)
        return 1
    if flags & FROM_SHARED and check_descriptor(w, mask, w.addresses, pc) != 0:
        return 1
    return check_descriptor(w, mask, w.addresses2, pc)


# --- shared memory --------------------------------------------------------------------------------


@native(inline=True)
def field_bytes(d: i64, low: i64) -> i64:
    """Bytes that a descriptor's field of 14 bits counts: the start, ``leading`` or ``stride``."""
    return ((d >> low) & 0x3FFF) << 4


@native(inline=True)
def row_bits(d: i64) -> i64:
    """Bits of an offset within a row: of 16 bytes, or as long as it is swizzled."""
    kind = lshr(d, 62)
    return 8 - kind if kind != 0 else 4


@native(inline=True)
def swizzled(d: i64, row: i64, byte: i64, stride: i64) -> i64:
    """Where the ``byte`` along the row at ``row`` stands; its next stretch is ``stride`` away."""
    row_width = row_bits(d)
    a = row + (byte & ((1 << row_width) - 1)) + (byte >> row_width) * stride
    offset = (d >> 49) & 7
    permuted = (1 << (row_width - 4)) - 1
    return a ^ ((((a >> 7) - offset) & permuted) << 4)


@native(inline=True)
def unpack_elements(chunk: i64, out: Ptr[u32], step: i64, bits: i64) -> i64:
    """The elements of 16 bytes as words, ``step`` words apart."""
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
    """Where the ``chunk``-th piece of a row of a K-major operand lies."""
    row_start = field_bytes(d, 0) + ((row & 7) << row_bits(d)) + (row >> 3) * field_bytes(d, 32)
    return swizzled(d, row_start, chunk << 4, field_bytes(d, 16))


@native(inline=True)
def chunk_mn(d: i64, first: i64, k: i64, chunk: i64) -> i64:
    """Where the ``chunk``-th piece from row ``first`` on lies for one k of an MN-major operand."""
    leading = field_bytes(d, 16)
    stride = field_bytes(d, 32)
    kind = lshr(d, 62)
    along = leading if kind != 0 else stride
    across = stride if kind != 0 else leading
    row_start = field_bytes(d, 0) + ((k & 7) << row_bits(d)) + (k >> 3) * across
    return swizzled(d, row_start, (first << 1) + (chunk << 4), along)


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
    """``rows`` rows of a K-major operand from ``first`` on, ``chunks`` of 16 bytes each."""
    chunk_words = 128 // bits * rows
    last = w.launch.shared_bytes - CHUNK
    for r in range(rows):
        for p in range(chunks):
            a = chunk_k(d, first + r, p)
            if a > last:
                fault(w, OUT_OF_BOUNDS, pc, 0, a)
                return 1
            unpack_elements(w.cta.shared + a, out + (p * chunk_words + r), rows, bits)
    return 0


@native
def gather_mn(
    w: WarpRecord, d: i64, first: i64, rows: i64, count: i64, out: Ptr[u32], pc: i64
) -> i64:
    """``rows`` rows of an MN-major operand of 16-bit elements, for ``count`` values of k."""
    last = w.launch.shared_bytes - CHUNK
    for k in range(count):
        for p in range(rows >> 3):
            a = chunk_mn(d, first, k, p)
            if a > last:
                fault(w, OUT_OF_BOUNDS, pc, 0, a)
                return 1
            unpack_elements(w.cta.shared + a, out + (k * rows + (p << 3)), 1, 16)
    return 0


@native
def gather_a(w: WarpRecord, flags: i64, bits: i64, k: i64, out: Ptr[u32], pc: i64) -> i64:
    """The warp's rows of A, ``k`` elements each; 1 after a fault."""
    first = (w.index & 3) * ROWS
    d = w.addresses[0]
    if flags & TRANS_A:
        return gather_mn(w, d, first, ROWS, k, out, pc)
    if bits == 16:
        return gather_k(w, d, 16, first, ROWS, k * 16 // 128, out, pc)
    return gather_k(w, d, bits, first, ROWS, k * bits // 128, out, pc)


@native
def gather_b(w: WarpRecord, flags: i64, bits: i64, n: i64, k: i64, out: Ptr[u32], pc: i64) -> i64:
    """All of B; 1 after a fault."""
    d = w.addresses2[0]
    if flags & TRANS_B:
        return gather_mn(w, d, 0, n, k, out, pc)
    return gather_k(w, d, bits, 0, n, k * bits // 128, out, pc)


# --- words ----------------------------------------------------------------------------------------


@native
def fill_words(words: Ptr[u32], count: i64, value: i64) -> i64:
    for i in range(count):
        words[i] = value
    return 0


@native
def mask_words(words: Ptr[u32], count: i64, and_mask: i64, xor_mask: i64) -> i64:
    """Clear the bits that are not ``and_mask``, then invert those ``xor_mask``."""
    for i in range(count):
        words[i] = words[i] & and_mask ^ xor_mask
    return 0


@native
def check_metadata(w: WarpRecord, status: i64, pc: i64) -> i64:
    """A fault (1) where a status of ``llvm_mma_sparse`` is not 0."""
    if status == 0:
        return 0
    row = (status & ((1 << CODE) - 1)) - 1
    fault(w, BAD_METADATA, pc, (row & 7) * 4, status >> CODE)
    return 1
