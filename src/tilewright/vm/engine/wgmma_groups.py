"""wgmma-groups, in native code: wgmmas in flight, and the registers and memory they use.

A wgmma is computed when it is issued. Until its group has been waited for, the kernel must not
access its registers or write the shared memory that it reads, because hardware may access both
until then. All four warps of a warpgroup must issue the same wgmmas, with the same operands in
shared memory, in the same groups.
"""

from __future__ import annotations

from ...native.intrinsics import at, lowest, lshr
from ...native.native_language import i64, native
from ..check.race_detector import WGMMA, check_read
from ..check.vector_clocks import advance, pack_step, record_use, wgmma_actor, when_checked
from ..program.program_analysis import SETS_PER_KIND
from ..state.lane_groups import fault
from ..state.records import (
    BAD_FENCE,
    DISCARDED,
    FAULT,
    IN_FLIGHT,
    JUMP,
    MAX_WGMMAS,
    WAIT,
    WARPGROUP_MISMATCH,
    WARPGROUP_WARPS,
    Cta,
    WarpRecord,
    WgmmaInFlight,
)
from .mbarrier_model import wake
from .memory_access import resolve
from .wgmma_operands import (
    CHUNK,
    FROM_SHARED,
    ROWS,
    TRANS_A,
    TRANS_B,
    chunk_k,
    chunk_mn,
    field_bytes,
    row_bits,
)

SWIZZLE_LINE = 128  # bytes within which a swizzle permutes chunks
SWIZZLE_ATOM = 8 * 128 + 128  # bytes of eight rows of the widest swizzle, and one line more
ACCUMULATORS = (1 << SETS_PER_KIND) - 1  # the sets of registers that are accumulators
REGISTERS = -1  # the address of a fault that concerns registers
# How another warp of the warpgroup differs:
DIFFERENT_WGMMA, DIFFERENT_OPERANDS, MISSING_WGMMA, WARP_EXITED = range(1, 5)
UNSWIZZLED_ROW_BITS = 4  # ``row_bits`` without a swizzle


@native(inline=True)
def in_flight_wgmma(w: WarpRecord, n: i64) -> WgmmaInFlight:
    """The warp's ``n``-th wgmma since the warp started."""
    return w.wgmmas[n % MAX_WGMMAS]


@native
def issue(
    w: WarpRecord, mask: i64, registers: i64, accumulates: i64, flags: i64, shape: i64, pc: i64
) -> i64:
    """Issue a wgmma. Its descriptors are in ``w.addresses`` and ``w.addresses2``; ``shape`` is
    bits << 48 | n << 32 | k << 16 | stored k; ``registers`` are the sets of registers that it uses.
    Returns 1 after a fault.
    """
    if mask == 0:
        return 0
    if accumulates == 0 and w.launch.checked != 0 and check_discarded(w, mask, registers, pc) != 0:
        return 1
    if w.wgmma_tail - w.wgmma_head == MAX_WGMMAS:
        retire_groups(w, w.wgmma_head + 1)
    p = in_flight_wgmma(w, w.wgmma_tail)
    p.group = w.wgmma_group
    p.registers = registers
    p.pc = pc
    p.flags = flags
    p.a = w.addresses[0]
    p.b = w.addresses2[0]
    p.bits = lshr(shape, 48)
    p.n = lshr(shape, 32) & 0xFFFF
    p.k = lshr(shape, 16) & 0xFFFF
    p.stored_k = shape & 0xFFFF
    w.wgmma_tail += 1
    if check_same_wgmma(w, mask, pc) != 0:
        return 1
    w.in_flight = w.in_flight | registers
    w.cta.wgmmas += 1
    return check_wgmma(w, p, mask) if w.launch.checked != 0 else 0


@native
def fault_mismatch(w: WarpRecord, mask: i64, what: i64, other: i64, pc: i64) -> i64:
    """Report that the warps of a warpgroup do not issue the same wgmmas. Returns 1."""
    w.worker.fault_value = what
    fault(w, WARPGROUP_MISMATCH, pc, lowest(mask), other)
    return 1


