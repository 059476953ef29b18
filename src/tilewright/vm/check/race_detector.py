"""The race detector for shared memory, in native code, used by checked launches.

Shadow memory records for each byte the step (``vector_clocks``) of its last write, and for each 16
bytes the steps of the reads since. An access races if its warp's clock does not cover such a step.
An asynchronous access counts when it is issued, and is covered once it was waited for.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, lowest, lshr, umod
from ...native.native_language import Ptr, i64, native, u8, u16, u32, u64
from ..state.lane_groups import fault, fault_at
from ..state.records import (
    BAD_FENCE,
    DOUBLE_INIT,
    GRID_DEPENDENCY,
    MAX_BULK_COPIES,
    RACE,
    UNREAD_COPY,
    BulkCopy,
    Cta,
    WarpRecord,
)
from .vector_clocks import (  # fmt: skip
    ACTOR,
    ASYNC_COPIES,
    BULK_STORES,
    CLOCKS,
    ENDED,
    FIELD,
    KINDS,
    LANE,
    LANES,
    OPERATION,
    STEP,
    TOUCHED,
    USED,
    WARP,
    actor_count,
    barrier_clock,
    clock,
    current_step,
    join,
    pack_step,
    previous_grid_actor,
    record_use,
    sync_clock,
    warp_actor,
    when_checked,
)

CTA_BYTES = Cta.size
GRANULE, GRANULE_BITS, ALL_BYTES = 16, 4, 0xFFFF  # bytes that have their readers in common
READERS = 16  # of a piece; more push one out
GENERIC, ASYNC, PRODUCT = range(3)  # who reads
SEVERAL_LANES, ANY_LANES = (
    32,
    33,
)  # in a lane's place: each byte by two lanes at least; by one or more
READ_EARLY, WRITTEN_TWICE, WRITTEN_EARLY, NO_FENCE, EXITED_EARLY = range(5)  # what went wrong


@when_checked
def reset_clocks(cta: Cta) -> i64:
    """Nobody has done anything."""
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
def is_unordered(w: WarpRecord, known: Ptr[u32], before: i64) -> i64:
    return known[before >> ACTOR & FIELD] < lshr(before, STEP)


@native(inline=True)
def is_unfenced(w: WarpRecord, known: Ptr[u32], before: i64) -> i64:
    """Whether an access through the generic proxy is unknown to the async proxy."""
    actor = before >> ACTOR & FIELD
    number = umod(actor, w.launch.actors)
    if number >= w.launch.warps * KINDS or (number & (KINDS - 1)) > ASYNC_COPIES:
        return 0
    return known[actor_count(w.cta) + actor] < lshr(before, STEP)


@when_checked
def fault_race(w: WarpRecord, what: i64, before: i64, where: i64, lane: i64, pc: i64) -> i64:
    """The fault; 1."""
    if w.worker.fault == 0:
        w.worker.fault_value = what << ACTOR | before & OPERATION
    fault(w, BAD_FENCE if what == NO_FENCE else RACE, pc, lane, where)
    return 1


@native(inline=True)
def readers(cta: Cta, piece: i64) -> Ptr[u64]:
    return at(u64, cta.shadow + cta.launch.shadow_room * 8 + piece * (READERS * 8))


@native(inline=True)
def reader_masks(cta: Cta, piece: i64) -> Ptr[u16]:
    """Which bytes of a piece each of its readers has read."""
    room = cta.launch.shadow_room
    return at(u16, cta.shadow + room * (8 + READERS * 8 // GRANULE) + piece * (READERS * 2))


@native(inline=True)
def bytes_of(low: i64, high: i64, piece: i64) -> i64:
    """The bytes of a piece between two addresses, a bit for each."""
    first = piece << GRANULE_BITS
    from_ = low - first if low > first else 0
    to = high - first if high < first + GRANULE else GRANULE
    return (1 << to) - (1 << from_)


@native(inline=True)
def with_lane(mine: i64, lane: i64) -> i64:
    """The same, done by another lane."""
    return mine & ~(LANES << LANE) | lane << LANE


@native(inline=True)
def unordered_lanes(before: i64, mine: i64) -> i64:
    """Whether two lanes of a warp did that in one step, by different instructions."""
    lane = before >> LANE & LANES
    if (before ^ mine) >> ACTOR != 0 or ((before ^ mine) & OPERATION) == 0 or lane == ANY_LANES:
        return 0
    return lane != (mine >> LANE & LANES)


@when_checked
def record_reader(known: Ptr[u32], found: Ptr[u64], whose: Ptr[u16], mine: i64, bytes_: i64) -> i64:
    """A reader of a piece. It takes the place of one that it knows and that has read no more; one
    of its own step it joins.
    """
    place = READERS
    fellow = READERS
    for i in range(READERS):
        r = found[i]
        lane = r >> LANE & LANES
        if r == 0:
            if i + 1 < READERS:
                found[i + 1] = 0
            place = i
            break
        if (r ^ mine) >> ACTOR == 0:
            fellow = i
            if lane == (mine >> LANE & LANES) or whose[i] == bytes_:
                if lane != (mine >> LANE & LANES):
                    mine = with_lane(mine, ANY_LANES if lane == ANY_LANES else SEVERAL_LANES)
                bytes_ = bytes_ | whose[i]
                place = i
                break
        elif (whose[i] & ~bytes_) == 0 and (
            known[r >> ACTOR & FIELD] >= lshr(r, STEP) or ((r ^ mine) >> ACTOR & FIELD) == 0
        ):
            place = i
            break
    if place == READERS and fellow < READERS:
        place = fellow
        mine = with_lane(mine, ANY_LANES)
        bytes_ = bytes_ | whose[place]
    if place == READERS:
        place = lshr(mine, STEP) & (READERS - 1)
    found[place] = mine
    whose[place] = bytes_
    return 0


@when_checked
def check_read(
    w: WarpRecord, cta: Cta, low: i64, size: i64, mine: i64, proxy: i64, lane: i64
) -> i64:
    """Bytes of a CTA's shared memory are read, in the step ``mine``; 1 after a race."""
    known = clock(w.cta, w.index)
    used = sync_clock(cta, USED)
    wrote = at(u64, cta.shadow)
    last = 0
    pc = mine & OPERATION
    for i in range(low, low + size):
        before = wrote[i]
        if before != last:
            last = before
            if is_unordered(w, known, before) != 0 or unordered_lanes(before, mine) != 0:
                return fault_race(w, READ_EARLY, before, i, lane, pc)
            if proxy != GENERIC and is_unfenced(w, known, before) != 0:
                return fault_race(w, NO_FENCE, before, i, lane, pc)
            if proxy == PRODUCT:
                used[before >> ACTOR & FIELD] = lshr(before, STEP)
    for piece in range(low >> GRANULE_BITS, ((low + size - 1) >> GRANULE_BITS) + 1):
        bytes_ = bytes_of(low, low + size, piece)
        record_reader(known, readers(cta, piece), reader_masks(cta, piece), mine, bytes_)
    return 0


