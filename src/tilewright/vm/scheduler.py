"""The scheduler, in native code: groups of lanes within a warp, warps within a CTA, CTAs within a worker.

A warp runs until it has to wait, spends its slice, or ends. Lanes that part ways are *pending* at blocks; the group
at the lowest block runs first, so that lanes meet again, and a group that goes round a loop too often
lets the others go first for a while.
"""

from __future__ import annotations

from .native import Ptr, i64, native, u32
from .state import (
    BAD_BARRIER, BARRIERS, DEADLOCK, DIVERGED, DONE, EMPTY, FAULT, FINISHED, JUMP, NEED, OVER, READY,
    RUNNING, STEPS_OUT, STOPPED, WAIT, WAITING, YIELD, Copy, Cta, Warp, Worker,
)  # fmt: skip

WARP_BYTES = Warp.size
CTA_BYTES = Cta.size

SPINS = 64
STICKY = 1024
POISON = 0xFFFFFFFFFFFFFFFF


@native
def draw(k: Ptr(Worker)) -> i64:
    """The next number of the worker's generator (xorshift), ≥ 0."""
    x = k.random
    x = x ^ (x << 13)
    x = x ^ lshr(x, 7)
    x = x ^ (x << 17)
    k.random = x
    return lshr(x, 1)


@native
def fault(w: Ptr(Warp), kind: i64, pc: i64, lane: i64, where: i64) -> i64:
    """Record a fault; the first one stays."""
    k = w.worker
    if k.fault == 0:
        k.fault = kind
        k.fault_pc = pc
        k.fault_lane = lane
        k.fault_address = where
        k.fault_warp = w.index
        k.fault_cta = w.cta.linear
    return 0


# --- groups of lanes ---------------------------------------------------------------------------


@native
def next_group(w: Ptr(Warp)) -> i64:
    """Choose the lanes that run next: sets ``active`` and ``block``; WAIT where none can, DONE where none is left."""
    if w.live == 0:
        return DONE
    count = w.launch.blocks
    free = ~w.waiting
    start = 0
    if w.spin > SPINS:
        w.spin = 0
        w.sticky = STICKY
        start = w.block + 1
    elif w.sticky > 0:
        w.sticky -= 1
        start = w.block
    for i in range(count):
        b = start + i
        if b >= count:
            b -= count
        m = w.pending[b] & free
        if m != 0:
            w.pending[b] = w.pending[b] & ~m
            w.active = m
            w.block = b
            w.others = w.live & ~m
            return JUMP
    return WAIT


@native
def await_members(w: Ptr(Warp), members: i64, block: i64, pc: i64) -> i64:
    """A convergent operation at the start of ``block``: 0 where all of its live members are here; else park this
    group at it and run another (JUMP, WAIT), or a fault where the others can't come."""
    missing = members & w.live & ~w.active
    if missing == 0:
        w.parked = w.parked & ~w.active
        return 0
    w.pending[block] = w.pending[block] | w.active
    w.parked = w.parked | w.active
    if (w.live & ~w.parked & ~w.waiting) == 0:
        fault(w, DIVERGED, pc, lowest(w.active), missing)
        return FAULT
    w.waiting = w.waiting | w.parked
    next_group(w)
    w.waiting = w.waiting & ~w.parked
    meeting = w.pending[w.block] & w.parked
    w.active = w.active | meeting
    w.others = w.others & ~meeting
    w.pending[w.block] = w.pending[w.block] & ~meeting
    return JUMP


@native
def lanes_exit(w: Ptr(Warp), mask: i64, pc: i64) -> i64:
    """These lanes end. Barriers count the living, so that may complete one."""
    w.live = w.live & ~mask
    w.active = w.active & ~mask
    w.others = w.others & ~mask
    if w.live == 0:
        cta = w.cta
        cta.live_warps -= 1
        w.state = OVER
        for b in range(BARRIERS):
            barrier_check(cta, b)
        return DONE
    if w.waiting != 0:
        for b in range(BARRIERS):
            if w.at[b] != 0:
                warp_arrives(w, b)
    return JUMP


# --- barriers ------------------------------------------------------------------------------------


@native
def barrier_check(cta: Ptr(Cta), index: i64) -> i64:
    """Open the barrier if all that it waits for have come."""
    bar = cta.barriers[index]
    needed = bar.expected
    if needed == 0:
        needed = cta.live_warps * 32
    if bar.arrived == 0 or bar.arrived < needed:
        return 0
    bar.arrived = 0
    bar.expected = 0
    bar.last_ayes = bar.ayes
    bar.last_nays = bar.nays
    bar.ayes = 0
    bar.nays = 0
    for i in range(cta.launch.warps):
        w = at(Warp, cta.frames + i * cta.launch.frame_bytes)
        if w.at[index] != 0:
            w.waiting = w.waiting & ~w.at[index]
            w.at[index] = 0
            w.arrived = w.arrived & ~(1 << index)
            if w.state == WAITING:
                w.state = READY
    return 1


@native
def warp_arrives(w: Ptr(Warp), index: i64) -> i64:
    """Count this warp in once all of its living lanes are at the barrier."""
    if (w.live & ~w.at[index]) == 0 and (w.arrived & (1 << index)) == 0:
        w.arrived = w.arrived | (1 << index)
        bar = w.cta.barriers[index]
        bar.arrived += 32
        return barrier_check(w.cta, index)
    return 0


