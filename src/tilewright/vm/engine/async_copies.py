"""``cp.async``, in native code: copies that complete at some time before their wait returns.

A copy is checked when it is issued and performed when it completes. With seed 0 it completes as
late as possible: in its wait, or when warps have polled for long
(``scheduler.complete_old_copies``). So a kernel that does not wait reads the old contents. With
another seed a copy may complete at any asynchronous instruction of its warp, or at any turn of its
CTA. ``cp.async.mbarrier.arrive`` is an entry in the same queue; it completes after the copies that
its lane issued before it.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, lowest, lshr, umod
from ...native.native_language import Ptr, i64, native, u8, u32, u64
from ..check.race_detector import check_grid_dependency, check_write
from ..check.vector_clocks import (
    ASYNC_COPIES,
    advance_groups,
    pack_step,
    record_completion,
    warp_actor,
)
from ..state.lane_groups import draw, fault
from ..state.records import (
    FULL_MASK,
    GLOBAL_BASE,
    IN_FLIGHT,
    MAX_ASYNC_COPIES,
    MISALIGNED,
    OUT_OF_BOUNDS,
    SHARED,
    AsyncCopy,
    Cta,
    WarpRecord,
)
from .mbarrier_model import check_use, resolve_barrier, update_phase
from .memory_access import copy_element, find_global, owner, resolve
from .wgmma_groups import wgmma_reader

COPY_BYTES = AsyncCopy.size


@native(inline=True)
def async_copy(w: WarpRecord, n: i64) -> AsyncCopy:
    """The warp's ``n``-th copy since the warp started."""
    return at(AsyncCopy, address(w.queue) + n % MAX_ASYNC_COPIES * COPY_BYTES)


@native
def perform_arrivals(w: WarpRecord, c: AsyncCopy, mask: i64) -> i64:
    """These lanes arrive at their mbarriers. Returns 1 after a fault."""
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        barrier = c.source[lane]
        error = update_phase(owner(w, barrier), barrier, 1, 0, 0)
        if error != 0:
            w.worker.fault_value = at(u64, barrier)[0]
            fault(w, error, c.pc, lane, barrier - w.cta.shared)
            return 1
    return 0


@native
def perform_copy(w: WarpRecord, c: AsyncCopy, mask: i64) -> i64:
    """Perform a queue entry for these lanes. Returns 1 after a fault."""
    m = c.mask & mask
    c.mask = c.mask & ~mask
    if c.bytes == 0:
        return perform_arrivals(w, c, m)
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = c.target[lane] + w.cta.shared
        reader = wgmma_reader(w.cta, c.target[lane], c.target[lane] + c.bytes)
        if reader != 0:
            w.worker.fault_value = reader - 1
            fault(w, IN_FLIGHT, c.pc, lane, c.target[lane])
            return 1
        source = c.source[lane]
        n = c.valid[lane]
        if n == c.bytes:
            copy_element(target, source, n)
        else:
            for i in range(n):  # if n is 0, the source may be an invalid address
                at(u8, target)[i] = at(u8, source)[i]
            for i in range(c.bytes - n):
                at(u8, target)[n + i] = 0
    return 0


@native
def complete_copy(w: WarpRecord, n: i64, mask: i64) -> i64:
    """Complete the ``n``-th copy for these lanes; before an arrival, first their earlier copies.
    Returns 1 after a fault.
    """
    c = async_copy(w, n)
    if c.bytes == 0:
        for earlier in range(w.queue_head, n):
            if perform_copy(w, async_copy(w, earlier), c.mask & mask) != 0:
                return 1
    return perform_copy(w, c, mask)


@native
def complete_random_copy(w: WarpRecord) -> i64:
    """With a seed, complete a random copy now and then. Returns 1 after a fault."""
    in_flight = w.queue_tail - w.queue_head
    if w.launch.seed != 0 and in_flight > 0:
        r = draw(w.cta)
        if (r & 3) == 0:
            return complete_copy(w, w.queue_head + lshr(r, 8) % in_flight, FULL_MASK)
    return 0


@native(deferred=True)
def complete_random_warp(cta: Cta) -> i64:
    """The same for a random warp of a CTA."""
    n = umod(draw(cta), cta.launch.warps)
    return complete_random_copy(at(WarpRecord, cta.frames + n * cta.launch.frame_bytes))


@native(deferred=True)
def complete_arrivals(cta: Cta) -> i64:
    """No warp can run: complete the next arrival of each warp. Returns 1 if there was one."""
    any_arrived = 0
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        n = w.queue_head
        while n < w.queue_tail:
            c = async_copy(w, n)
            if c.bytes == 0 and c.mask != 0:
                complete_copy(w, n, FULL_MASK)
                any_arrived = 1
                break
            n += 1
    return any_arrived


@native
def complete_queued(w: WarpRecord, end: i64) -> i64:
    """Complete the warp's copies and arrivals before the ``end``-th. Returns 1 after a fault."""
    for n in range(w.queue_head, end):
        if complete_copy(w, n, FULL_MASK) != 0:
            return 1
    return pop_completed(w)


@native
def pop_completed(w: WarpRecord) -> i64:
    """Remove entries from the queue's head that are complete for all lanes."""
    while w.queue_head < w.queue_tail:
        if async_copy(w, w.queue_head).mask != 0:
            return 0
        w.queue_head += 1
    return 0


