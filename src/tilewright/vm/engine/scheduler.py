"""The scheduler, in native code: warps of a CTA, and resident CTAs of a worker (a host thread).

A warp runs until it waits, uses up its time slice, or exits; the warps of a CTA and the resident
CTAs take turns. The order depends on the seed only, not on what is compiled already.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, indirect, lshr, umod
from ...native.native_language import i64, native, u32
from ..check.async_checks import check_exit
from ..check.race_detector import reset_clocks
from ..state.lane_groups import draw, next_group
from ..state.records import (
    BARRIERS,
    DEADLOCK,
    EMPTY,
    FAULT,
    FINISHED,
    JUMP,
    READY,
    RUNNING,
    STEP_LIMIT,
    STOPPED,
    WAIT,
    WAITING,
    YIELD,
    AsyncCopy,
    Cta,
    WarpRecord,
    Worker,
)
from .async_copies import (
    complete_all_queued,
    complete_arrivals,
    complete_old_queued,
    complete_random_warp,
)
from .bulk_completion import complete_all_bulk, complete_next_bulk, complete_random_bulk
from .mbarrier_model import wake_timed_out
from .memory_access import CTA_BYTES

WARP_BYTES = WarpRecord.size
POISON = 0xFFFFFFFFFFFFFFFF
SPLITMIX = 0x9E3779B97F4A7C15
SALT = 0xD1B54A32D192ED03
SLICE_BITS = 15  # with a seed, a slice is a power of two below 2^15
LINE = 64  # bytes that registers are aligned to
IDLE_WAKEUPS, IDLE_POLLS = 8, 200  # timeouts without an event before a deadlock; in polling loops


# --- start ----------------------------------------------------------------------------------------


@native
def start_warp(w: WarpRecord, cta: Cta, index: i64) -> i64:
    """Initialize a warp's frame: zeros, except for the live lanes, their thread indices, and the
    registers, which are poisoned.
    """
    launch = cta.launch
    queue = address(w.queue)
    frame = at(i64, address(w))
    registers = (WARP_BYTES + 4 * launch.blocks + LINE - 1) & -LINE
    for i in range(registers // 8):
        frame[i] = 0
    poison(address(w) + registers, launch.frame_bytes - registers)
    w.queue = at(AsyncCopy, queue)
    w.pending = at(u32, address(w) + WARP_BYTES)
    w.cta = cta
    w.worker = cta.worker
    w.launch = launch
    w.index = index
    w.state = READY
    for lane in range(32):
        t = index * 32 + lane
        if t < launch.threads:
            w.live = w.live | (1 << lane)
        w.tid_x[lane] = t % launch.block[0]
        w.tid_y[lane] = t // launch.block[0] % launch.block[1]
        w.tid_z[lane] = t // (launch.block[0] * launch.block[1])
    if launch.divergent != 0:
        w.pending[0] = w.live
    return 0


@native
def poison(start: i64, size: i64) -> i64:
    """Fill uninitialized memory with ones (NaNs), so that an uninitialized read shows."""
    words = at(i64, start)
    for i in range((size + 7) // 8):
        words[i] = POISON
    return 0


@native
def start_cluster(first: Cta, number: i64) -> i64:
    """Start the CTAs of a cluster; clusters are numbered in the order x, y, z."""
    launch = first.launch
    x = number % launch.clusters[0]
    y = number // launch.clusters[0] % launch.clusters[1]
    z = number // (launch.clusters[0] * launch.clusters[1])
    for rank in range(launch.cluster_size):
        cta = at(Cta, address(first) + rank * CTA_BYTES)
        cta.first = address(first)
        cta.rank = rank
        cta.cluster_id[0] = x
        cta.cluster_id[1] = y
        cta.cluster_id[2] = z
        cta.cluster_index[0] = rank % launch.cluster[0]
        cta.cluster_index[1] = rank // launch.cluster[0] % launch.cluster[1]
        cta.cluster_index[2] = rank // (launch.cluster[0] * launch.cluster[1])
        for axis in range(3):
            cta.index[axis] = cta.cluster_id[axis] * launch.cluster[axis] + cta.cluster_index[axis]
        start_cta(cta)
    first.cluster_live = launch.threads * launch.cluster_size
    first.cluster_arrived = 0
    return 0


@native
def start_cta(cta: Cta) -> i64:
    """Initialize a CTA's memory, barriers and warps."""
    launch = cta.launch
    cta.linear = (cta.index[2] * launch.grid[1] + cta.index[1]) * launch.grid[0] + cta.index[0]
    cta.smid = cta.linear % launch.sms
    x = (launch.seed + 1) * SPLITMIX + cta.linear * SALT
    cta.random = x ^ lshr(x, 31) | 1
    cta.state = RUNNING
    cta.live_warps = launch.warps
    cta.worker.started += launch.warps
    cta.bulk_head = 0
    cta.bulk_tail = 0
    cta.bulk_old = 0
    cta.wgmmas = 0
    poison(cta.shared, launch.shared_bytes)
    for i in range(32 * launch.warps):
        poison(cta.local + i * launch.local_bytes, launch.static_bytes)
    for b in range(BARRIERS):
        bar = cta.barriers[b]
        bar.arrived = 0
        bar.expected = 0
        bar.true_votes = 0
        bar.false_votes = 0
    for i in range(launch.warps):
        start_warp(at(WarpRecord, cta.frames + i * launch.frame_bytes), cta, i)
    if launch.checked != 0:
        reset_clocks(cta)
    return 0


