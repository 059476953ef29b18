"""The mbarrier model, in native code: 64 bits of shared memory that count arrivals and
transaction bytes, phase after phase.

    63        the phase, even or odd
    40 … 61   pending transaction count in bytes (negative: bytes completed before expect_tx)
    20 … 39   expected arrival count, with which the next phase begins
     0 … 19   pending arrival count of this phase

The PTX manual calls the state opaque, so the layout is ours. A phase completes when both pending
counts are zero; then suspended warps of the CTA test their barriers again.
"""

from __future__ import annotations

from ...native.intrinsics import at, lowest, lshr, popcount
from ...native.native_language import Ptr, i64, native, u32, u64
from ..check.async_checks import check_barrier_access, check_double_init, track_barrier
from ..check.vector_clocks import (
    CLUSTER_DONE,
    CLUSTER_OPEN,
    acquire,
    actor_count,
    barrier_clock,
    complete_phase,
    join,
    release,
    sync_clock,
)
from ..state.lane_groups import fault, next_group
from ..state.records import (
    BAD_MBARRIER,
    EXITED_CTA,
    FAULT,
    JUMP,
    READY,
    RUNNING,
    TX_COUNT_OVERFLOW,
    WAIT,
    WAITING,
    WRITES,
    Cta,
    WarpRecord,
)
from .memory_access import CTA_BYTES, owner, resolve

COUNT_BITS = 20
MAX_COUNT = (1 << COUNT_BITS) - 1  # arrivals, and bytes, of a phase
TX_SHIFT = 2 * COUNT_BITS
INVALID_BIT = 1 << 62
PHASE_BIT = 63
INVALID = 0xFFFFFFFFFFFFFFFF


# --- sleeping lanes -------------------------------------------------------------------------------


@native
def wake(cta: Cta) -> i64:
    """Wake all sleeping lanes of the CTA; they test their condition again."""
    cta.worker.events += 1
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        if w.asleep != 0:
            w.waiting = w.waiting & ~w.asleep
            w.asleep = 0
            if w.state == WAITING:
                w.state = READY
    return 0


@native(deferred=True)
def wake_timed_out(cta: Cta) -> i64:
    """Wake all sleeping lanes of the CTA with a timeout. Returns the lanes of all warps that slept,
    or-ed.
    """
    asleep = 0
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        w.expired = w.asleep
        asleep = asleep | w.asleep
    if asleep != 0:
        wake(cta)
        cta.worker.events -= 1
    return asleep


@native
def sleep(w: WarpRecord, block: i64) -> i64:
    """The active lanes sleep until the next event, then execute ``block`` again. Returns what the
    region returns to the scheduler.
    """
    w.asleep = w.asleep | w.active
    w.waiting = w.waiting | w.active
    w.block = block
    if w.launch.divergent == 0:
        return WAIT
    w.pending[block] = w.pending[block] | w.active
    return next_group(w)


@native(inline=True)
def take_timeout(w: WarpRecord, mask: i64) -> i64:
    """The lanes of ``mask`` that were woken by a timeout; clears their timeout."""
    timed_out = w.expired & mask
    w.expired = w.expired & ~mask
    return timed_out


# --- one mbarrier ---------------------------------------------------------------------------------


@native
def update_phase(cta: Cta, barrier: i64, arrivals: i64, dropped: i64, tx_bytes: i64) -> i64:
    """Count ``arrivals`` (``dropped`` of them also leave later phases), and add ``tx_bytes`` to the
    transaction count (negative: completed bytes). Completes the phase if both counts reach 0.

    Returns 0, or the kind of fault if the barrier is invalid or a count is out of range.
    """
    word = at(u64, barrier)
    x = word[0]
    pending = (x & MAX_COUNT) - arrivals
    expected = (lshr(x, COUNT_BITS) & MAX_COUNT) - dropped
    tx_count = ((x << 2) >> (TX_SHIFT + 2)) + tx_bytes
    if (x & INVALID_BIT) != 0 or pending < 0 or pending > MAX_COUNT or expected < 0:
        return BAD_MBARRIER
    if tx_count > MAX_COUNT or tx_count < -MAX_COUNT:
        return TX_COUNT_OVERFLOW
    phase = lshr(x, PHASE_BIT)
    completed = 0
    if pending == 0 and tx_count == 0:
        phase = phase ^ 1
        pending = expected
        completed = 1
    low = pending | expected << COUNT_BITS | (tx_count & ((1 << 22) - 1)) << TX_SHIFT
    word[0] = low | phase << PHASE_BIT
    if completed != 0 and cta.launch.checked != 0:
        complete_phase(cta, barrier - cta.shared)
    if completed != 0:
        wake(cta)
    return 0


