"""Memory, in native code: every access of every evaluator goes through these few functions.

Each knows the warp, the lanes, the address, the bytes and the operation (``pc``), checks bounds, alignment and life, and
reports a fault by returning 1. Addresses become host addresses here and nowhere else.
"""

from __future__ import annotations

from .native import Ptr, i64, native, u8, u16, u32, u64
from .scheduler import draw, fault
from .state import (
    ALL, FREED, GLOBAL, GLOBAL_BASE, LOCAL, LOCAL_BASE, MISALIGNED, OUT_OF_BOUNDS, PARAM, PARAM_BASE, QUEUE,
    SHARED, SHARED_BASE, WINDOW, Copy, Warp,
)  # fmt: skip

COPY_BYTES = Copy.size


@native(inline=True)
def move(target: i64, source: i64, size: i64) -> i64:
    """Copy 1, 2, 4, 8 or 16 bytes."""
    if size == 4:
        at(u32, target)[0] = at(u32, source)[0]
    elif size == 2:
        at(u16, target)[0] = at(u16, source)[0]
    elif size == 8:
        at(u64, target)[0] = at(u64, source)[0]
    elif size == 16:
        at(u64, target)[0] = at(u64, source)[0]
        at(u64, target)[1] = at(u64, source)[1]
    else:
        at(u8, target)[0] = at(u8, source)[0]
    return 0