# --- turns ----------------------------------------------------------------------------------------


@native
def run_warp(w: WarpRecord) -> i64:
    """One turn of a warp: run regions until one returns another code than JUMP."""
    launch = w.launch
    worker = w.worker
    w.budget = launch.slice if launch.seed == 0 else 1 << umod(draw(w.cta), SLICE_BITS)
    worker.steps += w.budget
    code = JUMP
    if launch.divergent != 0:
        code = next_group(w)
    else:
        w.active = w.live
    while code == JUMP:
        region = launch.regions[w.block]
        if region == 0:
            region = indirect(launch.compile, w)
        code = indirect(region, w) if region != 0 else FAULT
    worker.steps -= w.budget
    if launch.divergent != 0 and code == YIELD:
        w.pending[w.block] = w.pending[w.block] | w.active
    return code


@native
def run_cta(cta: Cta) -> i64:
    """One turn of each warp that can run. Returns JUMP if any ran, WAIT if none could."""
    launch = cta.launch
    worker = cta.worker
    progress = WAIT
    first = 0
    if launch.seed != 0:
        first = umod(draw(cta), launch.warps)
    for i in range(launch.warps):
        n = i + first
        if n >= launch.warps:
            n -= launch.warps
        w = at(WarpRecord, cta.frames + n * launch.frame_bytes)
        if w.state == READY:
            code = run_warp(w)
            if code == FAULT:
                return FAULT
            if code == WAIT and w.state == READY and (w.live & ~w.waiting) == 0:
                w.state = WAITING
            if launch.stop != 0 or worker.stop != 0:
                return STOPPED
            if launch.step_limit != 0 and worker.steps + worker.started > launch.step_limit:
                return STEP_LIMIT
            progress = JUMP
    if cta.live_warps == 0:
        if cluster_still_runs(cta) == 0 and release_cluster(cta) != 0:
            return FAULT
    elif launch.seed != 0 and (complete_random_bulk(cta) != 0 or complete_random_warp(cta) != 0):
        return FAULT
    return progress


@native(inline=True)
def cluster_still_runs(cta: Cta) -> i64:
    """Whether the CTA must stay resident because threads of its cluster are live (seed 0 only)."""
    launch = cta.launch
    return launch.seed == 0 and launch.cluster_size > 1 and at(Cta, cta.first).cluster_live != 0


@native
def release_cluster(last: Cta) -> i64:
    """Release the CTAs of a cluster once the last one has ended. First the copies of all of them
    complete, because they may write each other's shared memory. Returns 1 after a fault.
    """
    launch = last.launch
    if launch.seed != 0 or launch.cluster_size == 1:
        return release_cta(last)
    for rank in range(launch.cluster_size):
        cta = at(Cta, last.first + rank * CTA_BYTES)
        if cta.state == RUNNING and address(cta) != address(last) and drain_cta(cta) != 0:
            return 1
    for rank in range(launch.cluster_size):
        cta = at(Cta, last.first + rank * CTA_BYTES)
        if cta.state == RUNNING and address(cta) != address(last) and release_cta(cta) != 0:
            return 1
    return release_cta(last)


@native
def release_cta(cta: Cta) -> i64:
    """Complete the copies of a CTA whose threads have exited, and free its slot. Returns 1 after a
    fault.
    """
    if drain_cta(cta) != 0:
        return 1
    cta.state = EMPTY
    cta.worker.events += 1
    return 0


@native
def drain_cta(cta: Cta) -> i64:
    """Check and complete the copies in flight of a CTA whose threads have exited. Returns 1 after a
    fault.
    """
    if cta.launch.checked != 0 and check_exit(cta) != 0:
        return 1
    return complete_all_bulk(cta) != 0