@native
def check_use(w: WarpRecord, barrier: i64, lane: i64, pc: i64, arrives: i64) -> i64:
    """Check that a thread may use a barrier (``arrives``: it arrives, otherwise it tests). Returns
    0 after a fault.
    """
    if check_live(w, barrier, lane, pc) == 0:
        return 0
    if w.launch.checked == 0:
        return 1
    cta = owner(w, barrier)
    if check_barrier_access(w, cta, barrier - cta.shared, lane, pc) != 0:
        return 0
    if arrives != 0:
        release(w, sync_clock(cta, barrier_clock(cta, barrier - cta.shared)))
    return 1


@native(inline=True)
def resolve_barrier(w: WarpRecord, space: i64, lane: i64, pc: i64) -> i64:
    """The host address of the lane's barrier; 0 after a fault."""
    return resolve(w, space + WRITES, w.addresses[lane], 8, lane, pc)


@native
def init(w: WarpRecord, mask: i64, space: i64, counts: Ptr[u32], pc: i64) -> i64:
    """``mbarrier.init``. Returns 1 after a fault."""
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        barrier = resolve_barrier(w, space, lane, pc)
        if barrier == 0:
            return 1
        count = counts[lane]
        if count == 0 or count > MAX_COUNT:
            w.worker.fault_value = count
            fault(w, BAD_MBARRIER, pc, lane, w.addresses[lane])
            return 1
        cta = owner(w, barrier)
        if w.launch.checked != 0 and (
            check_double_init(w, cta, barrier - cta.shared, lane, pc) != 0
            or track_barrier(w, cta, barrier - cta.shared, lane, pc) != 0
        ):
            return 1
        at(u64, barrier)[0] = count | count << COUNT_BITS
    return 0


@native
def invalidate(w: WarpRecord, mask: i64, space: i64, pc: i64) -> i64:
    """``mbarrier.inval``. Returns 1 after a fault."""
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        barrier = resolve_barrier(w, space, lane, pc)
        if barrier == 0 or check_live(w, barrier, lane, pc) == 0:
            return 1
        cta = owner(w, barrier)
        if w.launch.checked != 0 and track_barrier(w, cta, barrier - cta.shared, lane, pc) != 0:
            return 1
        at(u64, barrier)[0] = INVALID
    return 0


@native
def check_live(w: WarpRecord, barrier: i64, lane: i64, pc: i64) -> i64:
    """Whether the address holds a valid barrier in a CTA that is still running; if not, a fault."""
    x = at(u64, barrier)[0]
    if owner(w, barrier).state != RUNNING:
        return fault(w, EXITED_CTA, pc, lane, w.addresses[lane])
    if (x & INVALID_BIT) != 0 or (x & ((1 << TX_SHIFT) - 1)) == 0:
        w.worker.fault_value = x
        return fault(w, BAD_MBARRIER, pc, lane, w.addresses[lane])
    return 1


