"""The scheduler, in native code: warps within a CTA, CTAs within a worker (a host thread).

A warp runs until it has to wait, spends its slice, or ends; the warps of a CTA and the resident
CTAs take turns. The order follows from the seed alone, whatever is compiled already.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, indirect, lshr, umod
from ...native.native_language import i64, native, u32
from ..check.race_detector import check_exit, reset_clocks
from ..state.lane_groups import draw, next_group
from ..state.records import (  # fmt: skip
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
IDLE_WAKEUPS, IDLE_POLLS = 8, 200  # how often sleepers are woken in vain; where they loop


# --- starting -------------------------------------------------------------------------------------


@native
def start_warp(w: WarpRecord, cta: Cta, index: i64) -> i64:
    """A fresh frame: everything is 0 but the lanes that exist, their thread indices, and registers,
    which nobody has written; they begin where ``analysis.places`` has them.
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
    """Memory that nobody has written: all ones (NaNs), so that reading it shows."""
    words = at(i64, start)
    for i in range((size + 7) // 8):
        words[i] = POISON
    return 0


@native
def start_cluster(first: Cta, number: i64) -> i64:
    """The CTAs of the cluster of that number, in the order x, y, z, take their places."""
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
    """Fresh memory, barriers and warps."""
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


# --- taking turns ---------------------------------------------------------------------------------


@native
def run_warp(w: WarpRecord) -> i64:
    """One turn of a warp: region after region until it must stop."""
    launch = w.launch
    k = w.worker
    w.budget = launch.slice if launch.seed == 0 else 1 << umod(draw(w.cta), SLICE_BITS)
    k.steps += w.budget
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
    k.steps -= w.budget
    if launch.divergent != 0 and code == YIELD:
        w.pending[w.block] = w.pending[w.block] | w.active
    return code


@native
def run_cta(cta: Cta) -> i64:
    """A turn for each warp that can run: JUMP where any did, WAIT where none could."""
    launch = cta.launch
    k = cta.worker
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
            if launch.stop != 0 or k.stop != 0:
                return STOPPED
            if launch.step_limit != 0 and k.steps + k.started > launch.step_limit:
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
    """Whether other threads of its cluster still run, and may until they have to wait."""
    launch = cta.launch
    return launch.seed == 0 and launch.cluster_size > 1 and at(Cta, cta.first).cluster_live != 0


@native
def release_cluster(last: Cta) -> i64:
    """The last CTA of a cluster to end leaves, after all that stayed for it: their copies land
    before that, for they may go to one another and to the last.
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
    """A CTA whose threads have ended gives up its place, when its copies have landed."""
    if drain_cta(cta) != 0:
        return 1
    cta.state = EMPTY
    cta.worker.events += 1
    return 0


@native
def drain_cta(cta: Cta) -> i64:
    """What a CTA whose threads have ended left under way is found, and lands."""
    if cta.launch.checked != 0 and check_exit(cta) != 0:
        return 1
    return complete_all_bulk(cta) != 0


@native
def run(k: Worker) -> i64:
    """Run the worker's CTAs until all are done or something stops them."""
    size = k.launch.cluster_size
    while True:
        progress = WAIT
        running = 0
        for c in range(k.resident):
            cta = at(Cta, k.ctas + c * CTA_BYTES)
            if c % size == 0 and k.next < k.last and cluster_slot_free(cta) != 0:
                start_cluster(cta, k.next // size)
                k.next += size
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
            progress = unblock(k)
        if progress != JUMP:
            return progress
        if k.launch.seed == 0 and complete_old_copies(k, running) != 0:
            return FAULT


@native
def cluster_slot_free(first: Cta) -> i64:
    """Whether all places of a cluster are."""
    for rank in range(first.launch.cluster_size):
        if at(Cta, address(first) + rank * CTA_BYTES).state != EMPTY:
            return 0
    return 1


@native
def complete_old_copies(k: Worker, running: i64) -> i64:
    """Now and then, copies that are old land: where warps poll, and so never wait, nothing else
    would make them. It is time when the ``running`` CTAs have spent as much in loops as a slice for
    each warp, and a copy is old that was in flight the last time too. So one lands between one and
    two such periods after it was issued, unless it is waited for: long after most kernels have read
    what it brings, if they forget to wait. 1 after a fault.
    """
    launch = k.launch
    if k.steps - k.swept < launch.slice * launch.warps * running:
        return 0
    k.swept = k.steps
    for c in range(k.resident):
        cta = at(Cta, k.ctas + c * CTA_BYTES)
        if cta.state == RUNNING and (complete_old_bulk(cta) != 0 or complete_old_queued(cta) != 0):
            return 1
    return 0


@native
def complete_old_bulk(cta: Cta) -> i64:
    """The copies land that were in flight at the last sweep too; 1 after a fault."""
    while cta.bulk_head < cta.bulk_old:
        if complete_next_bulk(cta) != 0:
            return 1
    cta.bulk_old = cta.bulk_tail
    return 0


@native
def unblock(k: Worker) -> i64:
    """No warp could run. CTAs that stayed for their cluster leave. Unless something has happened
    since, one copy of each CTA lands; where none is in flight, what arrives behind ``cp.async``
    does, or else what that copies; at last sleepers hear that they slept in vain. DEADLOCK where
    they did so too often and nothing came of it.
    """
    for c in range(k.resident):
        cta = at(Cta, k.ctas + c * CTA_BYTES)
        if cta.state == RUNNING and cta.live_warps == 0 and release_cta(cta) != 0:
            return FAULT
    if k.events != k.seen_events:
        k.seen_events = k.events
        k.idle = 0
        return JUMP
    any_completed = 0
    for c in range(k.resident):
        cta = at(Cta, k.ctas + c * CTA_BYTES)
        if cta.state == RUNNING and cta.bulk_head < cta.bulk_tail:
            any_completed = 1
            if complete_next_bulk(cta) != 0:
                return FAULT
    for c in range(k.resident if any_completed == 0 else 0):
        cta = at(Cta, k.ctas + c * CTA_BYTES)
        if cta.state == RUNNING:
            any_completed = any_completed | complete_arrivals(cta)
    for c in range(k.resident if any_completed == 0 else 0):
        cta = at(Cta, k.ctas + c * CTA_BYTES)
        if cta.state == RUNNING:
            any_completed = any_completed | complete_all_queued(cta)
    if k.fault != 0:
        return FAULT
    if any_completed != 0:
        return JUMP
    k.idle += 1
    tried = k.steps - k.idle_last  # in a loop, which threads may leave after some tries
    k.idle_last = k.steps
    if k.idle > (IDLE_POLLS if tried != 0 else IDLE_WAKEUPS):
        return DEADLOCK
    for c in range(k.resident):
        cta = at(Cta, k.ctas + c * CTA_BYTES)
        if cta.state == RUNNING:
            any_completed = any_completed | wake_timed_out(cta)
    return JUMP if any_completed != 0 else DEADLOCK
