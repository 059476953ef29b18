"""Barriers of a CTA, in native code: sixteen of them, each counting warps.

A warp counts, 32 threads at once, when the last of its living lanes has come, whichever of the
barrier's instructions each came by. An exited warp is no longer waited for.
"""

from __future__ import annotations

from ...native.intrinsics import at, lowest, popcount
from ...native.native_language import i64, native
from ..check.vector_clocks import acquire, actor_count, release, sync_clock
from ..state.lane_groups import fault, next_group
from ..state.records import (  # fmt: skip
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
def barrier_check(cta: Cta, index: i64) -> i64:
    """Open the barrier if all that it waits for have come."""
    bar = cta.barriers[index]
    expected = bar.expected
    if expected == 0:
        expected = cta.live_warps * 32
    if bar.arrived == 0 or bar.arrived < expected:
        return 0
    bar.arrived = 0
    bar.expected = 0
    bar.last_ayes = bar.ayes
    bar.last_nays = bar.nays
    bar.ayes = 0
    bar.nays = 0
    for i in range(cta.launch.warps):
        w = at(WarpRecord, cta.frames + i * cta.launch.frame_bytes)
        if (w.arrived & (1 << index)) != 0:
            if cta.launch.checked != 0:
                acquire(w, sync_clock(cta, index))
            w.waiting = w.waiting & ~w.at[index]
            w.at[index] = 0
            w.arrived = w.arrived & ~(1 << index)
            if w.state == WAITING:
                w.state = READY
    if cta.launch.checked != 0:
        barrier_clock = sync_clock(cta, index)
        for i in range(2 * actor_count(cta)):
            barrier_clock[i] = 0
    return 1


@native
def warp_arrives(w: WarpRecord, index: i64) -> i64:
    """Count this warp in once all of its living lanes have come to the barrier."""
    arrived_lanes = w.at[index] | w.came[index]
    if arrived_lanes == 0 or (w.live & ~arrived_lanes) != 0 or (w.arrived & (1 << index)) != 0:
        return 0
    w.came[index] = 0
    if w.at[index] != 0:
        w.arrived = w.arrived | (1 << index)
    bar = w.cta.barriers[index]
    bar.arrived += 32
    return barrier_check(w.cta, index)


@native
def barrier(
    w: WarpRecord, index: i64, threads: i64, arrive: i64, votes: i64, follow: i64, pc: i64
) -> i64:
    """``bar.sync`` and ``bar.red`` (``arrive`` 0) or ``bar.arrive`` of the active lanes.

    Those that wait go on at block ``follow``; returns what the region has to do.
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
    bar.ayes += popcount(votes)
    bar.nays += popcount(lanes & ~votes)
    if arrive != 0:
        w.came[index] = w.came[index] | lanes
        warp_arrives(w, index)
        return JUMP
    w.at[index] = w.at[index] | lanes
    w.waiting = w.waiting | lanes
    w.block = follow
    if w.launch.divergent == 0:
        warp_arrives(w, index)
        return WAIT if w.waiting != 0 else JUMP
    w.pending[follow] = w.pending[follow] | lanes
    warp_arrives(w, index)
    return next_group(w)


@native
def barrier_result(w: WarpRecord, index: i64, op: i64) -> i64:
    """What ``bar.red`` found when the barrier last opened: 0 popc, 1 or, 2 and."""
    bar = w.cta.barriers[index]
    if op == 2:
        return bar.last_nays == 0
    return bar.last_ayes if op == 0 else bar.last_ayes != 0


@native
def lanes_exit(w: WarpRecord, mask: i64) -> i64:
    """These lanes end. Barriers count the living, so that may complete one. DONE: the last did."""
    if w.launch.cluster_size > 1:
        cluster_exit(w, mask)
    w.live = w.live & ~mask
    w.active = w.active & ~mask
    w.others = w.others & ~mask
    w.stuck = 0
    for b in range(BARRIERS):
        warp_arrives(w, b)
    if w.live != 0:
        return JUMP
    cta = w.cta
    cta.live_warps -= 1
    w.state = EXITED
    for b in range(BARRIERS):
        barrier_check(cta, b)
    return DONE
