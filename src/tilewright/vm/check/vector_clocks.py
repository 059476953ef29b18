"""Vector clocks of a checked launch, in native code.

An *actor* counts its own steps. The actors are: each warp, its ``cp.async`` copies, its bulk copies
to global memory, the wgmmas of a warpgroup, each bulk copy to shared memory, and the previous grid
(one step). A *clock* holds for each actor of the cluster the last step that happened before. Each
warp has a clock, and so has each synchronization object (barriers, mbarriers, the cluster's
barrier): arriving joins the warp's clock into it, waiting joins it into the warp's clock.

The second half of a clock holds the steps that a proxy fence has made visible to the async proxy.
The lanes of a warp share a clock, and so do the mbarriers beyond ``TRACKED_MBARRIERS``: this can
hide a race, but never report a false one.
"""

from __future__ import annotations

from ...native.intrinsics import at, lshr
from ...native.native_language import Ptr, i64, native, u32
from ..state.records import BARRIERS, TRACKED_MBARRIERS, WARPGROUP_WARPS, Cta, WarpRecord

# A native function that only checked launches call; they load its part.
when_checked = native(part="checked", deferred=True)

CTA_BYTES = Cta.size
KINDS = 4
WARP, ASYNC_COPIES, WGMMAS, BULK_STORES = range(KINDS)  # a warp's actors; the first two are generic
STEP, ACTOR, LANE = 37, 25, 19  # shifts of a packed step: step | actor | lane | operation
FIELD, LANES, OPERATION = (1 << STEP - ACTOR) - 1, (1 << ACTOR - LANE) - 1, (1 << LANE) - 1
CLUSTER_OPEN, CLUSTER_DONE, STRONG, USED, TOUCHED, ENDED = range(BARRIERS, BARRIERS + 6)
CLOCKS = ENDED + 1 + 2 * TRACKED_MBARRIERS  # clocks of a CTA besides those of its warps


@native(inline=True)
def actor_count(cta: Cta) -> i64:
    """The number of actors of the cluster."""
    return cta.launch.actors * cta.launch.cluster_size


@native(inline=True)
def warp_actor(w: WarpRecord, kind: i64) -> i64:
    """The number of a warp's actor."""
    return w.cta.rank * w.launch.actors + w.index * KINDS + kind


@native(inline=True)
def wgmma_actor(w: WarpRecord) -> i64:
    """The actor of the warpgroup's wgmmas, which belongs to its first warp."""
    return w.cta.rank * w.launch.actors + (w.index & -WARPGROUP_WARPS) * KINDS + WGMMAS


@native(inline=True)
def clock(cta: Cta, number: i64) -> Ptr[u32]:
    return at(u32, cta.clocks + number * actor_count(cta) * 8)


@native(inline=True)
def sync_clock(cta: Cta, number: i64) -> Ptr[u32]:
    """The clock of a barrier of the CTA, or of one of the objects named above."""
    return clock(cta, cta.launch.warps + number)


@when_checked
def join(to: Ptr[u32], from_: Ptr[u32], count: i64) -> i64:
    for i in range(count):
        if to[i] < from_[i]:
            to[i] = from_[i]
    return 0


@when_checked
def release(w: WarpRecord, to: Ptr[u32]) -> i64:
    """Join the warp's clock into another clock, then begin a new step of the warp."""
    own_clock = clock(w.cta, w.index)
    join(to, own_clock, 2 * actor_count(w.cta))
    own_clock[warp_actor(w, WARP)] = own_clock[warp_actor(w, WARP)] + 1
    return 0


@when_checked
def acquire(w: WarpRecord, from_: Ptr[u32]) -> i64:
    return join(clock(w.cta, w.index), from_, 2 * actor_count(w.cta))


@when_checked
def advance(w: WarpRecord, actor: i64, step: i64) -> i64:
    """The warp has waited for an actor up to a step."""
    own_clock = clock(w.cta, w.index)
    if own_clock[actor] < step:
        own_clock[actor] = step
    return 0