@native
def check_same_wgmma(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """Returns 1 after a fault if the wgmma of another warp of the warpgroup differs from this
    warp's newest.
    """
    n = w.wgmma_tail - 1
    p = in_flight_wgmma(w, n)
    first = w.index & -WARPGROUP_WARPS
    for i in range(first, first + WARPGROUP_WARPS):
        other = at(WarpRecord, w.cta.frames + i * w.launch.frame_bytes)
        if other.wgmma_tail > n and other.wgmma_tail - n <= MAX_WGMMAS:
            q = in_flight_wgmma(other, n)
            same = q.pc == p.pc and q.group == p.group
            if same == 0:
                return fault_mismatch(w, mask, DIFFERENT_WGMMA, i, pc)
            shared = (p.flags & FROM_SHARED) != 0 and q.a != p.a
            if shared != 0 or q.b != p.b:
                return fault_mismatch(w, mask, DIFFERENT_OPERANDS, i, pc)
    return 0


@native
def retire_groups(w: WarpRecord, end: i64) -> i64:
    """Retire the wgmmas before the ``end``-th."""
    w.cta.wgmmas -= end - w.wgmma_head
    w.wgmma_head = end
    w.in_flight = -w.launch.checked
    for n in range(end, w.wgmma_tail):
        w.in_flight = w.in_flight | in_flight_wgmma(w, n).registers
    return 0


@native
def fence(w: WarpRecord, mask: i64) -> i64:
    """``wgmma.fence``: wgmmas may use registers that other instructions have used. The warps of a
    warpgroup leave it together, which kernels rely on; with a seed each warp on its own. Returns
    JUMP or WAIT.
    """
    if mask == 0:
        return JUMP
    w.unfenced = 0
    if w.launch.seed != 0:
        return JUMP
    if w.fencing == 0:
        w.fencing = 1
        w.fences += 1
        wake(w.cta)
    first = w.index & -WARPGROUP_WARPS
    for i in range(first, first + WARPGROUP_WARPS):
        other = at(WarpRecord, w.cta.frames + i * w.launch.frame_bytes)
        if i < w.launch.warps and other.live != 0 and other.fences < w.fences:
            w.expired = w.expired & ~mask
            w.awaited = 0
            return WAIT
    w.fencing = 0
    return JUMP


@native
def commit(w: WarpRecord, mask: i64) -> i64:
    """``wgmma.commit_group``: the wgmmas since the last commit become a group. Wakes the warps of
    the warpgroup that wait for it.
    """
    if mask != 0:
        w.wgmma_group += 1
        wake(w.cta)
    return 0


@native
def wait_groups(w: WarpRecord, mask: i64, pending: i64, pc: i64) -> i64:
    """``wgmma.wait_group``: wait until at most the ``pending`` newest groups are in flight. Returns
    JUMP; WAIT while another warp of the warpgroup has not committed the same groups; FAULT if a
    warp has exited before that, or has fewer wgmmas in them.
    """
    first = w.index & -WARPGROUP_WARPS
    for i in range(first, first + WARPGROUP_WARPS if mask != 0 else first):
        other = at(WarpRecord, w.cta.frames + i * w.launch.frame_bytes)
        if i < w.launch.warps and other.wgmma_group < w.wgmma_group - pending:
            if other.live == 0:
                return FAULT * fault_mismatch(w, mask, WARP_EXITED, i, pc)
            w.expired = w.expired & ~mask
            w.awaited = 0
            return WAIT
    end = w.wgmma_head
    while end < w.wgmma_tail and in_flight_wgmma(w, end).group < w.wgmma_group - pending:
        end += 1
    for i in range(first, first + WARPGROUP_WARPS if mask != 0 else first):
        other = at(WarpRecord, w.cta.frames + i * w.launch.frame_bytes)
        if i < w.launch.warps and other.wgmma_tail < end:
            return FAULT * fault_mismatch(w, mask, MISSING_WGMMA, i, pc)
    if mask != 0 and end > w.wgmma_head:
        retire_groups(w, end)
    if mask != 0 and w.wgmma_done < w.wgmma_group - pending:
        w.wgmma_done = w.wgmma_group - pending
    if mask != 0 and w.launch.checked != 0 and w.wgmma_group > pending:
        advance(w, wgmma_actor(w), w.wgmma_group - pending)
    return JUMP


@native
def check_registers(w: WarpRecord, mask: i64, registers: i64, pc: i64) -> i64:
    """Returns 1 after a fault if an instruction uses registers of a wgmma in flight."""
    if mask == 0:
        return 0
    for n in range(w.wgmma_head, w.wgmma_tail):
        if (in_flight_wgmma(w, n).registers & registers) != 0:
            w.worker.fault_value = in_flight_wgmma(w, n).pc
            fault(w, IN_FLIGHT, pc, lowest(mask), REGISTERS)
            return 1
    w.unfenced = w.unfenced | registers
    return 0


# --- shared memory --------------------------------------------------------------------------------


@native(inline=True)
def operand_bytes(d: i64, mn_major: i64, bits: i64, rows: i64, k: i64) -> i64:
    """An upper bound of the size of an operand in bytes."""
    lines = k if mn_major != 0 else rows
    width = rows << 1 if mn_major != 0 else k * bits >> 3
    swap = mn_major != 0 and row_bits(d) == UNSWIZZLED_ROW_BITS
    leading = field_bytes(d, 32 if swap else 16)
    stride = field_bytes(d, 16 if swap else 32)
    return ((lines - 1) >> 3) * stride + (width >> row_bits(d)) * leading + SWIZZLE_ATOM


@native
def operand_overlaps(
    d: i64, mn_major: i64, bits: i64, first: i64, rows: i64, k: i64, low: i64, high: i64
) -> i64:
    """Whether an operand overlaps bytes ``low`` to ``high`` of shared memory."""
    start = field_bytes(d, 0)
    if high <= start - SWIZZLE_LINE or low >= start + operand_bytes(
        d, mn_major, bits, first + rows, k
    ):
        return 0
    if mn_major != 0:
        for i in range(k):
            for p in range(rows >> 3):
                a = chunk_mn(d, first, i, p)
                if a < high and a + CHUNK > low:
                    return 1
        return 0
    for r in range(rows):
        for p in range(k * bits // 128):
            a = chunk_k(d, first + r, p)
            if a < high and a + CHUNK > low:
                return 1
    return 0


@native
def waited_groups(cta: Cta, index: i64) -> i64:
    """The number of wgmma-groups that some warp of the warpgroup has waited for."""
    most = 0
    first = index & -WARPGROUP_WARPS
    for i in range(first, first + WARPGROUP_WARPS):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        if i < cta.launch.warps and w.wgmma_done > most:
            most = w.wgmma_done
    return most


@native(deferred=True)
def wgmma_reader(cta: Cta, low: i64, high: i64) -> i64:
    """1 + the operation of a wgmma in flight that reads bytes ``low`` to ``high``; 0: none."""
    if cta.wgmmas == 0:
        return 0
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        waited = waited_groups(cta, i) if w.wgmma_tail > w.wgmma_head else 0
        for n in range(w.wgmma_head, w.wgmma_tail):
            p = in_flight_wgmma(w, n)
            if p.group < waited:
                continue
            if operand_overlaps(p.b, p.flags & TRANS_B, p.bits, 0, p.n, p.k, low, high) != 0:
                return p.pc + 1
            first = (w.index & 3) * ROWS
            if (p.flags & FROM_SHARED) != 0 and operand_overlaps(
                p.a, p.flags & TRANS_A, p.bits, first, ROWS, p.stored_k, low, high
            ) != 0:
                return p.pc + 1
    return 0


@native(deferred=True)
def check_overwrite(w: WarpRecord, mask: i64, space: i64, size: i64, pc: i64) -> i64:
    """Returns 1 after a fault if lanes are to write ``size`` bytes at ``w.addresses`` that a wgmma
    in flight in their CTA reads.
    """
    if w.cta.wgmmas == 0:
        return 0
    low = w.launch.shared_bytes
    high = 0
    for exact in range(2):
        m = mask
        while m != 0:
            lane = lowest(m)
            m = m & (m - 1)
            host = resolve(w, space, w.addresses[lane], size, lane, pc)
            if host == 0:
                return 1
            offset = host - w.cta.shared
            if offset < 0 or offset >= w.launch.shared_bytes:
                continue
            low = offset if offset < low else low
            high = offset + size if offset + size > high else high
            reader = wgmma_reader(w.cta, offset, offset + size) if exact != 0 else 0
            if reader != 0:
                w.worker.fault_value = reader - 1
                fault(w, IN_FLIGHT, pc, lane, offset)
                return 1
        if low >= high or wgmma_reader(w.cta, low, high) == 0:
            return 0
    return 0


# --- checked launches -----------------------------------------------------------------------------


@when_checked
def check_operand_read(
    w: WarpRecord, step: i64, d: i64, mn_major: i64, bits: i64, first: i64, rows: i64, k: i64
) -> i64:
    """A wgmma reads all chunks of an operand. Returns 1 after a race."""
    outer = k if mn_major != 0 else rows
    inner = rows >> 3 if mn_major != 0 else k * bits // 128
    for i in range(outer):
        for p in range(inner):
            a = chunk_mn(d, first, i, p) if mn_major != 0 else chunk_k(d, first + i, p)
            if check_read(w, w.cta, a, CHUNK, step, WGMMA, 0) != 0:
                return 1
    return 0


@when_checked
def check_discarded(w: WarpRecord, mask: i64, registers: i64, pc: i64) -> i64:
    """Returns 1 after a fault if a wgmma that does not accumulate overwrites the accumulators of a
    wgmma in flight, which nobody can have read yet.
    """
    for n in range(w.wgmma_head, w.wgmma_tail):
        if (in_flight_wgmma(w, n).registers & registers & ACCUMULATORS) != 0:
            w.worker.fault_value = in_flight_wgmma(w, n).pc
            fault(w, DISCARDED, pc, lowest(mask), 0)
            return 1
    return 0


@when_checked
def check_wgmma(w: WarpRecord, p: WgmmaInFlight, mask: i64) -> i64:
    """Check that a wgmma's operands are ordered before it and its registers are fenced. Returns 1
    after a fault.
    """
    if (w.unfenced & p.registers) != 0:
        w.worker.fault_value = 0
        fault(w, BAD_FENCE, p.pc, lowest(mask), 0)
        return 1
    step = pack_step(wgmma_actor(w), p.group + 1, p.pc)
    record_use(w.cta, step)
    if check_operand_read(w, step, p.b, p.flags & TRANS_B, p.bits, 0, p.n, p.k) != 0:
        return 1
    if (p.flags & FROM_SHARED) == 0:
        return 0
    first = (w.index & 3) * ROWS
    return check_operand_read(w, step, p.a, p.flags & TRANS_A, p.bits, first, ROWS, p.stored_k)
