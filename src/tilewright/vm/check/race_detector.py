"""Races for shared memory, in native code: what a checked launch refuses, whatever came of it.

A byte of shared memory knows the step (``clocks``) that wrote it last, 16 bytes the steps that have
read them since. An access is a race where one of these is unknown to its warp's clock: nothing
makes the one wait for the other, so either may come first. What is asynchronous accesses memory
when it is issued, and is known when it was waited for.
"""

from __future__ import annotations

from ...native.native_language import Ptr, i64, native, u8, u16, u32, u64
from ..state.lane_groups import fault, fault_of
from ..state.records import BAD_FENCE, EARLY, FLIGHTS, MADE_TWICE, RACE, UNREAD, Cta, Flight, Warp
from .vector_clocks import (  # fmt: skip
    ACTOR,
    CLOCKS,
    COPIES,
    ENDED,
    FIELD,
    KINDS,
    LANE,
    LANES,
    OPERATION,
    STEP,
    STORES,
    TOUCHED,
    USED,
    WARP,
    actors,
    ahead,
    barrier_of,
    clock,
    join,
    mark,
    meeting,
    own,
    step_of,
    touch,
    when_checked,
)

CTA_BYTES = Cta.size
PIECE, PIECE_BITS, WHOLE = 16, 4, 0xFFFF  # bytes that have their readers in common
READERS = 16  # of a piece; more push one out
GENERIC, ASYNC, PRODUCT = range(3)  # who reads
SEVERAL, ANY = 32, 33  # in a lane's place: each byte by two lanes at least; by one or more
READ_EARLY, WRITTEN_TWICE, WRITTEN_EARLY, NO_FENCE, LEFT_EARLY = range(5)  # what went wrong


@when_checked
def start(cta: Ptr(Cta)) -> i64:
    """Nobody has done anything."""
    launch = cta.launch
    words = at(u64, cta.clocks)
    for i in range((launch.warps + CLOCKS) * actors(cta)):
        words[i] = 0
    words = at(u64, cta.shadow)
    for i in range(launch.shadow_bytes >> 3):
        words[i] = 0
    cta.mbarrier_count = 0
    for i in range(launch.warps):
        w = at(Warp, cta.frames + i * launch.frame_bytes)
        clock(cta, i)[cta.rank * launch.actors + i * KINDS + WARP] = 1
        w.unfenced = -1
        w.in_flight = -1
    return 0


# --- accesses -------------------------------------------------------------------------------------


@native(inline=True)
def unknown(w: Ptr(Warp), known: Ptr(u32), before: i64) -> i64:
    return known[before >> ACTOR & FIELD] < lshr(before, STEP)


@native(inline=True)
def unfenced(w: Ptr(Warp), known: Ptr(u32), before: i64) -> i64:
    """Whether an access through the generic proxy is unknown to the async proxy."""
    actor = before >> ACTOR & FIELD
    number = umod(actor, w.launch.actors)
    if number >= w.launch.warps * KINDS or (number & (KINDS - 1)) > COPIES:
        return 0
    return known[actors(w.cta) + actor] < lshr(before, STEP)


@when_checked
def raced(w: Ptr(Warp), what: i64, before: i64, where: i64, lane: i64, pc: i64) -> i64:
    """The fault; 1."""
    if w.worker.fault == 0:
        w.worker.fault_value = what << ACTOR | before & OPERATION
    fault(w, BAD_FENCE if what == NO_FENCE else RACE, pc, lane, where)
    return 1


@native(inline=True)
def readers(cta: Ptr(Cta), piece: i64) -> Ptr(u64):
    return at(u64, cta.shadow + cta.launch.shadow_room * 8 + piece * (READERS * 8))


