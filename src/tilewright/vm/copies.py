"""The asynchronous engine, in native code: ``cp.async`` copies that land some time before the wait
that covers them ends.

A copy is checked when it is issued and done when it lands. With seed 0 it lands in its wait, as
late as it may, so a kernel that forgets to wait reads what was there before; with another seed any
copy may land at any of the warp's asynchronous instructions.
"""

from __future__ import annotations

from .access import find_global, move, resolve
from .groups import draw, fault
from .native import Ptr, i64, native, u8, u32
from .state import ALL, GLOBAL_BASE, MISALIGNED, OUT_OF_BOUNDS, QUEUE, SHARED, Copy, Warp

COPY_BYTES = Copy.size


@native(inline=True)
def queued(w: Ptr(Warp), n: i64) -> Ptr(Copy):
    """The warp's ``n``-th copy, counted from its start."""
    return at(Copy, address(w.queue) + n % QUEUE * COPY_BYTES)


@native
def land(w: Ptr(Warp), c: Ptr(Copy), mask: i64) -> i64:
    """The copies of these lanes happen now."""
    m = c.mask & mask
    c.mask = c.mask & ~mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = c.target[lane] + w.cta.shared
        source = c.source[lane]
        n = c.valid[lane]
        if n == c.bytes:
            move(target, source, n)
        else:
            for i in range(n):  # the source may be no address at all where n is 0
                at(u8, target)[i] = at(u8, source)[i]
            for i in range(c.bytes - n):
                at(u8, target)[n + i] = 0
    return 0


@native
def land_early(w: Ptr(Warp)) -> i64:
    """With a seed, any copy under way may land at any time."""
    under_way = w.queue_tail - w.queue_head
    if w.launch.seed != 0 and under_way > 0:
        r = draw(w.cta)
        if (r & 3) == 0:
            land(w, queued(w, w.queue_head + lshr(r, 8) % under_way), ALL)
    return 0


@native(inline=True)
def source_of(w: Ptr(Warp), a: i64, n: i64, size: i64, lane: i64, pc: i64) -> i64:
    """The host address of the ``n`` ≤ ``size`` bytes of global memory that are read."""
    if (a & (size - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, a)
    if a < GLOBAL_BASE:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    if a >= w.worker.low and a <= w.worker.high - n:
        return w.launch.host + a
    return find_global(w, a, n, lane, pc)


@native
def copy_async(w: Ptr(Warp), mask: i64, size: i64, valid: Ptr(u32), pc: i64) -> i64:
    """``cp.async``: shared targets in ``w.addresses``, global sources in ``w.addresses2``."""
    if w.queue_tail - w.queue_head == QUEUE:
        land(w, queued(w, w.queue_head), ALL)
        w.queue_head += 1
    c = queued(w, w.queue_tail)
    c.mask = 0
    c.bytes = size
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = resolve(w, SHARED, w.addresses[lane], size, lane, pc)
        if target == 0:
            return 1
        n = valid[lane]
        if n > size:
            n = size
        source = 0
        if n > 0:
            source = source_of(w, w.addresses2[lane], n, size, lane, pc)
            if source == 0:
                return 1
        c.target[lane] = target - w.cta.shared
        c.source[lane] = source
        c.valid[lane] = n
        c.group[lane] = w.committed[lane]
        c.mask = c.mask | (1 << lane)
    w.queue_tail += 1
    return land_early(w)


@native
def commit_async(w: Ptr(Warp), mask: i64) -> i64:
    """The copies of these lanes since their last commit become a group."""
    for lane in range(32):
        w.committed[lane] = w.committed[lane] + ((mask >> lane) & 1)
    return land_early(w)


@native
def wait_async(w: Ptr(Warp), mask: i64, pending: i64) -> i64:
    """All copies of these lanes but those in their ``pending`` newest groups land, in an order that
    the seed picks; ``pending`` −1: all, committed or not.
    """
    count = w.queue_tail - w.queue_head
    if count == 0:
        return 0
    first = draw(w.cta) % count if w.launch.seed != 0 else 0
    for i in range(count):
        n = i + first
        if n >= count:
            n -= count
        c = queued(w, w.queue_head + n)
        due = 0
        for lane in range(32):
            if pending < 0 or c.group[lane] < w.committed[lane] - pending:
                due = due | (1 << lane)
        land(w, c, due & mask)
    while w.queue_head < w.queue_tail:
        if queued(w, w.queue_head).mask != 0:
            return 0
        w.queue_head += 1
    return 0
