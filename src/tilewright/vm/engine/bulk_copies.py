"""Bulk copies, in native code: they are under way from their instruction on and land later.

What a copy reads it reads when it lands. With seed 0 it lands as late as it may: in the wait for
its group, when no warp of the worker can go on, or where warps poll (``scheduler.sweep``). With
another seed any may land at any turn of its CTA. In shared memory it tells an mbarrier its bytes.
"""

from __future__ import annotations

from ...native.native_language import Ptr, i64, native, u8, u64
from ..check.race_detector import ASYNC, brings, early, extent, read, takes
from ..check.vector_clocks import STORES, landed, own, waited_lanes
from ..state.lane_groups import draw, fault, fault_of
from ..state.records import (  # fmt: skip
    BAD_BULK,
    FLIGHTS,
    GLOBAL_BASE,
    GONE,
    IN_FLIGHT,
    MISALIGNED,
    OUT_OF_BOUNDS,
    RUNNING,
    SHARED,
    WRITES,
    Cta,
    Flight,
    Warp,
)
from .async_reductions import reduce_bytes
from .mbarrier_model import count, live
from .memory_access import CTA_BYTES, find_global, find_target, move, resolve
from .tensor_copies import box_of, move_box
from .wgmma_groups import overwritten

FLIGHT_BYTES = Flight.size
LINE = 16  # what sizes and addresses of bulk copies are multiples of
LANDED, INTO, OUT = range(3)  # a copy: no more, into shared memory, out of it
LIST = 64  # where in ``w.operands`` addresses of barriers begin
VALUES = 128  # and what is stored from registers


@native(inline=True)
def flight(cta: Ptr(Cta), n: i64) -> Ptr(Flight):
    """The CTA's ``n``-th copy, counted from its start."""
    return at(Flight, address(cta.flights) + n % FLIGHTS * FLIGHT_BYTES)


# --- landing --------------------------------------------------------------------------------------


@native
def failed(cta: Ptr(Cta), f: Ptr(Flight), kind: i64, where: i64, value: i64) -> i64:
    """The instruction that issued a copy faults while it lands."""
    f.kind = LANDED
    if cta.worker.fault == 0:
        cta.worker.fault_value = value
    fault_of(cta, f.warp, kind, f.pc, f.lane, where)
    return 1


@native
def land_in(cta: Ptr(Cta), f: Ptr(Flight), to: Ptr(Cta), target: i64, barrier: i64) -> i64:
    """A copy lands at offsets of a CTA's shared memory; 1 after a fault."""
    if to.state != RUNNING:
        return failed(cta, f, GONE, target, 0)
    hit = overwritten(to, target, target + extent(f))
    if hit != 0:
        return failed(cta, f, IN_FLIGHT, target, hit - 1)
    if f.tensor != 0:
        move_box(f, cta.launch.host, to.shared, target, 0)
    elif f.reduce != 0:
        reduce_bytes(f.reduce, to.shared + target, f.source, f.bytes)
    else:
        copy(at(u8, to.shared + target), at(u8, f.source), f.bytes)
    if cta.launch.checked != 0:
        landed(to, barrier, f.mark)
    wrong = count(to, to.shared + barrier, 0, 0, -f.bytes)
    if wrong != 0:
        return failed(cta, f, wrong, barrier, at(u64, to.shared + barrier)[0])
    return 0


@native
def store_bytes(f: Ptr(Flight), hosts: i64) -> i64:
    """Copy to global memory, of each 16 bytes those of the mask (``ctas``)."""
    if f.tensor != 0:
        return move_box(f, hosts, f.source, f.target, 1)
    if f.reduce != 0:
        return reduce_bytes(f.reduce, f.target, f.source, f.bytes)
    if f.ctas == 0xFFFF:
        copy(at(u8, f.target), at(u8, f.source), f.bytes)
        return 0
    for i in range(f.bytes):
        if (f.ctas >> (i & (LINE - 1)) & 1) != 0:
            at(u8, f.target)[i] = at(u8, f.source)[i]
    return 0


@native
def land_flight(cta: Ptr(Cta), f: Ptr(Flight)) -> i64:
    """The copy happens now; 1 after a fault."""
    kind = f.kind
    f.kind = LANDED
    cta.worker.events += 1
    if kind == OUT:
        return store_bytes(f, cta.launch.host)
    ranks = f.ctas
    while kind == INTO and ranks != 0:
        rank = lowest(ranks)
        ranks = ranks & (ranks - 1)
        to = at(Cta, cta.first + rank * CTA_BYTES)
        if land_in(cta, f, to, f.target, f.barrier) != 0:
            return 1
    return 0


@native
def forget(cta: Ptr(Cta)) -> i64:
    """Copies that have landed leave the queue."""
    while cta.flight_head < cta.flight_tail:
        if flight(cta, cta.flight_head).kind != LANDED:
            return 0
        cta.flight_head += 1
    return 0