@native(inline=True)
def masks(cta: Ptr(Cta), piece: i64) -> Ptr(u16):
    """Which bytes of a piece each of its readers has read."""
    room = cta.launch.shadow_room
    return at(u16, cta.shadow + room * (8 + READERS * 8 // PIECE) + piece * (READERS * 2))


@native(inline=True)
def bytes_of(low: i64, high: i64, piece: i64) -> i64:
    """The bytes of a piece between two addresses, a bit for each."""
    first = piece << PIECE_BITS
    from_ = low - first if low > first else 0
    to = high - first if high < first + PIECE else PIECE
    return (1 << to) - (1 << from_)


@native(inline=True)
def by(mine: i64, lane: i64) -> i64:
    """The same, done by another lane."""
    return mine & ~(LANES << LANE) | lane << LANE


@native(inline=True)
def apart(before: i64, mine: i64) -> i64:
    """Whether two lanes of a warp did that in one step, by different instructions."""
    lane = before >> LANE & LANES
    if (before ^ mine) >> ACTOR != 0 or ((before ^ mine) & OPERATION) == 0 or lane == ANY:
        return 0
    return lane != (mine >> LANE & LANES)


@when_checked
def note(known: Ptr(u32), found: Ptr(u64), whose: Ptr(u16), mine: i64, bytes_: i64) -> i64:
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
                    mine = by(mine, ANY if lane == ANY else SEVERAL)
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
        mine = by(mine, ANY)
        bytes_ = bytes_ | whose[place]
    if place == READERS:
        place = lshr(mine, STEP) & (READERS - 1)
    found[place] = mine
    whose[place] = bytes_
    return 0


@when_checked
def read(w: Ptr(Warp), cta: Ptr(Cta), low: i64, size: i64, mine: i64, proxy: i64, lane: i64) -> i64:
    """Bytes of a CTA's shared memory are read, in the step ``mine``; 1 after a race."""
    known = clock(w.cta, w.index)
    used = meeting(cta, USED)
    wrote = at(u64, cta.shadow)
    last = 0
    pc = mine & OPERATION
    for i in range(low, low + size):
        before = wrote[i]
        if before != last:
            last = before
            if unknown(w, known, before) != 0 or apart(before, mine) != 0:
                return raced(w, READ_EARLY, before, i, lane, pc)
            if proxy != GENERIC and unfenced(w, known, before) != 0:
                return raced(w, NO_FENCE, before, i, lane, pc)
            if proxy == PRODUCT:
                used[before >> ACTOR & FIELD] = lshr(before, STEP)
    for piece in range(low >> PIECE_BITS, ((low + size - 1) >> PIECE_BITS) + 1):
        bytes_ = bytes_of(low, low + size, piece)
        note(known, readers(cta, piece), masks(cta, piece), mine, bytes_)
    return 0


@when_checked
def write(w: Ptr(Warp), cta: Ptr(Cta), low: i64, size: i64, mine: i64, lane: i64) -> i64:
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
            if by(before, 0) == by(mine, 0):
                left = mine if before == mine else by(mine, ANY)
            elif unknown(w, known, before) != 0 or apart(before, mine) != 0:
                return raced(w, WRITTEN_TWICE, before, i, lane, pc)
        wrote[i] = left
    for piece in range(low >> PIECE_BITS, ((low + size - 1) >> PIECE_BITS) + 1):
        found = readers(cta, piece)
        whose = masks(cta, piece)
        bytes_ = bytes_of(low, low + size, piece)
        for i in range(READERS):
            if found[i] == 0:
                break
            early = unknown(w, known, found[i]) | apart(found[i], mine)
            if (whose[i] & bytes_) != 0 and early != 0:
                return raced(w, WRITTEN_EARLY, found[i], piece << PIECE_BITS, lane, pc)
            whose[i] = whose[i] & ~bytes_
        if bytes_ == WHOLE:
            found[0] = 0
    return 0


@when_checked
def repeats(cta: Ptr(Cta), low: i64, n: i64, values: Ptr(u8), size: i64, pc: i64) -> i64:
    """Whether an instruction has put there before what a lane writes now (its elements are 32
    apart in ``values``): that changes nothing, whoever comes first."""
    wrote = at(u64, cta.shadow)
    there = at(u8, cta.shared + low)
    for i in range(n):
        value = values[i // size * (size * 32) + umod(i, size)]
        if (wrote[low + i] & OPERATION) != pc or there[i] != value:
            return 0
    return 1


# --- the grid before ------------------------------------------------------------------------------


@when_checked
def early(w: Ptr(Warp), a: i64, lane: i64, pc: i64) -> i64:
    """A checked launch: global memory is touched; 1 where the grid before may still use it."""
    if w.launch.overlaps == 0 or clock(w.cta, w.index)[ahead(w.cta)] != 0:
        return 0
    fault(w, EARLY, pc, lane, a)
    return 1


# --- mbarriers ------------------------------------------------------------------------------------


@when_checked
def new_barrier(w: Ptr(Warp), cta: Ptr(Cta), place: i64, lane: i64, pc: i64) -> i64:
    """An mbarrier is initialised, or is one no longer; 1 after a race."""
    number = (barrier_of(cta, place) - ENDED - 1) >> 1
    if number == cta.mbarrier_count:
        cta.mbarriers[number] = place
        cta.mbarrier_count += 1
    return write(w, cta, place, 8, step_of(w, pc), lane)


@when_checked
def made_twice(w: Ptr(Warp), cta: Ptr(Cta), place: i64, lane: i64, pc: i64) -> i64:
    """A fault (1) where an mbarrier is initialised that is one already: the last to have written
    its bytes was another ``mbarrier.init``. Lanes that do so at once are let alone.
    """
    wrote = at(u64, cta.shadow + place * 8)
    before = wrote[0]
    for i in range(1, 8):
        if wrote[i] != before:
            return 0
    made = before != 0 and w.launch.makes[before & OPERATION] != 0
    if made == 0 or by(before, 0) == step_of(w, pc):
        return 0
    w.worker.fault_value = before & OPERATION
    fault(w, MADE_TWICE, pc, lane, w.addresses[lane])
    return 1


@when_checked
def used_barrier(w: Ptr(Warp), cta: Ptr(Cta), place: i64, lane: i64, pc: i64) -> i64:
    """A thread arrives or looks at one; 1 after a race."""
    mine = step_of(w, pc)
    if cta.rank != w.cta.rank:
        touch(cta, mine)
    return read(w, cta, place, 8, mine, GENERIC, lane)


# --- bulk copies ----------------------------------------------------------------------------------


@native(inline=True)
def extent(f: Ptr(Flight)) -> i64:
    """The bytes of shared memory that a copy reads or writes."""
    return f.bytes // f.width * f.pitch if f.tensor != 0 else f.bytes


@when_checked
def brings(w: Ptr(Warp), f: Ptr(Flight), lane: i64) -> i64:
    """A checked launch: the newest copy writes shared memory from now on; 1 after a race."""
    number = w.cta.flight_tail - 1
    slot = w.launch.warps * KINDS + umod(number, FLIGHTS)
    f.mark = mark(w.cta.rank * w.launch.actors + slot, number // FLIGHTS + 1, f.pc)
    proxy = ASYNC if f.tensor != 0 or f.source != address(f.data) else GENERIC
    ranks = f.ctas
    while ranks != 0:
        rank = lowest(ranks)
        ranks = ranks & (ranks - 1)
        to = at(Cta, w.cta.first + rank * CTA_BYTES)
        touch(to, f.mark)
        if unread(to, f.target, f.target + extent(f)) != 0:
            return 1
        note_whole(to, f)
        if read(w, to, f.barrier, 8, f.mark, proxy, lane) != 0:
            return 1
        if f.reduce == 0 and write(w, to, f.target, extent(f), f.mark, lane) != 0:
            return 1
    return 0


@when_checked
def takes(w: Ptr(Warp), f: Ptr(Flight), source: i64, lane: i64) -> i64:
    """The same for one that reads shared memory."""
    f.mark = mark(own(w, STORES), f.group + 1, f.pc)
    touch(w.cta, f.mark)
    return read(w, w.cta, source - w.cta.shared, extent(f), f.mark, ASYNC, lane)


@when_checked
def note_whole(cta: Ptr(Cta), f: Ptr(Flight)) -> i64:
    """Of a box that lies in its tensor as a whole, every byte is wanted."""
    if f.tensor == 0 or f.im2col != 0:
        return 0
    for d in range(f.modes):
        if f.at[d] < 0 or f.at[d] + f.box[d] * f.steps[d] > f.dims[d]:
            return 0
    meeting(cta, USED)[actors(cta) + (f.mark >> ACTOR & FIELD)] = lshr(f.mark, STEP)
    return 0


@when_checked
def unread(cta: Ptr(Cta), low: i64, high: i64) -> i64:
    """A fault (1) where a product has read some of what a copy brought, and nothing has read what
    it brought here.
    """
    used = meeting(cta, USED)
    wrote = at(u64, cta.shadow)
    for piece in range(low >> PIECE_BITS, high >> PIECE_BITS):
        before = wrote[piece << PIECE_BITS]
        actor = before >> ACTOR & FIELD
        step = lshr(before, STEP)
        wanted = step != 0 and used[actor] == step and used[actors(cta) + actor] == step
        if wanted != 0 and readers(cta, piece)[0] == 0:
            fault_of(cta, 0, UNREAD, before & OPERATION, 0, piece << PIECE_BITS)
            return 1
    return 0


# --- the end --------------------------------------------------------------------------------------


@when_checked
def ended(cta: Ptr(Cta)) -> i64:
    """All threads of the CTA have ended; 1 where its shared memory may still be in use."""
    touched = meeting(cta, TOUCHED)
    known = meeting(cta, ENDED)
    count = actors(cta)
    for w in range(cta.launch.warps):
        join(known, clock(cta, w), count)
    for actor in range(count):
        if touched[actor] > known[actor]:
            pc = touched[count + actor]
            cta.worker.fault_value = LEFT_EARLY << ACTOR | pc
            number = umod(actor, cta.launch.actors)
            warp = number // KINDS if number < cta.launch.warps * KINDS else 0
            fault_of(cta, warp, RACE, pc, 0, 0)
            return 1
    return unread(cta, 0, cta.launch.shared_bytes)
