"""Divergence within a warp, in native code: which group of lanes runs next, and convergence.

Lanes that are not active are *pending* at basic blocks. The group at the lowest block runs first,
so that lanes reconverge. A group that spends too long in a loop yields to another one for a while,
each group in turn, so that every lane makes progress.
"""

from __future__ import annotations

from ...native.intrinsics import lowest, lshr
from ...native.native_language import Ptr, i64, native, u32
from .records import (
    BAD_MEMBER_MASK,
    CONVERGED,
    DIVERGED,
    DONE,
    FAULT,
    JUMP,
    MISSING_LANES,
    WAIT,
    YIELD,
    Cta,
    WarpRecord,
)

SPIN_LIMIT = 8000  # steps that a group may spend in loops before another one is favoured
FAVOURED_TURNS = 1024  # scheduling decisions for which that group is favoured


@native
def draw(cta: Cta) -> i64:
    """The next number of the CTA's random generator (xorshift), ≥ 0."""
    x = cta.random
    x = x ^ (x << 13)
    x = x ^ lshr(x, 7)
    x = x ^ (x << 17)
    cta.random = x
    return lshr(x, 1)


@native
def fault(w: WarpRecord, kind: i64, pc: i64, lane: i64, where: i64) -> i64:
    """Record a fault unless one is recorded already. Returns 0."""
    return fault_at(w.cta, w.index, kind, pc, lane, where)


@native
def fault_at(cta: Cta, warp: i64, kind: i64, pc: i64, lane: i64, where: i64) -> i64:
    """``fault`` for an event of no active warp: an asynchronous copy that completes."""
    worker = cta.worker
    if worker.fault == 0:
        worker.fault = kind
        worker.fault_pc = pc
        worker.fault_lane = lane
        worker.fault_address = where
        worker.fault_warp = warp
        worker.fault_cta = cta.linear
    return 0


@native
def next_group(w: WarpRecord) -> i64:
    """Choose the lanes that run next and set ``active`` and ``block``.

    WAIT if no lane can run, DONE if all have exited, else JUMP. While a group is favoured, the
    search begins at the block that ran last instead of the first one.
    """
    if w.live == 0:
        return DONE
    start = 0
    if w.spin > SPIN_LIMIT:
        w.spin = 0
        w.sticky = FAVOURED_TURNS
        start = w.rotor
    elif w.sticky > 0:
        w.sticky -= 1
        start = w.block
    count = w.launch.blocks
    free = ~w.waiting
    for i in range(count):
        b = start + i
        if b >= count:
            b -= count
        m = w.pending[b] & free
        if m != 0:
            if w.sticky == FAVOURED_TURNS:
                w.rotor = b + 1
            w.pending[b] = w.pending[b] & ~m
            w.active = m
            w.block = b
            w.others = w.live & ~m
            return JUMP
    return WAIT


@native
def pend(w: WarpRecord, block: i64, mask: i64) -> i64:
    """Make lanes pending at a block."""
    w.pending[block] = w.pending[block] | mask
    return 0


@native
def next_after(w: WarpRecord, block: i64, cost: i64) -> i64:
    """``next_group`` after the lanes that ran ``block`` became pending, at an earlier block if
    ``cost`` is not 0: the steps of an iteration of that loop. YIELD, with no active lanes, if they
    exhaust the step budget.
    """
    w.block = block
    if cost != 0:
        w.spin += cost
        w.budget -= cost
        if w.budget < 0:
            w.active = 0
            return YIELD
    return next_group(w)


@native
def fault_missing_lanes(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """Record a fault (returns 1): only the lanes in ``mask`` execute an operation that other lanes
    of the warp must execute with them.
    """
    w.worker.fault_value = w.live
    fault(w, MISSING_LANES, pc, lowest(mask), mask)
    return 1


@native
def check_member_masks(w: WarpRecord, mask: i64, members: Ptr[u32], pc: i64) -> i64:
    """Record a fault and return 1 if a lane is not in its own member mask, or a lane in it has a
    different member mask.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        own = members[lane]
        named = own & mask
        bad = lane if (own >> lane & 1) == 0 else -1
        while named != 0 and bad < 0:
            other = lowest(named)
            named = named & (named - 1)
            if members[other] != own:
                bad = other
        if bad >= 0:
            w.worker.fault_value = members[bad]
            fault(w, BAD_MEMBER_MASK, pc, bad, own)
            return 1
    return 0


@native
def await_members(w: WarpRecord, members: i64, block: i64, pc: i64) -> i64:
    """A convergent operation at the start of ``block``: CONVERGED if all live members are active.

    Otherwise the active group parks at the block and another one runs (JUMP). If all other lanes
    are asleep until an mbarrier changes, it sleeps with them (WAIT). FAULT if no member can arrive
    any more: all live lanes are parked or at a barrier, and retrying each of them changed nothing.
    """
    missing = members & w.live & ~w.active
    if missing == 0:
        w.parked = w.parked & ~w.active
        w.stuck = 0
        return CONVERGED
    w.pending[block] = w.pending[block] | w.active
    w.parked = w.parked | w.active
    if (w.live & ~w.parked & ~w.waiting) == 0:
        if w.asleep != 0:
            w.asleep = w.asleep | w.parked
            w.waiting = w.waiting | w.parked
            w.parked = 0
            return WAIT
        if w.stuck != 0 or (w.parked & ~w.active & w.live) == 0:
            fault(w, DIVERGED, pc, lowest(w.active), missing)
            return FAULT
        w.stuck = 1
        w.parked = w.active
    w.waiting = w.waiting | w.parked
    next_group(w)
    w.waiting = w.waiting & ~w.parked
    meeting = w.pending[w.block] & w.parked
    w.active = w.active | meeting
    w.others = w.others & ~meeting
    w.pending[w.block] = w.pending[w.block] & ~meeting
    return JUMP
