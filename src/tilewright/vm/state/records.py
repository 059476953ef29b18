"""What the machine keeps in memory: records that compiled code, NumPy and Python all read.

A warp's *frame* is a ``Warp`` record, its table of lanes pending at each block, then its registers.
Whatever must outlive a suspension is in the frame, so a warp can stop and go on at the start of any
block.
"""

from __future__ import annotations

from ...native.native_language import Array, Ptr, Struct, i64, u8, u16, u32, u64

# Windows of the generic address space. Global addresses are the same everywhere; shared, local and
# parameter addresses count from 0 in their own space. A window's number is its space's, less one.
GLOBAL_BASE = 1 << 40
SHARED_BASE = 1 << 32
LOCAL_BASE = 2 << 32
PARAM_BASE = 3 << 32
WINDOW_BITS = 32

GENERIC, GLOBAL, SHARED, LOCAL, PARAM = range(5)
WRITES = 8  # added to a space: the access writes
SPACES = {
    "": GENERIC,
    "global": GLOBAL,
    "const": GLOBAL,
    "shared": SHARED,
    "local": LOCAL,
    "param": PARAM,
}
WINDOWS = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE}

# What a region returns to the scheduler, and the scheduler to Python. HERE: all lanes have come.
JUMP, WAIT, YIELD, DONE, FAULT, STOPPED, FINISHED, DEADLOCK, STEP_LIMIT, CONVERGED = range(10)

OUT_OF_BOUNDS, MISALIGNED, USE_AFTER_FREE, TRAP, DIVERGED, BAD_BARRIER, BAD_INDEX = range(1, 8)
BAD_DESCRIPTOR, BAD_WARPGROUP, BAD_METADATA = range(8, 11)
BAD_MBARRIER, BAD_BULK, BAD_MAP, IN_FLIGHT, EXITED_CTA = range(11, 16)
RACE, BAD_FENCE, UNREAD_COPY, DISCARDED, STACK_OVERFLOW, GRID_DEPENDENCY = range(16, 22)
TX_COUNT_OVERFLOW, DOUBLE_INIT, READ_ONLY, MISSING_LANES, BAD_MEMBER_MASK, WARPGROUP_MISMATCH = (
    range(22, 28)
)
FAULTS = {
    OUT_OF_BOUNDS: "out of bounds",
    MISALIGNED: "misaligned",
    USE_AFTER_FREE: "use after free",
    TRAP: "trap",
    DIVERGED: "divergence",
    BAD_BARRIER: "barrier",
    BAD_INDEX: "branch index",
    BAD_DESCRIPTOR: "descriptor",
    BAD_WARPGROUP: "warpgroup",
    BAD_METADATA: "metadata",
    BAD_MBARRIER: "mbarrier",
    BAD_BULK: "bulk copy",
    BAD_MAP: "tensor map",
    IN_FLIGHT: "in flight",
    EXITED_CTA: "exited CTA",
    RACE: "race",
    BAD_FENCE: "fence",
    UNREAD_COPY: "unread",
    DISCARDED: "discarded",
    STACK_OVERFLOW: "stack overflow",
    GRID_DEPENDENCY: "early",
    TX_COUNT_OVERFLOW: "mbarrier",
    DOUBLE_INIT: "mbarrier",
    READ_ONLY: "read-only",
    MISSING_LANES: "divergence",
    BAD_MEMBER_MASK: "member mask",
    WARPGROUP_MISMATCH: "warpgroup",
}
LIVE_READ_ONLY = 2  # ``live`` of an allocation that kernels only read

READY, WAITING, EXITED = range(3)  # a warp
EMPTY, RUNNING = range(2)  # a resident CTA's place
WINDOW = 128  # bytes beyond a space that may be read
MAX_ASYNC_COPIES = (
    64  # cp.async instructions of a warp that can be under way; more makes the oldest land
)
MAX_BULK_COPIES = 64  # bulk copies of a CTA that can be under way, likewise
MAX_WGMMAS = 32  # wgmmas of a warp that can be under way, likewise
CACHED_RANGES = 8  # allocations that a worker knows, besides the last
TRACKED_MBARRIERS = 64  # of a CTA that a checked launch tells apart
RANK_SHIFT = 24  # an address in shared memory: rank in the cluster << 24 | offset, as on hardware
BARRIERS = 16
WARPGROUP_WARPS = 4  # of a warpgroup
FULL_MASK = 0xFFFFFFFF


class AllocationRecord(Struct):
    """Device addresses [start, end); ``live`` is 0 once freed, ``FIXED`` if kernels only read."""

    start: u64
    end: u64
    live: u32


