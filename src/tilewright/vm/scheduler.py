"""The scheduler, in native code: warps within a CTA, CTAs within a worker (a host thread).

A warp runs until it has to wait, spends its slice, or ends; the warps of a CTA and the resident
CTAs take turns. The order follows from the seed alone, whatever is compiled already.
"""

from __future__ import annotations

from .groups import next_group
from .native import Ptr, i64, native, u32
from .state import (
    BARRIERS,
    DEADLOCK,
    EMPTY,
    FAULT,
    FINISHED,
    JUMP,
    READY,
    RUNNING,
    STEPS_OUT,
    STOPPED,
    WAIT,
    WAITING,
    YIELD,
    Copy,
    Cta,
    Warp,
    Worker,
)  # fmt: skip

WARP_BYTES = Warp.size
CTA_BYTES = Cta.size
POISON = 0xFFFFFFFFFFFFFFFF
SPLITMIX = 0x9E3779B97F4A7C15
SALT = 0xD1B54A32D192ED03
SLICES = 15  # with a seed, a slice is a power of two below 2^15


@native
def draw(cta: Ptr(Cta)) -> i64:
    """The next number of the CTA's generator (xorshift), ≥ 0."""
    x = cta.random
    x = x ^ (x << 13)
    x = x ^ lshr(x, 7)
    x = x ^ (x << 17)
    cta.random = x
    return lshr(x, 1)


# --- starting -------------------------------------------------------------------------------------


@native
def start_warp(w: Ptr(Warp), cta: Ptr(Cta), index: i64) -> i64:
    """A fresh frame: everything is 0 but the lanes that exist and their thread indices."""
    launch = cta.launch
    queue = address(w.queue)
    frame = at(i64, address(w))
    for i in range(launch.frame_bytes // 8):
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
def poison(start: i64, size: i64) -> i64:
    """Memory that nobody has written: all ones (NaNs), so that reading it shows."""
    words = at(i64, start)
    for i in range((size + 7) // 8):
        words[i] = POISON
    return 0


@native
def start_cta(cta: Ptr(Cta), linear: i64) -> i64:
    """The CTA of that number in the order x, y, z takes this place."""
    launch = cta.launch
    cta.linear = linear
    cta.smid = linear % launch.sms
    cta.index[0] = linear % launch.grid[0]
    cta.index[1] = linear // launch.grid[0] % launch.grid[1]
    cta.index[2] = linear // (launch.grid[0] * launch.grid[1])
    x = (launch.seed + 1) * SPLITMIX + linear * SALT
    cta.random = x ^ lshr(x, 31) | 1
    cta.state = RUNNING
    cta.live_warps = launch.warps
    poison(cta.shared, launch.shared_bytes)
    poison(cta.local, launch.local_bytes * 32 * launch.warps)
    for b in range(BARRIERS):
        bar = cta.barriers[b]
        bar.arrived = 0
        bar.expected = 0
        bar.ayes = 0
        bar.nays = 0
    for i in range(launch.warps):
        start_warp(at(Warp, cta.frames + i * launch.frame_bytes), cta, i)
    return 0


# --- taking turns ---------------------------------------------------------------------------------


@native
def run_warp(w: Ptr(Warp)) -> i64:
    """One turn of a warp: region after region until it must stop."""
    launch = w.launch
    k = w.worker
    w.budget = launch.slice if launch.seed == 0 else 1 << umod(draw(w.cta), SLICES)
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
def run_cta(cta: Ptr(Cta)) -> i64:
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
        w = at(Warp, cta.frames + n * launch.frame_bytes)
        if w.state == READY:
            code = run_warp(w)
            if code == FAULT:
                return FAULT
            if code == WAIT and w.state == READY and (w.live & ~w.waiting) == 0:
                w.state = WAITING
            if launch.stop != 0 or k.stop != 0:
                return STOPPED
            if launch.step_limit != 0 and k.steps > launch.step_limit:
                return STEPS_OUT
            progress = JUMP
    if cta.live_warps == 0:
        cta.state = EMPTY
    return progress


@native
def run(k: Ptr(Worker)) -> i64:
    """Run the worker's CTAs until all are done or something stops them."""
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
        if alive == 0:
            return FINISHED
        if progress == WAIT:
            return DEADLOCK