@when_checked
def check_write(w: WarpRecord, cta: Cta, low: i64, size: i64, mine: i64, lane: i64) -> i64:
    """The same for bytes that are written."""
    known = clock(w.cta, w.index)
    wrote = at(u64, cta.shadow)
    last = 0
    left = mine
    pc = mine & OPERATION
    for i in range(low, low + size):
        before = wrote[i]
        if before != last:
            last = before
            left = mine
            if with_lane(before, 0) == with_lane(mine, 0):
                left = mine if before == mine else with_lane(mine, ANY_LANES)
            elif is_unordered(w, known, before) != 0 or unordered_lanes(before, mine) != 0:
                return fault_race(w, WRITTEN_TWICE, before, i, lane, pc)
        wrote[i] = left
    for piece in range(low >> GRANULE_BITS, ((low + size - 1) >> GRANULE_BITS) + 1):
        found = readers(cta, piece)
        whose = reader_masks(cta, piece)
        bytes_ = bytes_of(low, low + size, piece)
        for i in range(READERS):
            if found[i] == 0:
                break
            check_grid_dependency = is_unordered(w, known, found[i]) | unordered_lanes(
                found[i], mine
            )
            if (whose[i] & bytes_) != 0 and check_grid_dependency != 0:
                return fault_race(w, WRITTEN_EARLY, found[i], piece << GRANULE_BITS, lane, pc)
            whose[i] = whose[i] & ~bytes_
        if bytes_ == ALL_BYTES:
            found[0] = 0
    return 0