@native(deferred=True)
def complete_old_queued(cta: Cta) -> i64:
    """Complete entries that were already in flight at the last call. Returns 1 after a fault."""
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        if complete_queued(w, w.queue_old) != 0:
            return 1
        w.queue_old = w.queue_tail
    return 0


@native(deferred=True)
def complete_all_queued(cta: Cta) -> i64:
    """No warp can run: complete all copies of the CTA's warps. Returns 1 if there were any."""
    any_completed = 0
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        if w.queue_head < w.queue_tail:
            complete_queued(w, w.queue_tail)
            any_completed = 1
    return any_completed


@native(inline=True)
def resolve_source(w: WarpRecord, a: i64, n: i64, size: i64, lane: i64, pc: i64) -> i64:
    """The host address of the ``n`` ≤ ``size`` bytes of global memory to read; 0 after a fault."""
    if (a & (size - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, a)
    if a < GLOBAL_BASE:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    if a >= w.worker.low and a <= w.worker.high - n:
        return w.launch.host + a
    return find_global(w, a, n, lane, pc)


@native
def new_async_copy(w: WarpRecord, size: i64, pc: i64) -> AsyncCopy:
    """An empty entry behind the queue's tail, not in the queue yet. If the queue is full, complete
    the oldest copy.
    """
    if w.queue_tail - w.queue_head == MAX_ASYNC_COPIES:
        complete_copy(w, w.queue_head, FULL_MASK)
        w.queue_head += 1
    c = async_copy(w, w.queue_tail)
    c.mask = 0
    c.bytes = size
    c.pc = pc
    return c


@native
def copy_async(w: WarpRecord, mask: i64, size: i64, valid: Ptr[u32], pc: i64) -> i64:
    """``cp.async``: shared targets in ``w.addresses``, global sources in ``w.addresses2``."""
    c = new_async_copy(w, size, pc)
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = resolve(w, SHARED, w.addresses[lane], size, lane, pc)
        if target == 0:
            return 1
        n = valid[lane]
        if n > size:
            n = size
        source = 0
        if n > 0:
            source = resolve_source(w, w.addresses2[lane], n, size, lane, pc)
            if source == 0 or check_grid_dependency(w, w.addresses2[lane], lane, pc) != 0:
                return 1
        c.target[lane] = target - w.cta.shared
        c.source[lane] = source
        c.valid[lane] = n
        if w.launch.checked != 0:
            step = pack_step(warp_actor(w, ASYNC_COPIES), w.committed[lane] + 1, pc)
            if check_write(w, w.cta, target - w.cta.shared, size, step, lane) != 0:
                return 1
        c.group[lane] = w.committed[lane]
        c.mask = c.mask | (1 << lane)
    w.queue_tail += 1
    return complete_random_copy(w) | (w.worker.fault != 0)


@native
def arrive_async(w: WarpRecord, mask: i64, space: i64, counted: i64, pc: i64) -> i64:
    """``cp.async.mbarrier.arrive`` at the mbarriers in ``w.addresses``. If it is ``counted`` (no
    ``.noinc``), it first increments the pending arrival count.
    """
    c = new_async_copy(w, 0, pc)
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        barrier = resolve_barrier(w, space, lane, pc)
        if barrier == 0 or check_use(w, barrier, lane, pc, 1) == 0:
            return 1
        cta = owner(w, barrier)
        if w.launch.checked != 0:
            step = pack_step(warp_actor(w, ASYNC_COPIES), w.committed[lane] + 1, pc)
            record_completion(cta, barrier - cta.shared, step)
        error = update_phase(cta, barrier, -counted, 0, 0)
        if error != 0:
            w.worker.fault_value = at(u64, barrier)[0]
            fault(w, error, pc, lane, w.addresses[lane])
            return 1
        c.source[lane] = barrier
        c.group[lane] = w.committed[lane]
        c.mask = c.mask | (1 << lane)
    w.queue_tail += 1
    return complete_random_copy(w) | (w.worker.fault != 0)


@native
def commit_async(w: WarpRecord, mask: i64) -> i64:
    """``cp.async.commit_group``: the copies of these lanes since their last commit are a group."""
    for lane in range(32):
        w.committed[lane] = w.committed[lane] + ((mask >> lane) & 1)
    return complete_random_copy(w)


@native
def wait_async(w: WarpRecord, mask: i64, pending: i64) -> i64:
    """``cp.async.wait_group``: complete all copies of these lanes except those in their ``pending``
    newest groups, in an order that depends on the seed. ``pending`` −1: all copies, committed or
    not. Returns 1 after a fault.
    """
    if w.launch.checked != 0:
        advance_groups(w, mask, warp_actor(w, ASYNC_COPIES), w.committed, pending)
    in_flight = w.queue_tail - w.queue_head
    if in_flight == 0:
        return 0
    first = draw(w.cta) % in_flight if w.launch.seed != 0 else 0
    for i in range(in_flight):
        n = i + first
        if n >= in_flight:
            n -= in_flight
        c = async_copy(w, w.queue_head + n)
        completing = 0
        for lane in range(32):
            if pending < 0 or c.group[lane] < w.committed[lane] - pending:
                completing = completing | (1 << lane)
        if complete_copy(w, w.queue_head + n, completing & mask) != 0:
            return 1
    return pop_completed(w)
