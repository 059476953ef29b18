"""The machine's records in memory, which compiled code, NumPy and Python all read.

A warp's *frame* is a ``WarpRecord``, its table of pending lanes for each basic block, then its
registers. All that outlives a suspension is in the frame, so a warp can be suspended and resumed at
the start of any block.
"""

from __future__ import annotations

from ...native.native_language import Array, Ptr, Struct, i64, u8, u16, u32, u64

# Windows of the generic address space. A global address is its own generic address; shared, local
# and parameter addresses start at 0 in their own space. The number of a window is the number of its
# space minus one.
GLOBAL_BASE = 1 << 40
SHARED_BASE = 1 << 32
LOCAL_BASE = 2 << 32
PARAM_BASE = 3 << 32
WINDOW_BITS = 32

GENERIC, GLOBAL, SHARED, LOCAL, PARAM = range(5)
WRITES = 8  # added to the number of a space: the access writes
SPACES = {
    "": GENERIC, "global": GLOBAL, "const": GLOBAL, "shared": SHARED, "local": LOCAL,
    "param": PARAM,
}  # fmt: skip
WINDOWS = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE}

# What a region returns to the scheduler, and the scheduler to Python. CONVERGED: all lanes arrived.
JUMP, WAIT, YIELD, DONE, FAULT, STOPPED, FINISHED, DEADLOCK, STEP_LIMIT, CONVERGED = range(10)

OUT_OF_BOUNDS, MISALIGNED, USE_AFTER_FREE, TRAP, DIVERGED, BAD_BARRIER, BAD_INDEX = range(1, 8)
BAD_DESCRIPTOR, BAD_WARPGROUP, BAD_METADATA = range(8, 11)
BAD_MBARRIER, BAD_BULK, BAD_MAP, IN_FLIGHT, EXITED_CTA = range(11, 16)
RACE, BAD_FENCE, UNREAD_COPY, DISCARDED, STACK_OVERFLOW, GRID_DEPENDENCY = range(16, 22)
TX_COUNT_OVERFLOW, DOUBLE_INIT, READ_ONLY, MISSING_LANES, BAD_MEMBER_MASK, WARPGROUP_MISMATCH = (
    range(22, 28)
)
FAULTS = {
    OUT_OF_BOUNDS: "out of bounds", MISALIGNED: "misaligned", USE_AFTER_FREE: "use after free",
    TRAP: "trap", DIVERGED: "divergence", BAD_BARRIER: "barrier", BAD_INDEX: "branch index",
    BAD_DESCRIPTOR: "descriptor", BAD_WARPGROUP: "warpgroup", BAD_METADATA: "metadata",
    BAD_MBARRIER: "mbarrier", BAD_BULK: "bulk copy", BAD_MAP: "tensor map",
    IN_FLIGHT: "in flight", EXITED_CTA: "exited CTA", RACE: "race", BAD_FENCE: "fence",
    UNREAD_COPY: "unread", DISCARDED: "discarded", STACK_OVERFLOW: "stack overflow",
    GRID_DEPENDENCY: "early", TX_COUNT_OVERFLOW: "mbarrier", DOUBLE_INIT: "mbarrier",
    READ_ONLY: "read-only", MISSING_LANES: "divergence", BAD_MEMBER_MASK: "member mask",
    WARPGROUP_MISMATCH: "warpgroup",
}  # fmt: skip
LIVE_READ_ONLY = 2  # ``live`` of an allocation that kernels must not write

READY, WAITING, EXITED = range(3)  # states of a warp
EMPTY, RUNNING = range(2)  # states of a slot for a resident CTA
WINDOW = 128  # bytes behind the end of a space that may be read
# Where a queue is full, the next instruction completes its oldest entry.
MAX_ASYNC_COPIES = 64  # cp.async instructions of a warp in flight
MAX_BULK_COPIES = 64  # bulk copies of a CTA in flight
MAX_WGMMAS = 32  # wgmmas of a warp in flight
CACHED_RANGES = 8  # allocations that a worker caches, besides the last one
TRACKED_MBARRIERS = 64  # mbarriers of a CTA that a checked launch distinguishes
RANK_SHIFT = 24  # a shared memory address is CTA rank << 24 | offset, as on hardware
BARRIERS = 16  # barriers of a CTA
WARPGROUP_WARPS = 4
FULL_MASK = 0xFFFFFFFF


class AllocationRecord(Struct):
    """Device addresses [start, end). ``live`` is 0 once freed, ``LIVE_READ_ONLY`` if kernels must
    not write.
    """

    start: u64
    end: u64
    live: u32


