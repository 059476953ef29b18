"""Memory access, in native code: all accesses of both evaluators go through these functions.

They translate addresses to host addresses, which happens nowhere else. A function takes the warp,
the lanes, the addresses, the size in bytes and the operation (``pc``). It checks bounds, alignment,
use after free and writes to read-only memory, and reports a fault. ``WRITES`` is added to the
number of the state space if the access writes.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, below, lowest, lshr
from ...native.native_language import i64, native, u8, u16, u32, u64
from ..check.race_detector import check_grid_dependency, check_read, check_write, writes_same_value
from ..check.vector_clocks import LANE, current_step, order_strong, record_use, when_checked
from ..state.lane_groups import fault
from ..state.records import (
    BAD_BULK,
    CACHED_RANGES,
    EXITED_CTA,
    GENERIC,
    GLOBAL,
    GLOBAL_BASE,
    LIVE_READ_ONLY,
    LOCAL,
    MISALIGNED,
    OUT_OF_BOUNDS,
    PARAM,
    RANK_SHIFT,
    READ_ONLY,
    RUNNING,
    SHARED,
    USE_AFTER_FREE,
    WINDOW_BITS,
    WRITES,
    Cta,
    WarpRecord,
)

OFFSET = (1 << WINDOW_BITS) - 1
CTA_BYTES = Cta.size


@native(inline=True)
def copy_element(target: i64, source: i64, size: i64) -> i64:
    """Copy 1, 2, 4, 8, 16 or 32 bytes."""
    if size == 4:
        at(u32, target)[0] = at(u32, source)[0]
    elif size == 2:
        at(u16, target)[0] = at(u16, source)[0]
    elif size == 1:
        at(u8, target)[0] = at(u8, source)[0]
    else:
        for i in range(size // 8):
            at(u64, target)[i] = at(u64, source)[i]
    return 0


# --- address translation --------------------------------------------------------------------------


@native
def find_allocation(w: WarpRecord, a: i64) -> i64:
    """Find the live allocation that contains device address ``a`` and make it the worker's current
    one. Returns 0 or the kind of fault.
    """
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
        return OUT_OF_BOUNDS
    allocation = launch.allocations[low - 1]
    if a >= allocation.end:
        return OUT_OF_BOUNDS
    if allocation.live == 0:
        return USE_AFTER_FREE
    w.worker.low = allocation.start
    w.worker.high = allocation.end
    w.worker.read_only = allocation.live == LIVE_READ_ONLY
    return 0


@native(inline=True)
def cache_allocation(w: WarpRecord, space: i64, pc: i64) -> i64:
    """Store the worker's current allocation in the cache entry of operation ``pc``."""
    if space < WRITES:
        w.worker.lows[pc % CACHED_RANGES] = w.worker.low
        w.worker.highs[pc % CACHED_RANGES] = w.worker.high
    elif w.worker.read_only == 0:
        w.worker.lows[CACHED_RANGES + pc % CACHED_RANGES] = w.worker.low
        w.worker.highs[CACHED_RANGES + pc % CACHED_RANGES] = w.worker.high
    return 0


