"""The sixteen barriers of a CTA, in native code.

A warp counts as 32 threads once the last of its live lanes has arrived, by whichever of the
barrier's instructions. A barrier does not wait for warps that have exited.
"""

from __future__ import annotations

from ...native.intrinsics import at, lowest, popcount
from ...native.native_language import i64, native
from ..check.vector_clocks import acquire, actor_count, release, sync_clock
from ..state.lane_groups import fault, next_group
from ..state.records import (
    BAD_BARRIER,
    BARRIERS,
    DONE,
    EXITED,
    FAULT,
    JUMP,
    READY,
    WAIT,
    WAITING,
    Cta,
    WarpRecord,
)
from .mbarrier_model import cluster_exit


@native
def complete_barrier(cta: Cta, index: i64) -> i64:
    """Complete the barrier's phase if all expected threads have arrived. Returns 1 if so."""
    bar = cta.barriers[index]
    expected = bar.expected
    if expected == 0:
        expected = cta.live_warps * 32
    if bar.arrived == 0 or bar.arrived < expected:
        return 0
    bar.arrived = 0
    bar.expected = 0
    bar.last_true_votes = bar.true_votes
    bar.last_false_votes = bar.false_votes
    bar.true_votes = 0
    bar.false_votes = 0
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        if (w.counted_at & (1 << index)) != 0:
            if cta.launch.checked != 0:
                acquire(w, sync_clock(cta, index))
            w.waiting = w.waiting & ~w.waiting_at[index]
            w.waiting_at[index] = 0
            w.counted_at = w.counted_at & ~(1 << index)
            if w.state == WAITING:
                w.state = READY
    if cta.launch.checked != 0:
        barrier_clock = sync_clock(cta, index)
        for i in range(2 * actor_count(cta)):
            barrier_clock[i] = 0
    return 1


@native
def count_warp(w: WarpRecord, index: i64) -> i64:
    """Count this warp once all of its live lanes have arrived at the barrier."""
    arrived_lanes = w.waiting_at[index] | w.arrived_at[index]
    if arrived_lanes == 0 or (w.live & ~arrived_lanes) != 0 or (w.counted_at & (1 << index)) != 0:
        return 0
    w.arrived_at[index] = 0
    if w.waiting_at[index] != 0:
        w.counted_at = w.counted_at | (1 << index)
    bar = w.cta.barriers[index]
    bar.arrived += 32
    return complete_barrier(w.cta, index)


@native
def barrier(
    w: WarpRecord, index: i64, threads: i64, arrive: i64, votes: i64, follow: i64, pc: i64
) -> i64:
    """``bar.sync`` and ``bar.red`` (``arrive`` 0) or ``bar.arrive`` of the active lanes.

    Lanes that wait resume at block ``follow``. Returns what the region returns to the scheduler.
    """
    all_threads = w.launch.warps * 32
    if index >= BARRIERS or (threads & 31) != 0 or threads > all_threads:
        fault(w, BAD_BARRIER, pc, lowest(w.active), index)
        return FAULT
    bar = w.cta.barriers[index]
    if threads != 0:
        if bar.expected != 0 and bar.expected != threads:
            fault(w, BAD_BARRIER, pc, lowest(w.active), index)
            return FAULT
        bar.expected = threads
    lanes = w.active
    if w.launch.checked != 0:
        release(w, sync_clock(w.cta, index))
    bar.true_votes += popcount(votes)
    bar.false_votes += popcount(lanes & ~votes)
    if arrive != 0:
        w.arrived_at[index] = w.arrived_at[index] | lanes
        count_warp(w, index)
        return JUMP
    w.waiting_at[index] = w.waiting_at[index] | lanes
    w.waiting = w.waiting | lanes
    w.block = follow
    if w.launch.divergent == 0:
        count_warp(w, index)
        return WAIT if w.waiting != 0 else JUMP
    w.pending[follow] = w.pending[follow] | lanes
    count_warp(w, index)
    return next_group(w)


@native
def barrier_result(w: WarpRecord, index: i64, op: i64) -> i64:
    """The result of ``bar.red`` of the last phase. ``op``: 0 popc, 1 or, 2 and."""
    bar = w.cta.barriers[index]
    if op == 2:
        return bar.last_false_votes == 0
    return bar.last_true_votes if op == 0 else bar.last_true_votes != 0


@native
def exit_lanes(w: WarpRecord, mask: i64) -> i64:
    """These lanes exit, which may complete barriers. Returns DONE if no live lane is left."""
    if w.launch.cluster_size > 1:
        cluster_exit(w, mask)
    w.live = w.live & ~mask
    w.active = w.active & ~mask
    w.others = w.others & ~mask
    w.stuck = 0
    for b in range(BARRIERS):
        count_warp(w, b)
    if w.live != 0:
        return JUMP
    cta = w.cta
    cta.live_warps -= 1
    w.state = EXITED
    for b in range(BARRIERS):
        complete_barrier(cta, b)
    return DONE
