"""The race detector for shared memory, in native code, used by checked launches.

Shadow memory holds for each byte the step (``vector_clocks``) of its last write, and for each
granule of 16 bytes the steps of the reads since. An access races if the warp's clock does not
include such a step. An asynchronous access is recorded when it is issued; the clocks include it
once it has been waited for.
"""

from __future__ import annotations

from ...native.intrinsics import at, lshr, umod
from ...native.native_language import Ptr, i64, native, u8, u16, u32, u64
from ..state.lane_groups import fault
from ..state.records import (
    BAD_FENCE,
    GRID_DEPENDENCY,
    LIVE_READ_ONLY,
    RACE,
    Cta,
    LaunchRecord,
    WarpRecord,
)
from .vector_clocks import (
    ACTOR,
    ASYNC_COPIES,
    CLOCKS,
    FIELD,
    KINDS,
    LANE,
    LANES,
    OPERATION,
    STEP,
    USED,
    WARP,
    actor_count,
    clock,
    previous_grid_actor,
    sync_clock,
    when_checked,
)

CTA_BYTES = Cta.size
GRANULE, GRANULE_BITS, ALL_BYTES = 16, 4, 0xFFFF  # bytes that share a list of readers
READERS = 16  # readers recorded for a granule; another one replaces one of them
GENERIC, ASYNC, WGMMA = range(3)  # who reads: generic proxy, async proxy, a wgmma
# Values in place of a lane: each byte was accessed by at least two lanes; by one or more lanes.
SEVERAL_LANES, ANY_LANES = 32, 33
READ_EARLY, WRITTEN_TWICE, WRITTEN_EARLY, NO_FENCE, EXITED_EARLY = range(5)  # kinds of races


@when_checked
def reset_clocks(cta: Cta) -> i64:
    """Clear the clocks and the shadow memory of a CTA that starts."""
    launch = cta.launch
    words = at(u64, cta.clocks)
    for i in range((launch.warps + CLOCKS) * actor_count(cta)):
        words[i] = 0
    words = at(u64, cta.shadow)
    for i in range(launch.shadow_bytes >> 3):
        words[i] = 0
    cta.mbarrier_count = 0
    for i in range(launch.warps):
        w = at(WarpRecord, cta.frames + i * launch.frame_bytes)
        clock(cta, i)[cta.rank * launch.actors + i * KINDS + WARP] = 1
        w.unfenced = -1
        w.in_flight = -1
    return 0


# --- accesses -------------------------------------------------------------------------------------


@native(inline=True)
def is_unordered(w: WarpRecord, own_clock: Ptr[u32], previous: i64) -> i64:
    return own_clock[previous >> ACTOR & FIELD] < lshr(previous, STEP)


@native(inline=True)
def is_unfenced(w: WarpRecord, own_clock: Ptr[u32], previous: i64) -> i64:
    """Whether a previous access through the generic proxy is not visible to the async proxy."""
    actor = previous >> ACTOR & FIELD
    number = umod(actor, w.launch.actors)
    if number >= w.launch.warps * KINDS or (number & (KINDS - 1)) > ASYNC_COPIES:
        return 0
    return own_clock[actor_count(w.cta) + actor] < lshr(previous, STEP)


@when_checked
def fault_race(w: WarpRecord, error: i64, previous: i64, offset: i64, lane: i64, pc: i64) -> i64:
    """Report a race with a previous access. Returns 1."""
    if w.worker.fault == 0:
        w.worker.fault_value = error << ACTOR | previous & OPERATION
    fault(w, BAD_FENCE if error == NO_FENCE else RACE, pc, lane, offset)
    return 1


@native(inline=True)
def readers(cta: Cta, granule: i64) -> Ptr[u64]:
    return at(u64, cta.shadow + cta.launch.shadow_room * 8 + granule * (READERS * 8))