@when_checked
def advance_groups(w: WarpRecord, mask: i64, actor: i64, groups: Ptr[u32], pending: i64) -> i64:
    """The same for lanes that wait for all their committed ``groups`` except ``pending``."""
    for lane in range(32):
        if (mask >> lane & 1) != 0 and groups[lane] > pending:
            advance(w, actor, groups[lane] - pending)
    return 0


@when_checked
def order_strong(w: WarpRecord) -> i64:
    """An atomic or strong access orders this warp after all earlier and before all later ones, at
    any address: more than the memory model guarantees.
    """
    strong = sync_clock(at(Cta, w.cta.first), STRONG)
    acquire(w, strong)
    return release(w, strong)


@when_checked
def proxy_fence(w: WarpRecord, mask: i64) -> i64:
    """``fence.proxy.async``: all steps in the warp's clock become visible to the async proxy."""
    own_clock = clock(w.cta, w.index)
    count = actor_count(w.cta)
    if mask != 0 and w.launch.checked != 0:
        join(own_clock + count, own_clock, count)
        own_clock[warp_actor(w, WARP)] = own_clock[warp_actor(w, WARP)] + 1
    return 0


@when_checked
def warp_fence(w: WarpRecord, mask: i64) -> i64:
    """``bar.warp.sync``: begins a new step of the warp, so that its lanes are ordered."""
    if mask != 0 and w.launch.checked != 0:
        step = clock(w.cta, w.index) + warp_actor(w, WARP)
        step[0] = step[0] + 1
    return 0


@native(inline=True)
def previous_grid_actor(cta: Cta) -> i64:
    """The actor of the previous grid: the last one of a CTA."""
    return (cta.rank + 1) * cta.launch.actors - 1


@when_checked
def grid_dependency_wait(w: WarpRecord, mask: i64) -> i64:
    """``griddepcontrol.wait``: the previous grid has ended, for all CTAs of the cluster."""
    if mask != 0 and w.launch.checked != 0:
        for rank in range(w.launch.cluster_size):
            advance(w, previous_grid_actor(at(Cta, w.cta.first + rank * CTA_BYTES)), 1)
    return 0


# --- steps ----------------------------------------------------------------------------------------


@native(inline=True)
def pack_step(actor: i64, step: i64, pc: i64) -> i64:
    return step << STEP | actor << ACTOR | pc


@native(inline=True)
def current_step(w: WarpRecord, pc: i64) -> i64:
    """The warp's current step, for operation ``pc``."""
    actor = warp_actor(w, WARP)
    return pack_step(actor, clock(w.cta, w.index)[actor], pc)


@when_checked
def record_use(cta: Cta, step: i64) -> i64:
    """Record that a step uses the CTA's shared memory; it must complete before the CTA exits."""
    uses = sync_clock(cta, TOUCHED)
    actor = step >> ACTOR & FIELD
    uses[actor] = lshr(step, STEP)
    uses[actor_count(cta) + actor] = step & OPERATION
    return 0


# --- mbarriers ------------------------------------------------------------------------------------


@when_checked
def barrier_clock(cta: Cta, offset: i64) -> i64:
    """The number of the clock of an mbarrier's current phase; the next number is the clock of its
    completed phases. Mbarriers that are not tracked share the last pair.
    """
    n = 0
    while n < TRACKED_MBARRIERS - 1 and n < cta.mbarrier_count and cta.mbarriers[n] != offset:
        n += 1
    return ENDED + 1 + 2 * n


@when_checked
def complete_phase(cta: Cta, offset: i64) -> i64:
    number = barrier_clock(cta, offset)
    return join(sync_clock(cta, number + 1), sync_clock(cta, number), 2 * actor_count(cta))


@when_checked
def record_completion(cta: Cta, offset: i64, step: i64) -> i64:
    """The completion of an asynchronous copy is part of an mbarrier's current phase."""
    clock_ = sync_clock(cta, barrier_clock(cta, offset))
    actor = step >> ACTOR & FIELD
    if clock_[actor] < lshr(step, STEP):
        clock_[actor] = lshr(step, STEP)
    return 0