@when_checked
def writes_same_value(cta: Cta, low: i64, n: i64, values: Ptr[u8], size: i64, pc: i64) -> i64:
    """Whether the same instruction has already written this value there, so order is irrelevant."""
    wrote = at(u64, cta.shadow)
    there = at(u8, cta.shared + low)
    for i in range(n):
        value = values[i // size * (size * 32) + umod(i, size)]
        if (wrote[low + i] & OPERATION) != pc or there[i] != value:
            return 0
    return 1


# --- the grid before ------------------------------------------------------------------------------


@when_checked
def check_grid_dependency(w: WarpRecord, a: i64, lane: i64, pc: i64) -> i64:
    """A checked launch: global memory is touched; 1 where the grid before may still use it."""
    if w.launch.overlaps == 0 or clock(w.cta, w.index)[previous_grid_actor(w.cta)] != 0:
        return 0
    fault(w, GRID_DEPENDENCY, pc, lane, a)
    return 1


# --- mbarriers ------------------------------------------------------------------------------------


@when_checked
def track_barrier(w: WarpRecord, cta: Cta, place: i64, lane: i64, pc: i64) -> i64:
    """An mbarrier is initialised, or is one no longer; 1 after a race."""
    number = (barrier_clock(cta, place) - ENDED - 1) >> 1
    if number == cta.mbarrier_count:
        cta.mbarriers[number] = place
        cta.mbarrier_count += 1
    return check_write(w, cta, place, 8, current_step(w, pc), lane)


@when_checked
def check_double_init(w: WarpRecord, cta: Cta, place: i64, lane: i64, pc: i64) -> i64:
    """A fault (1) where an mbarrier is initialised that is one already: the last to have written
    its bytes was another ``mbarrier.init``. Lanes that do so at once are let alone.
    """
    wrote = at(u64, cta.shadow + place * 8)
    before = wrote[0]
    for i in range(1, 8):
        if wrote[i] != before:
            return 0
    made = before != 0 and w.launch.inits[before & OPERATION] != 0
    if made == 0 or with_lane(before, 0) == current_step(w, pc):
        return 0
    w.worker.fault_value = before & OPERATION
    fault(w, DOUBLE_INIT, pc, lane, w.addresses[lane])
    return 1


@when_checked
def check_barrier_access(w: WarpRecord, cta: Cta, place: i64, lane: i64, pc: i64) -> i64:
    """A thread arrives or looks at one; 1 after a race."""
    mine = current_step(w, pc)
    if cta.rank != w.cta.rank:
        record_use(cta, mine)
    return check_read(w, cta, place, 8, mine, GENERIC, lane)


# --- bulk copies ----------------------------------------------------------------------------------


@native(inline=True)
def extent(f: BulkCopy) -> i64:
    """The bytes of shared memory that a copy reads or writes."""
    return f.bytes // f.width * f.pitch if f.tensor != 0 else f.bytes


@when_checked
def check_bulk_write(w: WarpRecord, f: BulkCopy, lane: i64) -> i64:
    """A checked launch: the newest copy writes shared memory from now on; 1 after a race."""
    number = w.cta.bulk_tail - 1
    slot = w.launch.warps * KINDS + umod(number, MAX_BULK_COPIES)
    f.mark = pack_step(w.cta.rank * w.launch.actors + slot, number // MAX_BULK_COPIES + 1, f.pc)
    proxy = ASYNC if f.tensor != 0 or f.source != address(f.data) else GENERIC
    ranks = f.ctas
    while ranks != 0:
        rank = lowest(ranks)
        ranks = ranks & (ranks - 1)
        to = at(Cta, w.cta.first + rank * CTA_BYTES)
        record_use(to, f.mark)
        if check_unread(to, f.target, f.target + extent(f)) != 0:
            return 1
        mark_box_used(to, f)
        if check_read(w, to, f.barrier, 8, f.mark, proxy, lane) != 0:
            return 1
        if f.reduce == 0 and check_write(w, to, f.target, extent(f), f.mark, lane) != 0:
            return 1
    return 0


@when_checked
def check_bulk_read(w: WarpRecord, f: BulkCopy, source: i64, lane: i64) -> i64:
    """The same for one that reads shared memory."""
    f.mark = pack_step(warp_actor(w, BULK_STORES), f.group + 1, f.pc)
    record_use(w.cta, f.mark)
    return check_read(w, w.cta, source - w.cta.shared, extent(f), f.mark, ASYNC, lane)


@when_checked
def mark_box_used(cta: Cta, f: BulkCopy) -> i64:
    """Of a box that lies in its tensor as a whole, every byte is wanted."""
    if f.tensor == 0 or f.im2col != 0:
        return 0
    for d in range(f.modes):
        if f.at[d] < 0 or f.at[d] + f.box[d] * f.steps[d] > f.dims[d]:
            return 0
    sync_clock(cta, USED)[actor_count(cta) + (f.mark >> ACTOR & FIELD)] = lshr(f.mark, STEP)
    return 0


@when_checked
def check_unread(cta: Cta, low: i64, high: i64) -> i64:
    """A fault (1) where a product has read some of what a copy brought, and nothing has read what
    it brought here.
    """
    used = sync_clock(cta, USED)
    wrote = at(u64, cta.shadow)
    for piece in range(low >> GRANULE_BITS, high >> GRANULE_BITS):
        before = wrote[piece << GRANULE_BITS]
        actor = before >> ACTOR & FIELD
        step = lshr(before, STEP)
        wanted = step != 0 and used[actor] == step and used[actor_count(cta) + actor] == step
        if wanted != 0 and readers(cta, piece)[0] == 0:
            fault_at(cta, 0, UNREAD_COPY, before & OPERATION, 0, piece << GRANULE_BITS)
            return 1
    return 0


# --- the end --------------------------------------------------------------------------------------


@when_checked
def check_exit(cta: Cta) -> i64:
    """All threads of the CTA have ended; 1 where its shared memory may still be in use."""
    touched = sync_clock(cta, TOUCHED)
    known = sync_clock(cta, ENDED)
    count = actor_count(cta)
    for w in range(cta.launch.warps):
        join(known, clock(cta, w), count)
    for actor in range(count):
        if touched[actor] > known[actor]:
            pc = touched[count + actor]
            cta.worker.fault_value = EXITED_EARLY << ACTOR | pc
            number = umod(actor, cta.launch.actors)
            warp = number // KINDS if number < cta.launch.warps * KINDS else 0
            fault_at(cta, warp, RACE, pc, 0, 0)
            return 1
    return check_unread(cta, 0, cta.launch.shared_bytes)
