"""Bulk copies, in native code: the instructions that issue them and wait for them.

An instruction checks its addresses and appends copies to the queue of its CTA;
``bulk_completion`` performs them later.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, lowest, lshr
from ...native.native_language import i64, native, u64
from ..check.async_checks import check_bulk_read, check_bulk_write, extent
from ..check.race_detector import ASYNC, check_grid_dependency, check_read
from ..check.vector_clocks import BULK_STORES, advance_groups, warp_actor
from ..state.lane_groups import fault
from ..state.records import (
    BAD_BULK,
    EXITED_CTA,
    GLOBAL_BASE,
    MAX_BULK_COPIES,
    MISALIGNED,
    OUT_OF_BOUNDS,
    SHARED,
    WRITES,
    BulkCopy,
    Cta,
    WarpRecord,
)
from .bulk_completion import (
    TO_GLOBAL,
    TO_SHARED,
    UNIT,
    bulk_copy,
    complete_bulk,
    pop_completed_bulk,
)
from .mbarrier_model import check_live
from .memory_access import CTA_BYTES, copy_element, find_global, find_writable, resolve
from .tensor_copies import setup_box

BARRIER_AREA = 64  # index in ``w.operands`` where the addresses of mbarriers begin
VALUE_AREA = 128  # index where values stored from registers begin


# --- issuing --------------------------------------------------------------------------------------


@native
def reserve_bulk_slot(w: WarpRecord) -> i64:
    """If the queue of the CTA is full, complete its oldest copy. Returns 1 after a fault."""
    cta = w.cta
    if cta.bulk_tail - cta.bulk_head < MAX_BULK_COPIES:
        return 0
    failed = complete_bulk(cta, bulk_copy(cta, cta.bulk_head))
    pop_completed_bulk(cta)
    return failed


@native
def new_bulk_copy(w: WarpRecord, kind: i64, lane: i64, pc: i64) -> BulkCopy:
    """Append an entry to the queue of the CTA, which must not be full."""
    cta = w.cta
    c = bulk_copy(cta, cta.bulk_tail)
    cta.bulk_tail += 1
    c.kind = kind
    c.tensor = 0
    c.reduce = 0
    c.warp = w.index
    c.lane = lane
    c.group = w.bulk_committed[lane]
    c.pc = pc
    return c


@native
def resolve_bulk(w: WarpRecord, space: i64, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes of global or shared memory; 0 after a fault."""
    if (a & (UNIT - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, a)
    if n == 0 or (n & (UNIT - 1)) != 0:
        w.worker.fault_value = n
        return fault(w, BAD_BULK, pc, lane, a)
    if space != SHARED:
        if a < GLOBAL_BASE:
            return fault(w, OUT_OF_BOUNDS, pc, lane, a)
        return (
            find_global(w, a, n, lane, pc) if space < WRITES else find_writable(w, a, n, lane, pc)
        )
    last = resolve(w, SHARED, a + n - UNIT, UNIT, lane, pc)
    first = 0 if last == 0 else resolve(w, SHARED, a, UNIT, lane, pc)
    if first != 0 and last - first != n - UNIT:  # the end is in another CTA
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    return first


@native
def rank_of(w: WarpRecord, host: i64) -> i64:
    """The rank of the CTA of the cluster whose shared memory holds a host address."""
    for rank in range(w.launch.cluster_size):
        cta = at(Cta, w.cta.first + rank * CTA_BYTES)
        if host >= cta.shared and host < cta.shared + w.launch.shared_bytes:
            return rank
    return w.cta.rank


@native
def set_destination(
    w: WarpRecord, c: BulkCopy, lane: i64, target: i64, barrier: i64, pc: i64
) -> i64:
    """Set the CTAs that the copy writes, and its offset in their shared memory: the CTA of the
    target address, or with multicast all CTAs of a mask, at the same offset. Returns 1 after a
    fault.
    """
    rank = rank_of(w, target)
    c.target = target - at(Cta, w.cta.first + rank * CTA_BYTES).shared
    c.barrier = barrier - at(Cta, w.cta.first + rank_of(w, barrier) * CTA_BYTES).shared
    c.ctas = w.operands[32 + lane]
    if c.ctas == 0:
        c.ctas = 1 << rank
        if rank_of(w, barrier) != rank:
            w.worker.fault_value = 0
            fault(w, BAD_BULK, pc, lane, w.addresses[lane])
            return 1
    if lshr(c.ctas, w.launch.cluster_size) != 0:
        w.worker.fault_value = c.ctas
        fault(w, EXITED_CTA, pc, lane, w.addresses[lane])
        return 1
    return check_bulk_write(w, c, lane) if w.launch.checked != 0 else 0


@native
def copy_in(w: WarpRecord, mask: i64, space: i64, reduction: i64, pc: i64) -> i64:
    """Bulk copies and reductions to shared memory: targets in ``w.addresses``, sources in
    ``w.addresses2``; in ``w.operands`` a row of sizes, one of CTA masks (0: no multicast) and the
    addresses of mbarriers.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        size = w.operands[lane]
        target = resolve_bulk(w, SHARED, w.addresses[lane], size, lane, pc)
        source = resolve_bulk(w, space, w.addresses2[lane], size, lane, pc)
        barrier = resolve(w, SHARED, at(u64, w.operands + BARRIER_AREA)[lane], 8, lane, pc)
        if target == 0 or source == 0 or barrier == 0 or check_live(w, barrier, lane, pc) == 0:
            return 1
        if reserve_bulk_slot(w) != 0 or (
            space != SHARED and check_grid_dependency(w, w.addresses2[lane], lane, pc) != 0
        ):
            return 1
        c = new_bulk_copy(w, TO_SHARED, lane, pc)
        c.reduce = reduction
        c.source = source
        c.bytes = size
        if set_destination(w, c, lane, target, barrier, pc) != 0:
            return cancel_newest(w)
        if space == SHARED and w.launch.checked != 0:
            if check_read(w, w.cta, source - w.cta.shared, size, c.step, ASYNC, lane) != 0:
                return cancel_newest(w)
    return 0


@native
def copy_out(w: WarpRecord, mask: i64, reduction: i64, pc: i64) -> i64:
    """Bulk copies and reductions to global memory, in the lanes' current groups; in ``w.operands``
    a row of sizes and one of byte masks: a bit for each byte of 16 that is copied.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        size = w.operands[lane]
        target = resolve_bulk(w, WRITES, w.addresses[lane], size, lane, pc)
        source = resolve_bulk(w, SHARED, w.addresses2[lane], size, lane, pc)
        if (
            target == 0
            or source == 0
            or reserve_bulk_slot(w) | check_grid_dependency(w, w.addresses[lane], lane, pc) != 0
        ):
            return 1
        c = new_bulk_copy(w, TO_GLOBAL, lane, pc)
        c.reduce = reduction
        c.source = source
        c.target = target
        c.bytes = size
        c.ctas = w.operands[32 + lane]
        if w.launch.checked != 0 and check_bulk_read(w, c, source, lane) != 0:
            return cancel_newest(w)
    return 0


@native
def store_async(w: WarpRecord, mask: i64, size: i64, count: i64, reduction: i64, pc: i64) -> i64:
    """``st.async`` and ``red.async`` of ``count`` elements of ``size`` bytes to shared memory.
    Element e of lane l is the (32·e + l)-th value in ``w.operands``. Addresses as for ``copy_in``.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = resolve(w, SHARED, w.addresses[lane], size * count, lane, pc)
        barrier = resolve(w, SHARED, at(u64, w.operands + BARRIER_AREA)[lane], 8, lane, pc)
        if (
            target == 0
            or barrier == 0
            or check_live(w, barrier, lane, pc) == 0
            or reserve_bulk_slot(w) != 0
        ):
            return 1
        c = new_bulk_copy(w, TO_SHARED, lane, pc)
        c.reduce = reduction
        c.source = address(c.data)
        c.bytes = size * count
        if set_destination(w, c, lane, target, barrier, pc) != 0:
            return cancel_newest(w)
        for e in range(count):
            from_ = address(w.operands + VALUE_AREA) + (e * 32 + lane) * size
            copy_element(c.source + e * size, from_, size)
    return 0


@native(part="tensor_copies")
def load_tensor(w: WarpRecord, mask: i64, box: i64, pc: i64) -> i64:
    """Tensor copies to shared memory: maps in ``w.addresses2``; targets and mbarriers as for
    ``copy_in``, ``box`` as for ``setup_box``.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        a = w.addresses[lane]
        barrier = resolve(w, SHARED, at(u64, w.operands + BARRIER_AREA)[lane], 8, lane, pc)
        if barrier == 0 or check_live(w, barrier, lane, pc) == 0 or reserve_bulk_slot(w) != 0:
            return 1
        c = new_bulk_copy(w, TO_SHARED, lane, pc)
        c.tensor = 1
        if setup_box(w, c, w.addresses2[lane], lane, box, a, pc) == 0:
            return cancel_newest(w)
        target = resolve_bulk(w, SHARED, a, extent(c), lane, pc)
        if target == 0 or set_destination(w, c, lane, target, barrier, pc) != 0:
            return cancel_newest(w)
    return 0


@native(part="tensor_copies")
def store_tensor(w: WarpRecord, mask: i64, box: i64, reduction: i64, pc: i64) -> i64:
    """Tensor copies from shared memory at ``w.addresses``, or tensor reductions: ``reduction`` is
    the number of the operation without a type, which the map adds.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        a = w.addresses[lane]
        if reserve_bulk_slot(w) != 0:
            return 1
        c = new_bulk_copy(w, TO_GLOBAL, lane, pc)
        c.tensor = 1
        c.reduce = reduction
        if setup_box(w, c, w.addresses2[lane], lane, box | 16, a, pc) == 0:
            return cancel_newest(w)
        source = resolve_bulk(w, SHARED, a, extent(c), lane, pc)
        if source == 0:
            return cancel_newest(w)
        c.source = w.cta.shared
        c.target = source - c.source
        if w.launch.checked != 0 and check_bulk_read(w, c, source, lane) != 0:
            return cancel_newest(w)
    return 0


@native
def cancel_newest(w: WarpRecord) -> i64:
    """Remove the newest copy, because its instruction has faulted. Returns 1."""
    w.cta.bulk_tail -= 1
    return 1


@native
def commit_bulk(w: WarpRecord, mask: i64) -> i64:
    """``cp.async.bulk.commit_group``: the copies of these lanes since their last commit."""
    for lane in range(32):
        w.bulk_committed[lane] = w.bulk_committed[lane] + ((mask >> lane) & 1)
    return 0


@native
def wait_bulk(w: WarpRecord, mask: i64, pending: i64) -> i64:
    """``cp.async.bulk.wait_group``: complete all groups of these lanes except their ``pending``
    newest. Returns 1 after a fault.
    """
    cta = w.cta
    if w.launch.checked != 0:
        advance_groups(w, mask, warp_actor(w, BULK_STORES), w.bulk_committed, pending)
    for n in range(cta.bulk_head, cta.bulk_tail):
        c = bulk_copy(cta, n)
        is_own = c.kind == TO_GLOBAL and c.warp == w.index and (mask >> c.lane & 1) != 0
        if is_own != 0 and c.group < w.bulk_committed[c.lane] - pending:
            if complete_bulk(cta, c) != 0:
                return 1
    return 0 * pop_completed_bulk(cta)
