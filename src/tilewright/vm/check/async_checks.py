"""Checks of mbarriers, bulk copies and exiting CTAs in checked launches, in native code.

They record accesses of shared memory with ``race_detector``, and report mbarriers that are
initialized twice, copied data that nothing reads, and CTAs that exit while others use their memory.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, lowest, lshr, umod
from ...native.native_language import i64, native, u64
from ..state.lane_groups import fault, fault_at
from ..state.records import (
    DOUBLE_INIT,
    MAX_BULK_COPIES,
    RACE,
    UNREAD_COPY,
    BulkCopy,
    Cta,
    WarpRecord,
)
from .race_detector import (
    ASYNC,
    EXITED_EARLY,
    GENERIC,
    GRANULE_BITS,
    check_read,
    check_write,
    readers,
    with_lane,
)
from .vector_clocks import (
    ACTOR,
    BULK_STORES,
    ENDED,
    FIELD,
    KINDS,
    OPERATION,
    STEP,
    TOUCHED,
    USED,
    actor_count,
    barrier_clock,
    clock,
    current_step,
    join,
    pack_step,
    record_use,
    sync_clock,
    warp_actor,
    when_checked,
)

CTA_BYTES = Cta.size


# --- mbarriers ------------------------------------------------------------------------------------


@when_checked
def track_barrier(w: WarpRecord, cta: Cta, offset: i64, lane: i64, pc: i64) -> i64:
    """An mbarrier is initialized or invalidated. Returns 1 after a race."""
    number = (barrier_clock(cta, offset) - ENDED - 1) >> 1
    if number == cta.mbarrier_count:
        cta.mbarriers[number] = offset
        cta.mbarrier_count += 1
    return check_write(w, cta, offset, 8, current_step(w, pc), lane)


@when_checked
def check_double_init(w: WarpRecord, cta: Cta, offset: i64, lane: i64, pc: i64) -> i64:
    """Returns 1 after a fault if an initialized mbarrier is initialized again: its bytes were last
    written by another ``mbarrier.init``. Lanes of one instruction may initialize the same mbarrier.
    """
    writers = at(u64, cta.shadow + offset * 8)
    previous = writers[0]
    for i in range(1, 8):
        if writers[i] != previous:
            return 0
    initialized = previous != 0 and w.launch.inits[previous & OPERATION] != 0
    if initialized == 0 or with_lane(previous, 0) == current_step(w, pc):
        return 0
    w.worker.fault_value = previous & OPERATION
    fault(w, DOUBLE_INIT, pc, lane, w.addresses[lane])
    return 1


@when_checked
def check_barrier_access(w: WarpRecord, cta: Cta, offset: i64, lane: i64, pc: i64) -> i64:
    """A thread arrives at an mbarrier or tests it. Returns 1 after a race."""
    step = current_step(w, pc)
    if cta.rank != w.cta.rank:
        record_use(cta, step)
    return check_read(w, cta, offset, 8, step, GENERIC, lane)


# --- bulk copies ----------------------------------------------------------------------------------


@native(inline=True)
def extent(c: BulkCopy) -> i64:
    """The bytes of shared memory that a copy reads or writes."""
    return c.bytes // c.width * c.pitch if c.tensor != 0 else c.bytes


@when_checked
def check_bulk_write(w: WarpRecord, c: BulkCopy, lane: i64) -> i64:
    """The CTA's newest copy, to shared memory, is issued. Returns 1 after a race."""
    number = w.cta.bulk_tail - 1
    slot = w.launch.warps * KINDS + umod(number, MAX_BULK_COPIES)
    c.step = pack_step(w.cta.rank * w.launch.actors + slot, number // MAX_BULK_COPIES + 1, c.pc)
    proxy = ASYNC if c.tensor != 0 or c.source != address(c.data) else GENERIC
    ranks = c.ctas
    while ranks != 0:
        rank = lowest(ranks)
        ranks = ranks & (ranks - 1)
        to = at(Cta, w.cta.first + rank * CTA_BYTES)
        record_use(to, c.step)
        if check_unread(to, c.target, c.target + extent(c)) != 0:
            return 1
        expect_whole_box_read(to, c)
        if check_read(w, to, c.barrier, 8, c.step, proxy, lane) != 0:
            return 1
        if c.reduce == 0 and check_write(w, to, c.target, extent(c), c.step, lane) != 0:
            return 1
    return 0


@when_checked
def check_bulk_read(w: WarpRecord, c: BulkCopy, source: i64, lane: i64) -> i64:
    """A copy from shared memory is issued. Returns 1 after a race."""
    c.step = pack_step(warp_actor(w, BULK_STORES), c.group + 1, c.pc)
    record_use(w.cta, c.step)
    return check_read(w, w.cta, source - w.cta.shared, extent(c), c.step, ASYNC, lane)


@when_checked
def expect_whole_box_read(cta: Cta, c: BulkCopy) -> i64:
    """Record in ``USED`` a tile copy that is in bounds: all its bytes must be read."""
    if c.tensor == 0 or c.im2col != 0:
        return 0
    for d in range(c.dimensions):
        end = c.coordinates[d] + c.box[d] * c.element_strides[d]
        if c.coordinates[d] < 0 or end > c.extents[d]:
            return 0
    sync_clock(cta, USED)[actor_count(cta) + (c.step >> ACTOR & FIELD)] = lshr(c.step, STEP)
    return 0


@when_checked
def check_unread(cta: Cta, low: i64, high: i64) -> i64:
    """Returns 1 after a fault if nothing has read the bytes that a copy has written here, although
    a wgmma has read other bytes of that copy.
    """
    used = sync_clock(cta, USED)
    writers = at(u64, cta.shadow)
    for granule in range(low >> GRANULE_BITS, high >> GRANULE_BITS):
        previous = writers[granule << GRANULE_BITS]
        actor = previous >> ACTOR & FIELD
        step = lshr(previous, STEP)
        unread = step != 0 and used[actor] == step and used[actor_count(cta) + actor] == step
        if unread != 0 and readers(cta, granule)[0] == 0:
            fault_at(cta, 0, UNREAD_COPY, previous & OPERATION, 0, granule << GRANULE_BITS)
            return 1
    return 0


# --- exit -----------------------------------------------------------------------------------------


@when_checked
def check_exit(cta: Cta) -> i64:
    """All threads have exited. Returns 1 after a fault if the CTA's memory may still be in use."""
    touched = sync_clock(cta, TOUCHED)
    ended = sync_clock(cta, ENDED)
    count = actor_count(cta)
    for w in range(cta.launch.warps):
        join(ended, clock(cta, w), count)
    for actor in range(count):
        if touched[actor] > ended[actor]:
            pc = touched[count + actor]
            cta.worker.fault_value = EXITED_EARLY << ACTOR | pc
            number = umod(actor, cta.launch.actors)
            warp = number // KINDS if number < cta.launch.warps * KINDS else 0
            fault_at(cta, warp, RACE, pc, 0, 0)
            return 1
    return check_unread(cta, 0, cta.launch.shared_bytes)