class LaunchRecord(Struct):
    """One launch: the data that all of its warps share. ``host`` + device address = host address.

    - ``total_smem``, ``aggregate_smem``, ``warp_slots``: the special registers for the shared
      memory of a CTA and the warps of an SM.
    - ``number``: the number of the machine's launches so far.
    - ``workspace``: of a cooperative launch, the address of its workspace (low and high word); the
      second word of the workspace is the counter of its grid barrier.
    - ``regions``: the code of each block, 0 until ``compile`` (a callback) has compiled it.
    - ``outside``: the callback for calls of host functions.
    - ``local_bytes``: local memory per thread. The first ``static_bytes`` hold its variables, the
      rest is its stack.

    For a ``checked`` launch (``race_detector``):

    - ``actors``: the number of actors of a CTA; ``shadow_room``: the bytes of shared memory that
      its shadow memory covers.
    - ``strong``, ``constant``, ``inits``: for each operation, whether it orders other accesses,
      reads constants, initializes mbarriers.
    - ``overlaps``: the previous grid may still be running.
    """

    host: i64
    allocations: Ptr[AllocationRecord]
    allocation_count: i64
    params: Ptr[u8]
    param_bytes: i64
    grid: Ptr[u32] = Array(3)
    block: Ptr[u32] = Array(3)
    threads: i64
    warps: i64
    shared_bytes: i64
    dynamic_bytes: i64
    total_smem: i64
    aggregate_smem: i64
    reserved_smem: Ptr[u32] = Array(5)
    warp_slots: i64
    number: i64
    workspace: Ptr[u32] = Array(2)
    local_bytes: i64
    static_bytes: i64
    frame_bytes: i64
    blocks: i64
    regions: Ptr[i64]
    compile: i64
    outside: i64
    divergent: i64
    stop: i64
    seed: i64
    slice: i64
    step_limit: i64
    sms: i64
    cluster: Ptr[u32] = Array(3)
    clusters: Ptr[u32] = Array(3)
    cluster_size: i64
    explicit: i64
    checked: i64
    actors: i64
    shadow_room: i64
    shadow_bytes: i64
    strong: Ptr[u8]
    constant: Ptr[u8]
    inits: Ptr[u8]
    overlaps: i64


class Barrier(Struct):
    """A barrier of a CTA. ``arrived`` and ``expected`` are numbers of threads (``expected`` 0: all
    threads of the CTA). The rest are the votes of ``bar.red``: of the current phase, and of the
    last phase that completed.
    """

    arrived: i64
    expected: i64
    true_votes: i64
    false_votes: i64
    last_true_votes: i64
    last_false_votes: i64


class AsyncCopy(Struct):
    """One cp.async of a warp in flight: target, source, group and valid bytes of each lane.

    If ``bytes`` is 0 it is an arrival at the mbarrier whose host address is ``source``.
    """

    mask: u32
    bytes: u32
    pc: u32
    target: Ptr[u32] = Array(32)
    group: Ptr[u32] = Array(32)
    valid: Ptr[u32] = Array(32)
    source: Ptr[u64] = Array(32)


class BulkCopy(Struct):
    """One bulk copy of a CTA in flight: ``bytes`` from ``source`` to ``target``, issued by ``lane``
    of ``warp``.

    - A copy to shared memory signals the mbarrier at offset ``barrier``; a copy to global memory
      belongs to a bulk ``group`` of its lane.
    - ``reduce`` is the number of a reduction (``async_reductions``), or 0.
    - ``data`` holds the values of a store from registers.
    - The fields from ``code`` on are the box of a ``tensor`` copy, decoded from its tensor map,
      innermost dimension first (``tensor_copies``).
    """

    kind: u32
    reduce: u32
    warp: u32
    lane: u32
    group: u32
    pc: u32
    ctas: u32
    rank: u32
    bytes: i64
    source: i64
    target: i64
    barrier: i64
    step: i64
    data: Ptr[u64] = Array(2)
    tensor: u32
    code: u32
    element: u32
    swizzle: u32
    interleave: u32
    fill: u32
    rounded: u32
    dimensions: u32
    im2col: u32
    pixels: u32
    base: i64
    width: i64
    pitch: i64
    begin: i64
    end: i64
    row: i64
    extents: Ptr[i64] = Array(5)
    strides: Ptr[i64] = Array(5)
    box: Ptr[i64] = Array(5)
    element_strides: Ptr[i64] = Array(5)
    coordinates: Ptr[i64] = Array(5)
    position: Ptr[i64] = Array(5)
    lower: Ptr[i64] = Array(3)
    upper: Ptr[i64] = Array(3)
    offsets: Ptr[i64] = Array(3)


class WgmmaInFlight(Struct):
    """A wgmma of a warp in flight: its wgmma-group, a bit for each set of registers that it uses,
    and its operands in shared memory.
    """

    group: i64
    registers: i64
    pc: i64
    flags: i64
    a: i64
    b: i64
    bits: i64
    n: i64
    k: i64
    stored_k: i64