@native
def find_global(w: Ptr(Warp), a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of device address ``a``, all ``n`` bytes of it in one live allocation; 0 after a fault."""
    launch = w.launch
    low = 0
    high = launch.allocation_count
    while low < high:
        middle = (low + high) // 2
        if launch.allocations[middle].start <= a:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    found = launch.allocations[low - 1]
    if a + n > found.end:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    if found.live == 0:
        return fault(w, FREED, pc, lane, a)
    w.worker.low = found.start
    w.worker.high = found.end
    return launch.host + a


@native(inline=True)
def within(w: Ptr(Warp), base: i64, size: i64, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of offset ``a`` in a window of ``size`` bytes at ``base``."""
    if a < 0 or a + n > size:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    return base + a


@native
def resolve(w: Ptr(Warp), space: i64, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes at ``a`` in a state space, or 0 after a fault."""
    if (a & (n - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, a)
    launch = w.launch
    if space <= GLOBAL and a >= GLOBAL_BASE:
        if a >= w.worker.low and a + n <= w.worker.high:
            return launch.host + a
        return find_global(w, a, n, lane, pc)
    if space == GLOBAL:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    window = lshr(a, 32)
    if space == SHARED or (space == 0 and window == SHARED_BASE // WINDOW):
        if space != SHARED or window == SHARED_BASE // WINDOW:
            a -= SHARED_BASE
        return within(w, w.cta.shared, launch.shared_bytes, a, n, lane, pc)
    if space == LOCAL or (space == 0 and window == LOCAL_BASE // WINDOW):
        if space != LOCAL or window == LOCAL_BASE // WINDOW:
            a -= LOCAL_BASE
        mine = w.cta.local + (w.index * 32 + lane) * launch.local_bytes
        return within(w, mine, launch.local_bytes, a, n, lane, pc)
    if space == PARAM or (space == 0 and window == PARAM_BASE // WINDOW):
        if window == PARAM_BASE // WINDOW:
            a -= PARAM_BASE
        return within(w, address(launch.params), launch.param_bytes, a, n, lane, pc)
    return fault(w, OUT_OF_BOUNDS, pc, lane, a)


@native
def resolve_lanes(w: Ptr(Warp), mask: i64, space: i64, n: i64, pc: i64) -> i64:
    """``w.addresses`` become host addresses for the lanes of ``mask``; 1 after a fault."""
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        host = resolve(w, space, w.addresses[lane], n, lane, pc)
        if host == 0:
            return 1
        w.addresses[lane] = host
    return 0


@native(inline=True)
def consecutive(w: Ptr(Warp), mask: i64, size: i64) -> i64:
    """Whether all 32 lanes are active and their addresses follow one another without a gap."""
    if mask != ALL:
        return 0
    first = w.addresses[0]
    wrong = 0
    for lane in range(32):
        wrong = wrong | ((first + lane * size) ^ w.addresses[lane])
    return wrong == 0


@native(inline=True)
def load_any(w: Ptr(Warp), mask: i64, space: i64, out: Ptr(u8), size: i64, count: i64, pc: i64) -> i64:
    if count == 1 and space != LOCAL and consecutive(w, mask, size) != 0:
        if (w.addresses[0] & (size - 1)) == 0:
            host = resolve_span(w, space, w.addresses[0], size * 32)
            if host != 0:
                copy(out, at(u8, host), size * 32)
                return 0
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        host = resolve(w, space, w.addresses[lane], size * count, lane, pc)
        if host == 0:
            return 1
        for e in range(count):
            move(address(out) + (e * 32 + lane) * size, host + e * size, size)
    return 0


@native(inline=True)
def store_any(w: Ptr(Warp), mask: i64, space: i64, values: Ptr(u8), size: i64, count: i64, pc: i64) -> i64:
    if count == 1 and space != LOCAL and consecutive(w, mask, size) != 0:
        if (w.addresses[0] & (size - 1)) == 0:
            host = resolve_span(w, space, w.addresses[0], size * 32)
            if host != 0:
                copy(at(u8, host), values, size * 32)
                return 0
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        host = resolve(w, space, w.addresses[lane], size * count, lane, pc)
        if host == 0:
            return 1
        for e in range(count):
            move(host + e * size, address(values) + (e * 32 + lane) * size, size)
    return 0


@native(inline=True)
def resolve_span(w: Ptr(Warp), space: i64, a: i64, n: i64) -> i64:
    """A whole warp's bytes at once where they lie in one place that is known already; 0 where not (no fault)."""
    if space == GLOBAL:
        if a >= w.worker.low and a + n <= w.worker.high:
            return w.launch.host + a
        return 0
    if space == SHARED and a >= 0 and a + n <= w.launch.shared_bytes:
        return w.cta.shared + a
    return 0


@native
def load_16(w: Ptr(Warp), mask: i64, space: i64, out: Ptr(u8), count: i64, pc: i64) -> i64:
    return load_any(w, mask, space, out, 2, count, pc)


@native
def load_32(w: Ptr(Warp), mask: i64, space: i64, out: Ptr(u8), count: i64, pc: i64) -> i64:
    return load_any(w, mask, space, out, 4, count, pc)


@native
def load_n(w: Ptr(Warp), mask: i64, space: i64, out: Ptr(u8), size: i64, count: i64, pc: i64) -> i64:
    return load_any(w, mask, space, out, size, count, pc)


@native
def store_16(w: Ptr(Warp), mask: i64, space: i64, values: Ptr(u8), count: i64, pc: i64) -> i64:
    return store_any(w, mask, space, values, 2, count, pc)


@native
def store_32(w: Ptr(Warp), mask: i64, space: i64, values: Ptr(u8), count: i64, pc: i64) -> i64:
    return store_any(w, mask, space, values, 4, count, pc)


@native
def store_n(w: Ptr(Warp), mask: i64, space: i64, values: Ptr(u8), size: i64, count: i64, pc: i64) -> i64:
    return store_any(w, mask, space, values, size, count, pc)


# --- ldmatrix --------------------------------------------------------------------------------------


@native
def load_matrix(w: Ptr(Warp), space: i64, table: Ptr(u16), out: Ptr(u8), count: i64, pc: i64) -> i64:
    """``count`` 8×8 matrices of 16-bit elements, row addresses in ``w.addresses``; ``table[v]`` says which element of a
    matrix (row·8 + column) is the v-th in the order of lane and half register."""
    for i in range(count):
        for row in range(8):
            lane = i * 8 + row
            host = resolve(w, space, w.addresses[lane], 16, lane, pc)
            if host == 0:
                return 1
            move(address(w.halves) + row * 16, host, 16)
        target = at(u16, out) + i * 64
        for v in range(64):
            target[v] = w.halves[table[v]]
    return 0


# --- cp.async --------------------------------------------------------------------------------------


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
    if w.launch.seed != 0 and w.queue_tail > w.queue_head:
        r = draw(w.worker)
        if (r & 3) == 0:
            n = w.queue_head + lshr(r, 8) % (w.queue_tail - w.queue_head)
            land(w, at(Copy, address(w.queue) + n % QUEUE * COPY_BYTES), ALL)
    return 0


@native
def copy_async(w: Ptr(Warp), mask: i64, size: i64, valid: Ptr(u32), pc: i64) -> i64:
    """``cp.async``: shared targets in ``w.addresses``, global sources in ``w.addresses2``. Checked now, done later."""
    if w.queue_tail - w.queue_head == QUEUE:
        land(w, at(Copy, address(w.queue) + w.queue_head % QUEUE * COPY_BYTES), ALL)
        w.queue_head += 1
    c = at(Copy, address(w.queue) + w.queue_tail % QUEUE * COPY_BYTES)
    c.mask = 0
    c.bytes = size
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        target = resolve(w, SHARED, w.addresses[lane], size, lane, pc)
        if target == 0:
            return 1
        source = w.addresses2[lane]
        n = valid[lane]
        if n > size:
            n = size
        if n > 0:
            if (source & (size - 1)) != 0:
                fault(w, MISALIGNED, pc, lane, source)
                return 1
            if source < GLOBAL_BASE:
                fault(w, OUT_OF_BOUNDS, pc, lane, source)
                return 1
            source = source + w.launch.host
            if w.addresses2[lane] < w.worker.low or w.addresses2[lane] + n > w.worker.high:
                source = find_global(w, w.addresses2[lane], n, lane, pc)
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
    for lane in range(32):
        w.committed[lane] = w.committed[lane] + ((mask >> lane) & 1)
    return land_early(w)


@native
def wait_async(w: Ptr(Warp), mask: i64, pending: i64) -> i64:
    """All copies of these lanes but those in their ``pending`` newest groups land, in an order that the seed picks;
    ``pending`` −1: all, committed or not."""
    count = w.queue_tail - w.queue_head
    if count == 0:
        return 0
    first = draw(w.worker) % count
    for i in range(count):
        n = i + first
        if n >= count:
            n -= count
        c = at(Copy, address(w.queue) + (w.queue_head + n) % QUEUE * COPY_BYTES)
        due = 0
        for lane in range(32):
            if c.group[lane] < w.committed[lane] - pending or pending < 0:
                due = due | (1 << lane)
        land(w, c, due & mask)
    while w.queue_head < w.queue_tail:
        c = at(Copy, address(w.queue) + w.queue_head % QUEUE * COPY_BYTES)
        if c.mask != 0:
            return 0
        w.queue_head += 1
    return 0