@native(deferred=True)
def land_next(cta: Ptr(Cta)) -> i64:
    """The oldest copy of the CTA lands, or with a seed any; 1 after a fault."""
    under_way = cta.flight_tail - cta.flight_head
    if under_way == 0:
        return 0
    n = cta.flight_head
    if cta.launch.seed != 0:
        n = n + umod(draw(cta), under_way)
        while flight(cta, n).kind == LANDED:
            n = cta.flight_head + umod(n + 1 - cta.flight_head, under_way)
    bad = land_flight(cta, flight(cta, n))
    forget(cta)
    return bad


@native(deferred=True)
def land_some(cta: Ptr(Cta)) -> i64:
    """With a seed, now and then a copy lands; 1 after a fault."""
    if cta.flight_head == cta.flight_tail or (draw(cta) & 3) != 0:
        return 0
    return land_next(cta)


@native(deferred=True)
def land_any(cta: Ptr(Cta)) -> i64:
    """All copies of a CTA that has ended land; 1 after a fault."""
    while cta.flight_head < cta.flight_tail:
        if land_next(cta) != 0:
            return 1
    return 0


# --- issuing --------------------------------------------------------------------------------------


@native
def crowded(w: Ptr(Warp)) -> i64:
    """Where the queue of the CTA is full, its oldest copy lands; 1 after a fault."""
    cta = w.cta
    if cta.flight_tail - cta.flight_head < FLIGHTS:
        return 0
    bad = land_flight(cta, flight(cta, cta.flight_head))
    forget(cta)
    return bad


@native
def new_flight(w: Ptr(Warp), kind: i64, lane: i64, pc: i64) -> Ptr(Flight):
    """A place in the queue of the CTA, which has room."""
    cta = w.cta
    f = flight(cta, cta.flight_tail)
    cta.flight_tail += 1
    f.kind = kind
    f.tensor = 0
    f.reduce = 0
    f.warp = w.index
    f.lane = lane
    f.group = w.bulk_committed[lane]
    f.pc = pc
    return f