@native
def run(worker: Worker) -> i64:
    """Run the worker's CTAs until all have ended, or a fault or limit stops them."""
    size = worker.launch.cluster_size
    while True:
        progress = WAIT
        running = 0
        for i in range(worker.resident):
            cta = at(Cta, worker.ctas + i * CTA_BYTES)
            if i % size == 0 and worker.next < worker.last and cluster_slot_free(cta) != 0:
                start_cluster(cta, worker.next // size)
                worker.next += size
            if cta.state == RUNNING:
                running += 1
                code = run_cta(cta)
                if code == JUMP:
                    progress = JUMP
                elif code != WAIT:
                    return code
        if running == 0:
            return FINISHED
        if progress == WAIT:
            progress = unblock(worker)
        if progress != JUMP:
            return progress
        if worker.launch.seed == 0 and complete_old_copies(worker, running) != 0:
            return FAULT


@native
def cluster_slot_free(first: Cta) -> i64:
    """Whether all slots of a cluster are empty."""
    for rank in range(first.launch.cluster_size):
        if at(Cta, address(first) + rank * CTA_BYTES).state != EMPTY:
            return 0
    return 1


@native
def complete_old_copies(worker: Worker, running: i64) -> i64:
    """Complete old copies periodically, because nothing else would while warps poll. Returns 1
    after a fault.

    A period is over when the ``running`` CTAs have spent a time slice per warp in loops. A copy is
    old if it was already in flight at the end of the last period. So a copy completes one to two
    periods after it was issued, unless it is waited for; a kernel that forgets to wait has long
    read the old contents by then.
    """
    launch = worker.launch
    if worker.steps - worker.swept < launch.slice * launch.warps * running:
        return 0
    worker.swept = worker.steps
    for i in range(worker.resident):
        cta = at(Cta, worker.ctas + i * CTA_BYTES)
        if cta.state == RUNNING and (complete_old_bulk(cta) != 0 or complete_old_queued(cta) != 0):
            return 1
    return 0


@native
def complete_old_bulk(cta: Cta) -> i64:
    """Complete bulk copies that were in flight at the last call already; 1 after a fault."""
    while cta.bulk_head < cta.bulk_old:
        if complete_next_bulk(cta) != 0:
            return 1
    cta.bulk_old = cta.bulk_tail
    return 0


@native
def unblock(worker: Worker) -> i64:
    """No warp could run. Release CTAs that stayed resident for their cluster; then, unless an event
    has occurred, take the first of these steps that does something:

    1. complete one bulk copy of each CTA;
    2. complete the next arrival behind ``cp.async`` of each warp;
    3. complete all ``cp.async`` copies;
    4. wake sleeping lanes with a timeout.

    Returns JUMP, FAULT, or DEADLOCK after too many timeouts in a row.
    """
    for c in range(worker.resident):
        cta = at(Cta, worker.ctas + c * CTA_BYTES)
        if cta.state == RUNNING and cta.live_warps == 0 and release_cta(cta) != 0:
            return FAULT
    if worker.events != worker.seen_events:
        worker.seen_events = worker.events
        worker.idle = 0
        return JUMP
    any_completed = 0
    for c in range(worker.resident):
        cta = at(Cta, worker.ctas + c * CTA_BYTES)
        if cta.state == RUNNING and cta.bulk_head < cta.bulk_tail:
            any_completed = 1
            if complete_next_bulk(cta) != 0:
                return FAULT
    for c in range(worker.resident if any_completed == 0 else 0):
        cta = at(Cta, worker.ctas + c * CTA_BYTES)
        if cta.state == RUNNING:
            any_completed = any_completed | complete_arrivals(cta)
    for c in range(worker.resident if any_completed == 0 else 0):
        cta = at(Cta, worker.ctas + c * CTA_BYTES)
        if cta.state == RUNNING:
            any_completed = any_completed | complete_all_queued(cta)
    if worker.fault != 0:
        return FAULT
    if any_completed != 0:
        return JUMP
    worker.idle += 1
    polled = worker.steps - worker.idle_last  # in a loop that threads may leave after some tries
    worker.idle_last = worker.steps
    if worker.idle > (IDLE_POLLS if polled != 0 else IDLE_WAKEUPS):
        return DEADLOCK
    for c in range(worker.resident):
        cta = at(Cta, worker.ctas + c * CTA_BYTES)
        if cta.state == RUNNING:
            any_completed = any_completed | wake_timed_out(cta)
    return JUMP if any_completed != 0 else DEADLOCK
