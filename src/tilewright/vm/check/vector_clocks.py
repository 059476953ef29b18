"""Who has waited for whom, in native code: vector clocks of a checked launch.

Every *actor* counts its steps: a warp, its ``cp.async`` copies, its bulk copies to global memory, a
warpgroup's products, each bulk copy into shared memory, and, in one step, the grid before. A
*clock* has for each actor of the cluster the step up to which it was waited for. Warps have clocks,
and so has whatever they meet at (barriers, mbarriers, the cluster's barrier), which passes on what
came to it.

A clock's second half is what of the first a proxy fence has shown to the async proxy. What is not
told apart (what lanes of a warp waited for, mbarriers beyond the ``MBARRIERS``-th) can hide a race,
never make one.
"""

from __future__ import annotations

from ...native.intrinsics import at, lshr
from ...native.native_language import Ptr, i64, native, u32
from ..state.records import BARRIERS, TRACKED_MBARRIERS, WARPGROUP_WARPS, Cta, WarpRecord

# A function that only a checked launch needs, which has its part loaded.
when_checked = native(part="checked", deferred=True)

CTA_BYTES = Cta.size
KINDS = 4
WARP, ASYNC_COPIES, WGMMAS, BULK_STORES = range(KINDS)  # a warp's actors; the first two are generic
STEP, ACTOR, LANE = 37, 25, 19  # what is done in a step: step | actor | lane | operation
FIELD, LANES, OPERATION = (1 << STEP - ACTOR) - 1, (1 << ACTOR - LANE) - 1, (1 << LANE) - 1
CLUSTER_OPEN, CLUSTER_DONE, STRONG, USED, TOUCHED, ENDED = range(BARRIERS, BARRIERS + 6)
CLOCKS = ENDED + 1 + 2 * TRACKED_MBARRIERS  # of a CTA, besides its warps'


@native(inline=True)
def actor_count(cta: Cta) -> i64:
    """How many the cluster has."""
    return cta.launch.actors * cta.launch.cluster_size


@native(inline=True)
def warp_actor(w: WarpRecord, kind: i64) -> i64:
    """The number of a warp's actor."""
    return w.cta.rank * w.launch.actors + w.index * KINDS + kind


@native(inline=True)
def wgmma_actor(w: WarpRecord) -> i64:
    """The actor of products: a warpgroup's first warp's."""
    return w.cta.rank * w.launch.actors + (w.index & -WARPGROUP_WARPS) * KINDS + WGMMAS


@native(inline=True)
def clock(cta: Cta, number: i64) -> Ptr[u32]:
    return at(u32, cta.clocks + number * actor_count(cta) * 8)


@native(inline=True)
def sync_clock(cta: Cta, number: i64) -> Ptr[u32]:
    """The clock of a barrier, or one of those with a name above."""
    return clock(cta, cta.launch.warps + number)


@when_checked
def join(to: Ptr[u32], from_: Ptr[u32], count: i64) -> i64:
    for i in range(count):
        if to[i] < from_[i]:
            to[i] = from_[i]
    return 0


@when_checked
def release(w: WarpRecord, to: Ptr[u32]) -> i64:
    """What this warp knows goes into another clock; what it does from now on does not."""
    own_clock = clock(w.cta, w.index)
    join(to, own_clock, 2 * actor_count(w.cta))
    own_clock[warp_actor(w, WARP)] = own_clock[warp_actor(w, WARP)] + 1
    return 0


@when_checked
def acquire(w: WarpRecord, from_: Ptr[u32]) -> i64:
    return join(clock(w.cta, w.index), from_, 2 * actor_count(w.cta))


@when_checked
def advance(w: WarpRecord, actor: i64, step: i64) -> i64:
    """An actor was waited for, up to a step."""
    own_clock = clock(w.cta, w.index)
    if own_clock[actor] < step:
        own_clock[actor] = step
    return 0


@when_checked
def advance_groups(w: WarpRecord, mask: i64, actor: i64, groups: Ptr[u32], pending: i64) -> i64:
    """The same, for lanes that committed a number of groups and wait for all but some."""
    for lane in range(32):
        if (mask >> lane & 1) != 0 and groups[lane] > pending:
            advance(w, actor, groups[lane] - pending)
    return 0


@when_checked
def order_strong(w: WarpRecord) -> i64:
    """An atomic or strong access orders this warp after all those before it, and before all later
    ones, wherever they are: more than is promised.
    """
    strong = sync_clock(at(Cta, w.cta.first), STRONG)
    acquire(w, strong)
    return release(w, strong)


@when_checked
def proxy_fence(w: WarpRecord, mask: i64) -> i64:
    """What the warp knows is known to the async proxy too."""
    own_clock = clock(w.cta, w.index)
    count = actor_count(w.cta)
    if mask != 0 and w.launch.checked != 0:
        join(own_clock + count, own_clock, count)
        own_clock[warp_actor(w, WARP)] = own_clock[warp_actor(w, WARP)] + 1
    return 0


@when_checked
def warp_fence(w: WarpRecord, mask: i64) -> i64:
    """``bar.warp.sync``: what lanes did before is known to one another."""
    if mask != 0 and w.launch.checked != 0:
        step = clock(w.cta, w.index) + warp_actor(w, WARP)
        step[0] = step[0] + 1
    return 0


@native(inline=True)
def previous_grid_actor(cta: Cta) -> i64:
    """The actor that the grid before is to a CTA: its last."""
    return (cta.rank + 1) * cta.launch.actors - 1


@when_checked
def grid_dependency_wait(w: WarpRecord, mask: i64) -> i64:
    """``griddepcontrol.wait``: the grid before has ended, for all CTAs of the cluster."""
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
    """The warp's own step."""
    actor = warp_actor(w, WARP)
    return pack_step(actor, clock(w.cta, w.index)[actor], pc)


@when_checked
def record_use(cta: Cta, use: i64) -> i64:
    """Before the CTA ends, this step has to be waited for: it uses its shared memory."""
    touched = sync_clock(cta, TOUCHED)
    actor = use >> ACTOR & FIELD
    touched[actor] = lshr(use, STEP)
    touched[actor_count(cta) + actor] = use & OPERATION
    return 0


# --- mbarriers ------------------------------------------------------------------------------------


@when_checked
def barrier_clock(cta: Cta, offset: i64) -> i64:
    """The number of the clock that an mbarrier's open phase has; the next one is that of its phases
    that are over. The last such two are also of all that found no others.
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
def record_completion(cta: Cta, offset: i64, copy_step: i64) -> i64:
    """An asynchronous copy tells an mbarrier."""
    barrier_steps = sync_clock(cta, barrier_clock(cta, offset))
    actor = copy_step >> ACTOR & FIELD
    if barrier_steps[actor] < lshr(copy_step, STEP):
        barrier_steps[actor] = lshr(copy_step, STEP)
    return 0