@native
def find_global(w: WarpRecord, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes at device address ``a`` in one live allocation; 0 after a
    fault. Bounds are compared by differences because sums of addresses may wrap.
    """
    kind = find_allocation(w, a)
    if kind == 0 and a > w.worker.high - n:
        kind = OUT_OF_BOUNDS
    return w.launch.host + a if kind == 0 else fault(w, kind, pc, lane, a)


@native
def find_writable(w: WarpRecord, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The same for a write."""
    host = find_global(w, a, n, lane, pc)
    if host != 0 and w.worker.read_only != 0:
        return fault(w, READ_ONLY, pc, lane, a)
    return host


@native(inline=True)
def window(w: WarpRecord, kind: i64, lane: i64) -> i64:
    """The host address of the first byte of a lane's window; 0 if there is no such window."""
    if kind == SHARED:
        return w.cta.shared
    if kind == LOCAL:
        return w.cta.local + (w.index * 32 + lane) * w.launch.local_bytes
    if kind == PARAM:
        return address(w.launch.params)
    return 0


@native(inline=True)
def window_bytes(w: WarpRecord, kind: i64) -> i64:
    if kind == SHARED:
        return w.launch.shared_bytes
    if kind == LOCAL:
        return w.launch.local_bytes
    return w.launch.param_bytes


@native
def resolve_in_cluster(w: WarpRecord, a: i64, offset: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes of shared memory of another CTA of the cluster, whose rank is
    part of ``offset``; 0 after a fault.
    """
    rank = offset >> RANK_SHIFT
    local_offset = offset & ((1 << RANK_SHIFT) - 1)
    if rank < 0 or rank >= w.launch.cluster_size or local_offset > w.launch.shared_bytes - n:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    cta = at(Cta, w.cta.first + rank * CTA_BYTES)
    if cta.state != RUNNING:
        return fault(w, EXITED_CTA, pc, lane, a)
    return cta.shared + local_offset


@native
def resolve(w: WarpRecord, space: i64, a: i64, n: i64, lane: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes at ``a`` in a state space; 0 after a fault."""
    if (a & (n - 1)) != 0:
        return fault(w, MISALIGNED, pc, lane, a)
    kind = space & (WRITES - 1)
    if kind <= GLOBAL and a >= GLOBAL_BASE:
        if space >= WRITES and w.worker.read_only != 0:
            return find_writable(w, a, n, lane, pc)
        if a >= w.worker.low and a <= w.worker.high - n:
            return w.launch.host + a
        return (
            find_global(w, a, n, lane, pc) if space < WRITES else find_writable(w, a, n, lane, pc)
        )
    offset = a
    if kind == GENERIC:
        kind = lshr(a, WINDOW_BITS) + 1
        offset = a & OFFSET
    if kind == SHARED:
        if offset >> RANK_SHIFT != w.cta.rank:
            return resolve_in_cluster(w, a, offset, n, lane, pc)
        offset = offset & ((1 << RANK_SHIFT) - 1)
    base = window(w, kind, lane)
    if base == 0 or offset < 0 or offset > window_bytes(w, kind) - n:
        return fault(w, OUT_OF_BOUNDS, pc, lane, a)
    if kind == PARAM and space >= WRITES:
        return fault(w, READ_ONLY, pc, lane, a)
    return base + offset


@native
def resolve_lanes(w: WarpRecord, mask: i64, space: i64, n: i64, pc: i64) -> i64:
    """Replace the ``w.addresses`` of the lanes of ``mask`` by host addresses. Returns 1 after a
    fault.
    """
    if w.launch.checked != 0 and check_access(w, mask, space, n, 1, 0, pc) != 0:
        return 1
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        host = resolve(w, space, w.addresses[lane], n, lane, pc)
        if host == 0:
            return 1
        w.addresses[lane] = host
    return cache_allocation(w, space, pc)


@native
def store_zeros(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """Store zeros to shared memory; the sizes in bytes are in ``w.operands``. Returns 1 after a
    fault.
    """
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        a = w.addresses[lane]
        n = at(i64, w.operands)[lane]
        if n < 0 or (n & 7) != 0:
            w.worker.fault_value = n
            fault(w, BAD_BULK, pc, lane, a)
            return 1
        if n != 0:
            host = resolve(w, SHARED, a, 8, lane, pc)
            last = 0 if host == 0 else resolve(w, SHARED, a + n - 8, 8, lane, pc)
            if last != 0 and last - host != n - 8:  # the end is in another CTA
                last = fault(w, OUT_OF_BOUNDS, pc, lane, a)
            if last == 0:
                return 1
            if w.launch.checked != 0:
                step = current_step(w, pc) | lane << LANE
                cta = owner(w, host)
                if check_write(w, cta, host - cta.shared, n, step, lane) != 0:
                    return 1
            for i in range(n // 8):
                at(u64, host)[i] = 0
    return 0


@native
def check_bounds(w: WarpRecord, mask: i64, space: i64, n: i64, pc: i64) -> i64:
    """Returns 1 after a fault if an access of ``n`` bytes by the lanes of ``mask`` is invalid."""
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        if resolve(w, space, w.addresses[lane], n, lane, pc) == 0:
            return 1
    return 0


@native(inline=True)
def window_kind(w: WarpRecord, mask: i64, space: i64) -> i64:
    """The state space, without ``WRITES``. For a generic access it is that of the address of the
    first lane.
    """
    if space != GENERIC or mask == 0:
        return space
    a = w.addresses[lowest(mask)]
    return GLOBAL if a >= GLOBAL_BASE else lshr(a, WINDOW_BITS) + 1


@native(inline=True)
def fast_base(w: WarpRecord, mask: i64, space: i64, kind: i64, n: i64, pc: i64) -> i64:
    """The difference between host addresses and the lanes' addresses, if all lanes access ``n``
    valid bytes in window ``kind``; else 0 (no fault), and the caller resolves each lane. Lane i
    adds ``lane_stride`` · i besides.
    """
    low = (kind - 1) << WINDOW_BITS if (space & (WRITES - 1)) == GENERIC else 0
    base = 0
    high = 0
    if kind == SHARED:
        low = low + (w.cta.rank << RANK_SHIFT)
        base = w.cta.shared - low
        high = low + w.launch.shared_bytes
    elif kind == LOCAL or (kind == PARAM and space < WRITES):
        base = window(w, kind, 0) - low
        high = low + window_bytes(w, kind)
    elif kind == GLOBAL and mask != 0:
        a = w.addresses[lowest(mask)]
        if a < w.worker.low or a >= w.worker.high:
            find_allocation(w, a)
        cache_allocation(w, space, pc)
        base = w.launch.host if space < WRITES or w.worker.read_only == 0 else 0
        low = w.worker.low
        high = w.worker.high
    last = high - low - n
    if base == 0 or last < 0:
        return 0
    invalid = 0
    for lane in range(32):
        a = w.addresses[lane]
        invalid_lane = below(last, a - low) | (a & n - 1)
        invalid = invalid | (invalid_lane & -((mask >> lane) & 1))
    return base if invalid == 0 else 0


@native
def resolve_uniform(w: WarpRecord, mask: i64, space: i64, a: i64, n: i64, pc: i64) -> i64:
    """The host address of ``n`` bytes at ``a``, not in local memory, that all lanes of ``mask``
    read; 0 after a fault. For an empty mask it is the address of some readable bytes.
    """
    if mask == 0:
        return address(w.results)
    if w.launch.checked != 0:
        for lane in range(32):
            w.addresses[lane] = a
        if check_access(w, mask, space, n, 1, 0, pc) != 0:
            return 0
    host = resolve(w, space, a, n, lowest(mask), pc)
    cache_allocation(w, space, pc)
    return host


@native(inline=True)
def lane_stride(w: WarpRecord, kind: i64) -> i64:
    """The distance in bytes between the windows of two lanes."""
    return w.launch.local_bytes if kind == LOCAL else 0


# --- checked launches -----------------------------------------------------------------------------


@native
def owner(w: WarpRecord, host: i64) -> Cta:
    """The CTA of the warp's cluster whose shared memory holds a host address."""
    result = w.cta
    for rank in range(w.launch.cluster_size):
        cta = at(Cta, w.cta.first + rank * CTA_BYTES)
        if host >= cta.shared and host < cta.shared + w.launch.shared_bytes:
            result = cta
    return result


@when_checked
def check_access(
    w: WarpRecord, mask: i64, space: i64, size: i64, count: i64, values: i64, pc: i64
) -> i64:
    """Check for races: each lane reads ``count`` elements of ``size`` bytes at its address, or
    writes the elements at host address ``values`` (0: it reads). Returns 1 after a fault or a race.
    """
    n = size * count
    if (space & (WRITES - 1)) <= GLOBAL and w.launch.overlaps != 0 and w.launch.constant[pc] == 0:
        m = mask
        while m != 0:
            lane = lowest(m)
            m = m & (m - 1)
            if (
                w.addresses[lane] >= GLOBAL_BASE
                and check_grid_dependency(w, w.addresses[lane], lane, pc) != 0
            ):
                return 1
    if w.launch.strong[pc] != 0:
        return order_strong(w)
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        host = resolve(w, space, w.addresses[lane], n, lane, pc)
        if host == 0:
            return 1
        cta = owner(w, host)
        offset = host - cta.shared
        if offset >= 0 and offset < w.launch.shared_bytes:
            step = current_step(w, pc) | lane << LANE
            if cta.rank != w.cta.rank:
                record_use(cta, step)
            if values != 0:
                first = at(u8, values + lane * size)
                if writes_same_value(cta, offset, n, first, size, pc) == 0 and (
                    check_write(w, cta, offset, n, step, lane) != 0
                ):
                    return 1
            elif check_read(w, cta, offset, n, step, 0, lane) != 0:
                return 1
    return 0