@native
def span(w: Ptr(Warp), space: i64, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes of global or shared memory; 0 after a fault."""
    if (a & (LINE - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, a)
    if n == 0 or (n & (LINE - 1)) != 0:
        w.worker.fault_value = n
        return fault(w, BAD_BULK, pc, lane, a)
    if space != SHARED:
        if a < GLOBAL_BASE:
            return fault(w, OUT_OF_BOUNDS, pc, lane, a)
        return find_global(w, a, n, lane, pc) if space < WRITES else find_target(w, a, n, lane, pc)
    last = resolve(w, SHARED, a + n - LINE, LINE, lane, pc)
    first = 0 if last == 0 else resolve(w, SHARED, a, LINE, lane, pc)
    if first != 0 and last - first != n - LINE:  # the end is in another CTA
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    return first


@native
def rank_of(w: Ptr(Warp), host: i64) -> i64:
    """The rank of the CTA of the cluster whose shared memory holds a host address."""
    for rank in range(w.launch.cluster_size):
        cta = at(Cta, w.cta.first + rank * CTA_BYTES)
        if host >= cta.shared and host < cta.shared + w.launch.shared_bytes:
            return rank
    return w.cta.rank


@native
def aim(w: Ptr(Warp), f: Ptr(Flight), lane: i64, target: i64, barrier: i64, pc: i64) -> i64:
    """Which CTAs the copy goes to, and where it lands in them: one that the target names, or all of
    a mask at the target's place in each. 1 after a fault.
    """
    rank = rank_of(w, target)
    f.target = target - at(Cta, w.cta.first + rank * CTA_BYTES).shared
    f.barrier = barrier - at(Cta, w.cta.first + rank_of(w, barrier) * CTA_BYTES).shared
    f.ctas = w.operands[32 + lane]
    if f.ctas == 0:
        f.ctas = 1 << rank
        if rank_of(w, barrier) != rank:
            w.worker.fault_value = 0
            fault(w, BAD_BULK, pc, lane, w.addresses[lane])
            return 1
    if lshr(f.ctas, w.launch.cluster_size) != 0:
        w.worker.fault_value = f.ctas
        fault(w, GONE, pc, lane, w.addresses[lane])
        return 1
    return brings(w, f, lane) if w.launch.checked != 0 else 0


@native
def copy_in(w: Ptr(Warp), mask: i64, space: i64, reduction: i64, pc: i64) -> i64:
    """Bulk copies and reductions into shared memory: targets in ``w.addresses``, sources in
    ``w.addresses2``; in ``w.operands`` a line of sizes, one of CTA masks (0: no multicast) and
    barriers' addresses.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        n = w.operands[lane]
        target = span(w, SHARED, w.addresses[lane], n, lane, pc)
        source = span(w, space, w.addresses2[lane], n, lane, pc)
        barrier = resolve(w, SHARED, at(u64, w.operands + LIST)[lane], 8, lane, pc)
        if target == 0 or source == 0 or barrier == 0 or live(w, barrier, lane, pc) == 0:
            return 1
        if crowded(w) != 0 or (space != SHARED and early(w, w.addresses2[lane], lane, pc) != 0):
            return 1
        f = new_flight(w, INTO, lane, pc)
        f.reduce = reduction
        f.source = source
        f.bytes = n
        if aim(w, f, lane, target, barrier, pc) != 0:
            return drop(w)
        if space == SHARED and w.launch.checked != 0:
            if read(w, w.cta, source - w.cta.shared, n, f.mark, ASYNC, lane) != 0:
                return drop(w)
    return 0


@native
def copy_out(w: Ptr(Warp), mask: i64, reduction: i64, pc: i64) -> i64:
    """Bulk copies and reductions to global memory, of the lanes' current groups; in ``w.operands``
    a line of sizes and one of masks, a bit for each byte of 16 that is copied.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        n = w.operands[lane]
        target = span(w, WRITES, w.addresses[lane], n, lane, pc)
        source = span(w, SHARED, w.addresses2[lane], n, lane, pc)
        if target == 0 or source == 0 or crowded(w) | early(w, w.addresses[lane], lane, pc) != 0:
            return 1
        f = new_flight(w, OUT, lane, pc)
        f.reduce = reduction
        f.source = source
        f.target = target
        f.bytes = n
        f.ctas = w.operands[32 + lane]
        if w.launch.checked != 0 and takes(w, f, source, lane) != 0:
            return drop(w)
    return 0


@native
def store_later(w: Ptr(Warp), mask: i64, size: i64, number: i64, reduction: i64, pc: i64) -> i64:
    """Stores and reductions of ``number`` elements of ``size`` bytes into shared memory, from
    ``w.operands``: element e of lane l is the (32·e + l)-th. The rest as for ``copy_in``.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = resolve(w, SHARED, w.addresses[lane], size * number, lane, pc)
        barrier = resolve(w, SHARED, at(u64, w.operands + LIST)[lane], 8, lane, pc)
        if target == 0 or barrier == 0 or live(w, barrier, lane, pc) == 0 or crowded(w) != 0:
            return 1
        f = new_flight(w, INTO, lane, pc)
        f.reduce = reduction
        f.source = address(f.data)
        f.bytes = size * number
        if aim(w, f, lane, target, barrier, pc) != 0:
            return drop(w)
        for e in range(number):
            from_ = address(w.operands + VALUES) + (e * 32 + lane) * size
            move(f.source + e * size, from_, size)
    return 0


@native(part="tensor_copies")
def load_box(w: Ptr(Warp), mask: i64, how: i64, pc: i64) -> i64:
    """Tensor copies into shared memory: maps in ``w.addresses2``, the rest as for ``copy_in`` and
    ``box_of``.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        a = w.addresses[lane]
        barrier = resolve(w, SHARED, at(u64, w.operands + LIST)[lane], 8, lane, pc)
        if barrier == 0 or live(w, barrier, lane, pc) == 0 or crowded(w) != 0:
            return 1
        f = new_flight(w, INTO, lane, pc)
        f.tensor = 1
        if box_of(w, f, w.addresses2[lane], lane, how, a, pc) == 0:
            return drop(w)
        target = span(w, SHARED, a, extent(f), lane, pc)
        if target == 0 or aim(w, f, lane, target, barrier, pc) != 0:
            return drop(w)
    return 0


@native(part="tensor_copies")
def store_box(w: Ptr(Warp), mask: i64, how: i64, reduction: i64, pc: i64) -> i64:
    """Tensor copies out of the shared memory at ``w.addresses``, or with a ``reduction`` (for the
    map's type) such.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        a = w.addresses[lane]
        if crowded(w) != 0:
            return 1
        f = new_flight(w, OUT, lane, pc)
        f.tensor = 1
        f.reduce = reduction
        if box_of(w, f, w.addresses2[lane], lane, how | 16, a, pc) == 0:
            return drop(w)
        source = span(w, SHARED, a, extent(f), lane, pc)
        if source == 0:
            return drop(w)
        f.source = w.cta.shared
        f.target = source - f.source
        if w.launch.checked != 0 and takes(w, f, source, lane) != 0:
            return drop(w)
    return 0


@native
def drop(w: Ptr(Warp)) -> i64:
    """The newest flight never was: its instruction has faulted."""
    w.cta.flight_tail -= 1
    return 1


@native
def commit_bulk(w: Ptr(Warp), mask: i64) -> i64:
    """The bulk copies of these lanes since their last commit become a group."""
    for lane in range(32):
        w.bulk_committed[lane] = w.bulk_committed[lane] + ((mask >> lane) & 1)
    return 0


@native
def wait_bulk(w: Ptr(Warp), mask: i64, pending: i64) -> i64:
    """All groups of these lanes but their ``pending`` newest land; 1 after a fault."""
    cta = w.cta
    if w.launch.checked != 0:
        waited_lanes(w, mask, own(w, STORES), w.bulk_committed, pending)
    for n in range(cta.flight_head, cta.flight_tail):
        f = flight(cta, n)
        mine = f.kind == OUT and f.warp == w.index and (mask >> f.lane & 1) != 0
        if mine != 0 and f.group < w.bulk_committed[f.lane] - pending:
            if land_flight(cta, f) != 0:
                return 1
    return 0 * forget(cta)