@native
def barrier(w: Ptr(Warp), index: i64, threads: i64, arrive: i64, votes: i64, follow: i64, pc: i64) -> i64:
    """``bar.sync``/``bar.red`` (``arrive`` 0) and ``bar.arrive`` of the active lanes; they go on at ``follow``."""
    if index < 0 or index >= BARRIERS or (threads & 31) != 0 or threads > w.launch.warps * 32:
        fault(w, BAD_BARRIER, pc, lowest(w.active), index)
        return FAULT
    bar = w.cta.barriers[index]
    if threads != 0:
        bar.expected = threads
    bar.ayes += popcount(votes)
    bar.nays += popcount(w.active & ~votes)
    if arrive != 0:
        bar.arrived += 32
        barrier_check(w.cta, index)
        return 0
    mine = w.active
    w.at[index] = w.at[index] | mine
    w.waiting = w.waiting | mine
    w.block = follow
    if w.launch.divergent != 0:
        w.pending[follow] = w.pending[follow] | mine
        warp_arrives(w, index)
        return next_group(w)
    warp_arrives(w, index)
    return WAIT if w.waiting != 0 else JUMP


@native
def barrier_result(w: Ptr(Warp), index: i64, op: i64) -> i64:
    """What ``bar.red`` found when the barrier last opened: 0 popc, 1 or, 2 and."""
    bar = w.cta.barriers[index]
    if op == 2:
        return bar.last_nays == 0
    return bar.last_ayes if op == 0 else bar.last_ayes != 0


# --- warps and CTAs ----------------------------------------------------------------------------


@native
def start_warp(w: Ptr(Warp), cta: Ptr(Cta), index: i64) -> i64:
    launch = cta.launch
    queue = address(w.queue)
    words = launch.frame_bytes // 8
    frame = at(i64, address(w))
    for i in range(words):
        frame[i] = 0
    w.queue = at(Copy, queue)
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
def start_cta(cta: Ptr(Cta), linear: i64) -> i64:
    """Shared memory begins as garbage (all ones: NaNs), as on hardware nobody may rely on it."""
    launch = cta.launch
    cta.linear = linear
    cta.index[0] = linear % launch.grid[0]
    cta.index[1] = linear // launch.grid[0] % launch.grid[1]
    cta.index[2] = linear // (launch.grid[0] * launch.grid[1])
    cta.state = RUNNING
    cta.live_warps = launch.warps
    shared = at(i64, cta.shared)
    for i in range((launch.shared_bytes + 7) // 8):
        shared[i] = POISON
    for b in range(BARRIERS):
        cta.barriers[b].arrived = 0
        cta.barriers[b].expected = 0
        cta.barriers[b].ayes = 0
        cta.barriers[b].nays = 0
    for i in range(launch.warps):
        start_warp(at(Warp, cta.frames + i * launch.frame_bytes), cta, i)
    return 0


@native
def run_warp(w: Ptr(Warp)) -> i64:
    """One turn of a warp."""
    k = w.worker
    w.budget = w.launch.slice
    code = JUMP
    if w.launch.divergent != 0:
        code = next_group(w)
    else:
        w.active = w.live
    while code == JUMP:
        region = w.launch.regions[w.block]
        if region == 0:
            k.need = w.block
            code = NEED
        else:
            code = indirect(region, w)
    k.steps += w.launch.slice - w.budget
    if w.launch.divergent != 0 and (code == YIELD or code == NEED):
        w.pending[w.block] = w.pending[w.block] | w.active
    return code


@native
def run_cta(cta: Ptr(Cta)) -> i64:
    """A turn for each warp that can run; JUMP where any did, WAIT where none could, else what stopped it."""
    launch = cta.launch
    progress = WAIT
    first = 0
    if launch.seed != 0:
        first = umod(draw(cta.worker), launch.warps)
    for i in range(launch.warps):
        n = i + first
        if n >= launch.warps:
            n -= launch.warps
        w = at(Warp, cta.frames + n * launch.frame_bytes)
        if w.state == READY:
            code = run_warp(w)
            if code == FAULT or code == NEED:
                return code
            if code == WAIT and w.state == READY:
                w.state = WAITING if (w.live & ~w.waiting) == 0 else READY
            progress = JUMP
    if cta.live_warps == 0:
        cta.state = EMPTY
    return progress


@native
def run(k: Ptr(Worker)) -> i64:
    """Run the worker's CTAs until all are done or something needs Python."""
    launch = k.launch
    while True:
        progress = WAIT
        alive = 0
        for c in range(k.resident):
            cta = at(Cta, k.ctas + c * CTA_BYTES)
            if cta.state == EMPTY and k.next < k.last:
                start_cta(cta, k.next)
                k.next += 1
            if cta.state == RUNNING:
                alive = 1
                code = run_cta(cta)
                if code == JUMP:
                    progress = JUMP
                elif code != WAIT:
                    return code
            if launch.stop != 0:
                return STOPPED
            if launch.step_limit != 0 and k.steps > launch.step_limit:
                return STEPS_OUT
        if alive == 0:
            return FINISHED
        if progress == WAIT:
            return DEADLOCK