class LaunchRecord(Struct):
    """One launch: what all of its warps share. ``host`` + device address = host address.

    ``total_smem``, ``aggregate_smem`` and ``warp_slots`` are an SM's view of a CTA's shared memory
    and of its own warps; ``number`` counts a machine's launches; a cooperative one has a
    ``workspace`` (its address, low and high), in whose second word its CTAs meet.
    ``regions`` has the code of each block, 0 where ``compile`` (a callback) has still to make it;
    ``outside`` is the callback for calls of what the host does. Of the ``local_bytes`` of a thread
    the first ``static_bytes`` are its variables', the rest its stack.
    Where it is ``checked``: a CTA has that many ``actors`` (``races``), its ``shadow`` room for so
    many bytes of shared memory; ``strong`` says of each operation whether it orders others,
    ``constant`` whether it reads constants, ``inits`` whether it initialises mbarriers;
    ``overlaps``: the grid before may still run.
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
    """``arrived`` and ``expected`` count threads (0: all of the CTA); the rest are votes of
    ``bar.red``.
    """

    arrived: i64
    expected: i64
    ayes: i64
    nays: i64
    last_ayes: i64
    last_nays: i64


class AsyncCopy(Struct):
    """One cp.async of a warp under way: for each lane its target, source, group and valid bytes.
    One without ``bytes`` arrives at the mbarrier that is its source.
    """

    mask: u32
    bytes: u32
    pc: u32
    target: Ptr[u32] = Array(32)
    group: Ptr[u32] = Array(32)
    valid: Ptr[u32] = Array(32)
    source: Ptr[u64] = Array(32)


class BulkCopy(Struct):
    """One bulk copy of a CTA under way: ``bytes`` from ``source`` to ``target``, by what lane of
    what warp. Those that land in shared memory tell the mbarrier at ``barrier``; the others belong
    to a ``group`` of their lane. Those with a ``reduce`` combine (``reductions``). What a register
    held is in ``data``. Of a ``tensor`` the rest is its box, as map and coordinates say, innermost
    dimension first (``tensors``).
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
    mark: i64
    data: Ptr[u64] = Array(2)
    tensor: u32
    code: u32
    element: u32
    swizzle: u32
    interleave: u32
    fill: u32
    rounded: u32
    modes: u32
    im2col: u32
    pixels: u32
    base: i64
    width: i64
    pitch: i64
    begin: i64
    end: i64
    row: i64
    dims: Ptr[i64] = Array(5)
    strides: Ptr[i64] = Array(5)
    box: Ptr[i64] = Array(5)
    steps: Ptr[i64] = Array(5)
    at: Ptr[i64] = Array(5)
    now: Ptr[i64] = Array(5)
    lower: Ptr[i64] = Array(3)
    upper: Ptr[i64] = Array(3)
    offsets: Ptr[i64] = Array(3)


class WgmmaInFlight(Struct):
    """A wgmma of a warp under way: its group, a bit for each set of registers that it uses, and the
    shared memory that it reads.
    """

    group: i64
    registers: i64
    pc: i64
    how: i64
    a: i64
    b: i64
    bits: i64
    n: i64
    k: i64
    stored_k: i64


class Worker(Struct):
    """A host thread's share of a launch: CTAs ``first`` … ``last``, ``resident`` at a time.

    ``low`` … ``high`` is the allocation that was found last, and whether it is ``read_only``; in
    ``lows`` and ``highs`` each operation has those it found last, in one of ``FOUND`` places by its
    number; behind these are as many for operations that write, where no fixed one ever is.
    ``steps`` counts operations in loops, and was ``swept`` when old copies last completed;
    ``started`` counts the warps that began, which a limit counts, too; ``events`` what sleepers may
    have waited for, ``idle`` how often none came while all slept, the last time after
    ``idle_last`` steps.
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
    seen: i64
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
    """A place for a resident CTA; its warps' frames stand at ``frames``, ``frame_bytes`` apart.

    ``first`` is the address of the place of its cluster's rank 0, which the others follow; there
    ``cluster_live`` counts the cluster's threads, ``cluster_came`` those at its barrier. Flights
    before ``bulk_old`` were in flight at the worker's last sweep.
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
    products: i64
    cluster_live: i64
    cluster_came: i64
    clocks: i64
    shadow: i64
    mbarrier_count: i64
    mbarriers: Ptr[i64] = Array(TRACKED_MBARRIERS)
    barriers: Ptr[Barrier] = Array(BARRIERS)


class WarpRecord(Struct):
    """The head of a warp's frame. Masks have a bit for each lane.

    ``live``: not exited; ``active``: running now; ``others``: live but not active; ``waiting``: at
    a barrier of the CTA; ``parked``: at a convergent instruction. ``pending[b]``: to run at block
    b. ``at[i]``: waiting at barrier i; ``came[i]``: arrived there without waiting; ``arrived``: the
    barriers that have counted this warp. ``asleep``: lanes that look again when something happens,
    ``expired`` what they find if nothing did; ``clustered``: arrived at the cluster's barrier,
    which has not opened since, and ``due`` to wait there; ``calling``: those that call the host,
    at operation ``called``. ``stack``: the bytes that each lane has taken of its stack. Copies
    before ``queue_old`` were in flight at the worker's last sweep.
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
    arrived: u32
    others: u32
    parked: u32
    carry: u32
    asleep: u32
    expired: u32
    clustered: u32
    due: u32
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
    at: Ptr[u32] = Array(BARRIERS)
    came: Ptr[u32] = Array(BARRIERS)
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
    products: Ptr[WgmmaInFlight] = Array(MAX_WGMMAS)