class Worker(Struct):
    """The part of a launch that one host thread runs: CTAs ``first`` … ``last``, ``resident`` at a
    time.

    - ``low`` … ``high``: the allocation that was accessed last, and whether it is ``read_only``.
    - ``lows``, ``highs``: a cache of the allocations that operations accessed last, indexed by the
      operation modulo ``CACHED_RANGES``. The second half is for operations that write; it never
      holds a read-only allocation.
    - ``steps``: the operations executed in loops; ``swept``: its value when old copies were last
      completed; ``started``: the warps started, which count toward the step limit too.
    - ``events``: counts events that sleeping lanes may wait for; ``seen_events``: its value when
      the worker last found no warp to run; ``idle``: how often lanes were woken without an event,
      the last time when ``steps`` was ``idle_last``.
    """

    launch: LaunchRecord
    ctas: i64
    resident: i64
    first: i64
    next: i64
    last: i64
    stop: i64
    low: i64
    high: i64
    steps: i64
    started: i64
    swept: i64
    events: i64
    seen_events: i64
    idle: i64
    idle_last: i64
    read_only: i64
    lows: Ptr[i64] = Array(2 * CACHED_RANGES)
    highs: Ptr[i64] = Array(2 * CACHED_RANGES)
    fault: i64
    fault_value: i64
    fault_pc: i64
    fault_lane: i64
    fault_address: i64
    fault_warp: i64
    fault_cta: i64


class Cta(Struct):
    """A slot for a resident CTA. Its warps' frames start at ``frames``, every ``frame_bytes``.

    ``first`` is the address of the slot of rank 0 of its cluster, which the other ranks follow. In
    that slot ``cluster_live`` is the number of live threads of the cluster, ``cluster_arrived`` of
    those that have arrived at its barrier. Bulk copies before ``bulk_old`` were already in flight
    when the worker last completed old copies.
    """

    worker: Worker
    launch: LaunchRecord
    state: i64
    linear: i64
    smid: i64
    index: Ptr[u32] = Array(3)
    cluster_id: Ptr[u32] = Array(3)
    cluster_index: Ptr[u32] = Array(3)
    rank: i64
    first: i64
    shared: i64
    local: i64
    frames: i64
    live_warps: i64
    random: i64
    bulk_copies: BulkCopy
    bulk_head: i64
    bulk_tail: i64
    bulk_old: i64
    wgmmas: i64
    cluster_live: i64
    cluster_arrived: i64
    clocks: i64
    shadow: i64
    mbarrier_count: i64
    mbarriers: Ptr[i64] = Array(TRACKED_MBARRIERS)
    barriers: Ptr[Barrier] = Array(BARRIERS)


class WarpRecord(Struct):
    """The head of a warp's frame. Masks have a bit for each lane.

    - ``live``: not exited; ``active``: running; ``others``: live but not active; ``waiting``: at
      a barrier of the CTA or asleep; ``parked``: at a convergent instruction.
    - ``pending[b]``: lanes to run at block b.
    - ``waiting_at[i]``: waiting at barrier i; ``arrived_at[i]``: arrived there without waiting;
      ``counted_at``: the barriers that have counted this warp.
    - ``asleep``: lanes that test their condition again after the next event; ``expired``: lanes
      whose wait timed out, because no event can occur.
    - ``in_cluster_barrier``: arrived at the cluster's barrier in its current phase;
      ``cluster_wait_due``: arrived, and have not yet executed the wait.
    - ``calling``: lanes that call a host function, at operation ``called``.
    - ``stack``: the bytes that each lane has allocated on its stack.
    - Copies before ``queue_old`` were already in flight when the worker last completed old copies.
    """

    cta: Cta
    worker: Worker
    launch: LaunchRecord
    pending: Ptr[u32]
    queue: AsyncCopy
    queue_head: i64
    queue_tail: i64
    queue_old: i64
    index: i64
    state: i64
    block: i64
    budget: i64
    spin: i64
    sticky: i64
    rotor: i64
    stuck: i64
    live: u32
    active: u32
    waiting: u32
    counted_at: u32
    others: u32
    parked: u32
    carry: u32
    asleep: u32
    expired: u32
    in_cluster_barrier: u32
    cluster_wait_due: u32
    awaited: i64
    called: i64
    calling: u32
    wgmma_head: i64
    wgmma_tail: i64
    wgmma_group: i64
    wgmma_done: i64
    in_flight: i64
    unfenced: i64
    fences: i64
    fencing: i64
    waiting_at: Ptr[u32] = Array(BARRIERS)
    arrived_at: Ptr[u32] = Array(BARRIERS)
    committed: Ptr[u32] = Array(32)
    bulk_committed: Ptr[u32] = Array(32)
    stack: Ptr[u64] = Array(32)
    tid_x: Ptr[u32] = Array(32)
    tid_y: Ptr[u32] = Array(32)
    tid_z: Ptr[u32] = Array(32)
    addresses: Ptr[u64] = Array(32)
    addresses2: Ptr[u64] = Array(32)
    operands: Ptr[u32] = Array(1280)
    results: Ptr[u32] = Array(512)
    halves: Ptr[u16] = Array(256)
    wgmmas: Ptr[WgmmaInFlight] = Array(MAX_WGMMAS)