@native(inline=True)
def reader_masks(cta: Cta, granule: i64) -> Ptr[u16]:
    """For each reader of a granule, the mask of the bytes that it has read."""
    capacity = cta.launch.shadow_room
    return at(u16, cta.shadow + capacity * (8 + READERS * 8 // GRANULE) + granule * (READERS * 2))


@native(inline=True)
def bytes_of(low: i64, high: i64, granule: i64) -> i64:
    """The mask of the bytes of a granule between two addresses."""
    first = granule << GRANULE_BITS
    begin = low - first if low > first else 0
    end = high - first if high < first + GRANULE else GRANULE
    return (1 << end) - (1 << begin)


@native(inline=True)
def with_lane(step: i64, lane: i64) -> i64:
    """The same step of another lane."""
    return step & ~(LANES << LANE) | lane << LANE


@native(inline=True)
def unordered_lanes(previous: i64, step: i64) -> i64:
    """Whether two lanes of a warp accessed the bytes in one step, by different instructions."""
    lane = previous >> LANE & LANES
    if (previous ^ step) >> ACTOR != 0 or ((previous ^ step) & OPERATION) == 0 or lane == ANY_LANES:
        return 0
    return lane != (step >> LANE & LANES)


@when_checked
def record_reader(
    own_clock: Ptr[u32], steps: Ptr[u64], masks: Ptr[u16], step: i64, bytes_: i64
) -> i64:
    """Record a reader of a granule. It replaces a reader that happened before it and has read no
    other bytes, or is merged with a reader of the same step.
    """
    index = READERS
    same_step = READERS
    for i in range(READERS):
        reader = steps[i]
        lane = reader >> LANE & LANES
        if reader == 0:
            if i + 1 < READERS:
                steps[i + 1] = 0
            index = i
            break
        if (reader ^ step) >> ACTOR == 0:
            same_step = i
            if lane == (step >> LANE & LANES) or masks[i] == bytes_:
                if lane != (step >> LANE & LANES):
                    step = with_lane(step, ANY_LANES if lane == ANY_LANES else SEVERAL_LANES)
                bytes_ = bytes_ | masks[i]
                index = i
                break
        elif (masks[i] & ~bytes_) == 0 and (
            own_clock[reader >> ACTOR & FIELD] >= lshr(reader, STEP)
            or ((reader ^ step) >> ACTOR & FIELD) == 0
        ):
            index = i
            break
    if index == READERS and same_step < READERS:
        index = same_step
        step = with_lane(step, ANY_LANES)
        bytes_ = bytes_ | masks[index]
    if index == READERS:
        index = lshr(step, STEP) & (READERS - 1)
    steps[index] = step
    masks[index] = bytes_
    return 0


@when_checked
def check_read(
    w: WarpRecord, cta: Cta, low: i64, size: i64, step: i64, proxy: i64, lane: i64
) -> i64:
    """Record a read of a CTA's shared memory. Returns 1 after a race."""
    own_clock = clock(w.cta, w.index)
    used = sync_clock(cta, USED)
    writers = at(u64, cta.shadow)
    last = 0
    pc = step & OPERATION
    for i in range(low, low + size):
        previous = writers[i]
        if previous != last:
            last = previous
            if is_unordered(w, own_clock, previous) != 0 or unordered_lanes(previous, step) != 0:
                return fault_race(w, READ_EARLY, previous, i, lane, pc)
            if proxy != GENERIC and is_unfenced(w, own_clock, previous) != 0:
                return fault_race(w, NO_FENCE, previous, i, lane, pc)
            if proxy == WGMMA:
                used[previous >> ACTOR & FIELD] = lshr(previous, STEP)
    for granule in range(low >> GRANULE_BITS, ((low + size - 1) >> GRANULE_BITS) + 1):
        bytes_ = bytes_of(low, low + size, granule)
        record_reader(own_clock, readers(cta, granule), reader_masks(cta, granule), step, bytes_)
    return 0


@when_checked
def check_write(w: WarpRecord, cta: Cta, low: i64, size: i64, step: i64, lane: i64) -> i64:
    """Record a write. Returns 1 after a race."""
    own_clock = clock(w.cta, w.index)
    writers = at(u64, cta.shadow)
    last = 0
    recorded = step
    pc = step & OPERATION
    for i in range(low, low + size):
        previous = writers[i]
        if previous != last:
            last = previous
            recorded = step
            if with_lane(previous, 0) == with_lane(step, 0):
                recorded = step if previous == step else with_lane(step, ANY_LANES)
            elif is_unordered(w, own_clock, previous) != 0 or unordered_lanes(previous, step) != 0:
                return fault_race(w, WRITTEN_TWICE, previous, i, lane, pc)
        writers[i] = recorded
    for granule in range(low >> GRANULE_BITS, ((low + size - 1) >> GRANULE_BITS) + 1):
        steps = readers(cta, granule)
        masks = reader_masks(cta, granule)
        bytes_ = bytes_of(low, low + size, granule)
        for i in range(READERS):
            if steps[i] == 0:
                break
            unordered = is_unordered(w, own_clock, steps[i]) | unordered_lanes(steps[i], step)
            if (masks[i] & bytes_) != 0 and unordered != 0:
                return fault_race(w, WRITTEN_EARLY, steps[i], granule << GRANULE_BITS, lane, pc)
            masks[i] = masks[i] & ~bytes_
        if bytes_ == ALL_BYTES:
            steps[0] = 0
    return 0


@when_checked
def writes_same_value(cta: Cta, low: i64, n: i64, values: Ptr[u8], size: i64, pc: i64) -> i64:
    """Whether the same instruction has already written this value there, so order is irrelevant."""
    writers = at(u64, cta.shadow)
    memory = at(u8, cta.shared + low)
    for i in range(n):
        value = values[i // size * (size * 32) + umod(i, size)]
        if (writers[low + i] & OPERATION) != pc or memory[i] != value:
            return 0
    return 1


# --- the previous grid ----------------------------------------------------------------------------


@native(inline=True)
def is_read_only(launch: LaunchRecord, a: i64) -> i64:
    """Whether the allocation at a device address is one that no kernel may write."""
    for i in range(launch.allocation_count):
        allocation = launch.allocations[i]
        if a >= allocation.start and a < allocation.end:
            return 1 if allocation.live == LIVE_READ_ONLY else 0
    return 0


@when_checked
def check_grid_dependency(w: WarpRecord, a: i64, lane: i64, pc: i64) -> i64:
    """Global memory is accessed. Returns 1 after a fault if the previous grid may still use it;
    read-only memory it may only read.
    """
    if w.launch.overlaps == 0 or clock(w.cta, w.index)[previous_grid_actor(w.cta)] != 0:
        return 0
    if is_read_only(w.launch, a) != 0:
        return 0
    fault(w, GRID_DEPENDENCY, pc, lane, a)
    return 1