@native
def arrive(w: WarpRecord, mask: i64, space: i64, drop: i64, states: Ptr[u64], pc: i64) -> i64:
    """``mbarrier.arrive``, ``expect_tx`` and ``complete_tx``: each lane adds ``w.operands[32 +
    lane]`` (signed) to the transaction count, then arrives ``w.operands[lane]`` times. ``states``
    receives the previous states. Returns 1 after a fault.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        barrier = resolve_barrier(w, space, lane, pc)
        if barrier == 0 or check_use(w, barrier, lane, pc, 1) == 0:
            return 1
        states[lane] = at(u64, barrier)[0]
        count = w.operands[lane]
        tx_bytes = (w.operands[32 + lane] << 32) >> 32
        error = update_phase(owner(w, barrier), barrier, count, count * drop, tx_bytes)
        if error != 0:
            w.worker.fault_value = states[lane]
            fault(w, error, pc, lane, w.addresses[lane])
            return 1
    return 0


@native
def test_wait(
    w: WarpRecord, mask: i64, space: i64, phases: Ptr[u64], sleeps: i64, out: Ptr[u32], pc: i64
) -> i64:
    """``mbarrier.test_wait`` and ``try_wait``: whether the phase of each lane (bit 63 of
    ``phases``) is complete. Returns JUMP, FAULT, or WAIT if all lanes have to sleep. For lanes
    woken by a timeout the result is false.
    """
    completed = 0
    first = lowest(mask)
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        barrier = resolve_barrier(w, space, lane, pc)
        if barrier == 0 or check_use(w, barrier, lane, pc, 0) == 0:
            return FAULT
        complete = lshr(at(u64, barrier)[0] ^ phases[lane], PHASE_BIT)
        if complete != 0 and w.launch.checked != 0:
            cta = owner(w, barrier)
            acquire(w, sync_clock(cta, barrier_clock(cta, barrier - cta.shared) + 1))
        out[lane] = complete
        completed = completed | complete << lane
    if completed == 0 and mask != 0 and sleeps != 0 and take_timeout(w, mask) == 0:
        w.awaited = w.addresses[first]
        return WAIT
    w.expired = w.expired & ~mask
    return JUMP


# --- the barrier of a cluster ---------------------------------------------------------------------


@native(part="cluster")
def complete_cluster_barrier(cta: Cta) -> i64:
    """Complete the phase of the cluster's barrier if all live threads have arrived. Returns 1 if
    so.
    """
    head = at(Cta, cta.first)
    if head.cluster_arrived == 0 or head.cluster_arrived < head.cluster_live:
        return 0
    head.cluster_arrived = 0
    if cta.launch.checked != 0:
        current = sync_clock(head, CLUSTER_OPEN)
        join(sync_clock(head, CLUSTER_DONE), current, 2 * actor_count(head))
    for rank in range(cta.launch.cluster_size):
        c = at(Cta, cta.first + rank * CTA_BYTES)
        for i in range(c.launch.warps):
            at(WarpRecord, c.frames + i * c.launch.frame_bytes).in_cluster_barrier = 0
        wake(c)
    return 1


@native(part="cluster")
def cluster_arrive(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """``barrier.cluster.arrive``. Returns 1 after a fault: a lane arrived twice without a wait."""
    twice = w.cluster_wait_due & mask
    if twice != 0:
        fault(w, BAD_MBARRIER, pc, lowest(twice), 0)
        return 1
    w.in_cluster_barrier = w.in_cluster_barrier | mask
    w.cluster_wait_due = w.cluster_wait_due | mask
    head = at(Cta, w.cta.first)
    if mask != 0 and w.launch.checked != 0:
        release(w, sync_clock(head, CLUSTER_OPEN))
    head.cluster_arrived += popcount(mask)
    return 0 * complete_cluster_barrier(w.cta)


@native(part="cluster")
def cluster_wait(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """``barrier.cluster.wait``. Returns JUMP, WAIT if the phase in which these lanes arrived is not
    complete, or FAULT if a lane has not arrived.
    """
    if (mask & ~w.cluster_wait_due) != 0:
        fault(w, BAD_MBARRIER, pc, lowest(mask & ~w.cluster_wait_due), 0)
        return FAULT
    if (w.in_cluster_barrier & mask) == 0:
        w.cluster_wait_due = w.cluster_wait_due & ~mask
        if mask != 0 and w.launch.checked != 0:
            acquire(w, sync_clock(at(Cta, w.cta.first), CLUSTER_DONE))
        return JUMP
    w.expired = w.expired & ~mask
    w.awaited = 0
    return WAIT


@native(part="cluster", deferred=True)
def cluster_exit(w: WarpRecord, mask: i64) -> i64:
    """Threads exit: the cluster's barrier no longer waits for them."""
    head = at(Cta, w.cta.first)
    head.cluster_live -= popcount(mask)
    head.cluster_arrived -= popcount(w.in_cluster_barrier & mask)
    w.in_cluster_barrier = w.in_cluster_barrier & ~mask
    return complete_cluster_barrier(w.cta)
