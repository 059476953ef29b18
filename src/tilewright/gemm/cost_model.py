"""Cost model: the estimated seconds of a configuration for a problem on a device.

The estimate combines the time in which the busiest SM multiplies, loads and stores its tiles with
the time of the memory traffic. The coefficients are fitted on an H200 (``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from ..target import DeviceSpec
from .cp_async import multistage_config as multistage
from .cp_async import simt_config as simt
from .cp_async.multistage_config import Config
from .cp_async.simt_config import SimtConfig
from .problem import Problem
from .roofline import f64_per_cycle
from .tma import tma_config as tma
from .tma import tma_geometry as geometry
from .tma.tma_config import TmaConfig
from .tma.tma_operand import TmaOperand, operands

AnyConfig = Config | TmaConfig | SimtConfig


def estimate(problem: Problem, config: AnyConfig, device: DeviceSpec) -> float:
    """Estimated seconds on the device."""
    if isinstance(config, TmaConfig):
        return _tma_time(problem, config, device)
    if isinstance(config, SimtConfig):
        return _simt_time(problem, config, device)
    return _multistage_time(problem, config, device)


def terms(problem: Problem, config: AnyConfig, device: DeviceSpec) -> dict[str, float]:
    """The terms of the estimate: the seconds that each would take alone. Terms that overlap take
    about as long as the longest.
    """
    if isinstance(config, TmaConfig):
        return _tma_terms(problem, config, device)
    if isinstance(config, SimtConfig):
        return _simt_terms(problem, config, device)
    return _multistage_terms(problem, config, device) if isinstance(config, Config) else {}


# --- multistage ---------------------------------------------------------------------------------

CLOCK = 1.6e9  # where this was fitted
RATE = 1024 * CLOCK  # products of an SM in a second by mma.sync, of 16-bit types
# Of other types, by bits: the ratio of the peaks in NVIDIA's A100 whitepaper. Not fitted.
RELATIVE_RATE = {32: 0.5, 16: 1.0, 8: 2.0, 4: 4.0, 1: 16.0}
STARTED = 2.5e-6  # seconds
UNALIGNED = {16: 1.2, 8: 1.5, 4: 3.0, 2: 6.0}  # times as long, by the bytes that a copy moves
# What a tile shape reaches of the tensor cores' mma.sync rate when it has the SM for itself, by
# what it reads from shared memory for each product: 1 / (1 + COST · (1/wm + 1/wn)).
COST = 30.0
F64_COST = 2.0  # the same for f64; not fitted
STEP = 40_000  # products of an SM in the time that a stage's barrier takes
ENDS = 3_000_000  # and in the time of a tile's prologue and epilogue


def _multistage_time(problem: Problem, config: Config, device: DeviceSpec) -> float:
    return float(sum(_multistage_terms(problem, config, device).values()))


def _multistage_terms(problem: Problem, config: Config, device: DeviceSpec) -> dict[str, float]:
    """Waves of CTAs; a wave takes the time of its products, barriers, prologue and epilogue."""
    copies = _multistage_copies(problem)
    problem = multistage.relayout_problem(problem)
    bm, bn, bk = config.tile
    tiles, double = config.tiles(problem), problem.is_f64
    bits = problem.input.bits
    together = min(config.resident(bits, device.limits), max(1, -(-tiles // device.sms)))
    waves = -(-tiles // (device.sms * together))
    wm, wn = config.warp_tile
    busy = min(1.0, config.threads * together / 256)  # four schedulers want two warps each
    rate = busy / (1 + (F64_COST if double else COST) * (1 / wm + 1 / wn))
    steps = waves * -(-problem.k // bk)
    slower = 1.0 if double else UNALIGNED[min(problem.align_a, problem.align_b)]
    most = f64_per_cycle(device) / 2 * CLOCK if double else RATE * RELATIVE_RATE[bits]
    return {
        "products": slower * steps * bm * bn * bk * together / (rate * most),
        "barriers": slower * steps * STEP / RATE,
        "ends of tiles": slower * waves * ENDS / RATE,
        "copies": copies,
        "launches": STARTED,
    }


def _multistage_copies(problem: Problem) -> float:
    """Seconds of the relayout of operands that multistage cannot read."""
    relaid = multistage.relayout_problem(problem)
    pairs = (("a", problem.m), ("b", problem.n))
    copied = [
        rows for x, rows in pairs
        if any(getattr(problem, f) != getattr(relaid, f) for f in (f"{x}_major", f"align_{x}"))
    ]  # fmt: skip
    moved = sum(copied) * problem.k * problem.batch * problem.input.bits / 8
    return COPY + 2 * moved * COPIED if copied else 0.0


# --- simt ---------------------------------------------------------------------------------------

LANES = {80: 64}  # FMAs of f32 of an SM in a cycle; of all others
MOST_LANES = 128
OTHERS = 40  # a thread's instructions for a stage, and its barrier, besides FMAs, loads and copies
HIDDEN = 8  # warps of an SM that hide what an instruction waits for
BEGIN = 3000  # cycles of a tile's prologue and epilogue


def _simt_time(problem: Problem, config: SimtConfig, device: DeviceSpec) -> float:
    """Waves of CTAs, or all that memory must move."""
    of = _simt_terms(problem, config, device)
    busy = max(of["instructions"], of["loads"])
    return of["launches"] + max(busy + of["ends of tiles"], of["memory"])


def _simt_terms(problem: Problem, config: SimtConfig, device: DeviceSpec) -> dict[str, float]:
    """A CTA takes as long as it issues instructions, or as its operands take from the L2."""
    tiles = config.tiles(problem)
    together = min(config.resident(device.limits), max(1, ceil(tiles / device.sms)))
    waves, threads = ceil(tiles / (device.sms * together)), config.threads * together
    rate = LANES.get(device.target.number, MOST_LANES) * min(1.0, threads / 32 / HIDDEN) ** 0.5
    loads = together * 4 * sum(config.tile[:2]) / INGRESS
    return {
        "instructions": waves * problem.k * _issued(problem, config) * threads / rate * CYCLE,
        "loads": waves * problem.k * loads * CYCLE,
        "ends of tiles": waves * BEGIN * CYCLE,
        "memory": problem.bytes * MEMORY,
        "launches": STARTED,
    }


def _issued(problem: Problem, config: SimtConfig) -> float:
    """Instructions of a thread for each k: a copy takes two, one is its address."""
    (bm, bn, bk), (rows, columns) = config.tile, config.thread_tile
    a = 1 if problem.a_major == "k" else problem.align_a // 4
    b = 1 if problem.b_major == "k" else problem.align_b // 4
    copies = 2 * (bm / a + bn / b) / config.threads
    return rows * columns + (rows + columns) / simt.VECTOR + copies + OTHERS / bk


# --- tma ----------------------------------------------------------------------------------------

# Fitted to 7,000 times of 230 problems on an H200 (benchmarks/NOTES.md). In cycles, of one SM:
CYCLE = 1 / 1.82e9
ISSUE = 39  # of a step of K, whatever it computes
WAIT = 18  # of a step, for the others of a cluster, each time that they are twice as many
PRODUCTS = 1.1  # over what the tensor cores take at their peak
PROMOTION = 0.5  # of what adding up fast sums takes, where products hide it
READS = 1.45  # over what 128 bytes a cycle from shared memory take
INGRESS = 71  # bytes from the L2
LATENCY = 1330  # of a load
REQUEST = 1.41  # for a line that a copy asks for; more where it lies across multiples of 128:
STRADDLES = {128: 1.0, 64: 1.33, 32: 1.8, 16: 2.8}
ZEROS = 11  # bytes that a copy fills in, for what lies beyond the matrix
# in seconds:
LAUNCH = 0.28e-6
CLUSTER = {1: 0.0, 2: 0.8e-6, 4: 0.5e-6, 8: 1.8e-6}  # for its CTAs to begin and end together
TILE, ELEMENTS = 0.42e-6, 1.66e-6 / (128 * 256)  # for a tile to leave
TURN, NARROW = 0.2, 0.5  # of that, where another warpgroup multiplies meanwhile; in short lines
SHORT = 2.9  # times as long in lines of 32 bytes
PART = 0.09e-6  # for each part in which a tile leaves
POWER = 1.08  # times as long for the same products, where none does: power limits a full machine
FINISH, PARTS = 1.4e-6, 1 / 4.7e12  # for the kernel that adds up parts, and a byte of them
ADDED = 0.07e-6  # and for each part of a tile
MEMORY = 1 / 4.0e12  # for a byte that must be moved
SPREAD = 0.94  # of all SMs are needed for that rate
SHORT_BURSTS = 1.006  # times as long where a step takes one line of 128 bytes, not two
REREAD = 0.42  # of the bytes that tiles of several rows or columns read
AT_ONCE = 0.4  # of that, where all do at once
SUSTAINED = 0.76  # of the tensor cores' peak
COPY, COPIED = 2.0e-6, 1 / 2.5e12  # for a kernel that lays matrices out, and a byte of them


class _Work(NamedTuple):
    """Of the busiest SM: tiles, or parts of them, that leave, and steps of K; of all: how many
    pieces there are, how many parts of tiles, and in how many places at once.
    """

    ends: int
    steps: int
    pieces: int
    parts: int
    places: int


def _tma_time(problem: Problem, config: TmaConfig, device: DeviceSpec) -> float:
    """The mainloops and epilogues of the busiest SM, or the memory traffic."""
    work = _work(problem, config, device)
    steps = _steps(problem, config, work)
    ends = work.ends * _end(config, work) + _together(config)
    busy = max(steps, _limit(problem, device, steps)) + ends
    least = _moved(problem, config, work) * _a_byte(work)
    launches = _launches(problem, config, work)
    return (busy**4 + least**4) ** 0.25 + _copies(problem) + launches


def _tma_terms(problem: Problem, config: TmaConfig, device: DeviceSpec) -> dict[str, float]:
    work = _work(problem, config, device)
    products, reads, loads, requests, waits = (
        cycles * work.steps * CYCLE for cycles in _step_terms(problem, config)
    )
    return {
        "products": products * _power(config, work),
        "reading shared memory": reads,
        "bytes from the L2": loads,
        "requests to the L2": requests,
        "latency": waits,
        "memory": _moved(problem, config, work) * _a_byte(work),
        "power": _limit(problem, device, _steps(problem, config, work)),
        "ends of tiles": work.ends * _end(config, work),
        "clusters": _together(config),
        "copies": _copies(problem),
        "launches": _launches(problem, config, work),
    }


def _work(problem: Problem, config: TmaConfig, device: DeviceSpec) -> _Work:
    pieces, places, split = (
        config.cluster_tiles(problem),
        config.resident_clusters(device),
        config.split,
    )
    steps = max(1, ceil(problem.k / config.tile[2]))
    if split == 1:
        ends = ceil(pieces / places)
        return _Work(ends, ends * steps, pieces, 0, places)
    whole = pieces // places if config.tail else 0
    parts = (pieces - whole * places) * split
    rounds = ceil(parts / places)
    done = whole * steps + rounds * ceil(steps / split)
    return _Work(whole + rounds, done, pieces * split, parts * config.ctas, places)


def _end(config: TmaConfig, work: _Work) -> float:
    """Seconds of the epilogue of a tile."""
    bm, bn, _ = config.tile
    sums = config.split > 1 and not config.tail  # of 32 bits, the others mostly of 16
    times = (1 + sums) * (SHORT if bn % 32 and not config.swap else 1.0)
    if config.pingpong:  # one warpgroup does it, while the other multiplies if it has a tile
        times *= 2.0 if work.ends == 1 else NARROW if bn % 64 else TURN
    parts = config.epilogue_tiles(16)  # as of most types
    return TILE + (ELEMENTS * bm * bn + PART * parts) * times


def _together(config: TmaConfig) -> float:
    """Seconds to synchronize the CTAs of a cluster at begin and end."""
    return CLUSTER.get(config.ctas, CLUSTER[8])


def _power(config: TmaConfig, work: _Work) -> float:
    in_turn = config.pingpong and work.ends > 1
    return 1.0 if in_turn or work.pieces < work.places * 0.9 else POWER


def _steps(problem: Problem, config: TmaConfig, work: _Work) -> float:
    """Seconds of all k-blocks."""
    return work.steps * _step(problem, config) * CYCLE * _power(config, work)


def _limit(problem: Problem, device: DeviceSpec, steps: float) -> float:
    """Seconds of the products at the rate that power allows in the long run. Steps that would be
    faster lose half of that: the clock falls, and with it the voltage.
    """
    peak = 2 * 32 * 1024 / problem.input.bits * device.sms / CYCLE
    sustained = problem.flops / (peak * SUSTAINED)
    return min(sustained, (steps * sustained) ** 0.5)


def _moved(problem: Problem, config: TmaConfig, work: _Work) -> float:
    """Bytes of memory traffic: matrices, split-K workspace, and some of the repeated reads."""
    (bm, bn, _), (down, across) = config.tile, config.tile_grid(problem)
    m, n = (problem.n, problem.m) if config.swap else (problem.m, problem.n)
    again = sum(size for size, readers in ((m, across), (n, down)) if readers > 1)
    read = REREAD * again * problem.k * problem.input.bits / 8 * problem.batch
    if work.pieces <= work.places:
        read *= AT_ONCE
    bursts = (
        SHORT_BURSTS if config.tile[2] * problem.input.bits <= 8 * geometry.SWIZZLE_BYTES else 1.0
    )
    return (problem.bytes + read) * bursts + work.parts * bm * bn * 4


def _a_byte(work: _Work) -> float:
    """Seconds for a byte from memory; few SMs do not reach the full bandwidth."""
    return MEMORY * max(1.0, SPREAD * work.places / max(1, work.pieces))


def _launches(problem: Problem, config: TmaConfig, work: _Work) -> float:
    """Launch latency, the first stage, the split-K reduction."""
    bm, bn, _ = config.tile
    first = config.stage_bytes(problem.input.bits) / INGRESS * CYCLE
    finish = 0.0
    if work.parts:
        finish = FINISH + ADDED * config.split + work.parts * bm * bn * 4 * PARTS
    return LAUNCH + first + finish


def _step(problem: Problem, config: TmaConfig) -> float:
    """Cycles of a k-block: about the largest of wgmma, shared memory reads and loads."""
    products, reads, *others = _step_terms(problem, config)
    largest = float((max(products, reads) ** 6 + sum(x**6 for x in others)) ** (1 / 6))
    return ISSUE + WAIT * (config.ctas.bit_length() - 1) + largest


def _step_terms(problem: Problem, config: TmaConfig) -> tuple[float, ...]:
    """Cycles of a step's products, of reading them, of its bytes and lines from the L2, and of
    their latency over the stages that are under way: two are being multiplied.
    """
    bits = problem.input.bits
    (bm, bn, bk), size = config.tile, config.tile[2] * bits / 8
    count = bm // geometry.WGMMA_ROWS * bk * bits // (8 * 32)  # instructions, of 32 bytes of K
    promotion = PROMOTION * bm * bn / 128 if problem.promoted else 0.0
    sides = _sides(problem, config)
    beyond = sum(_beyond(problem.k, side) for side in sides)
    return (
        count * PRODUCTS * bn / 2 + promotion,
        count * READS * (16 + bn / 4) + promotion,
        (bm + bn) * size / INGRESS + beyond * size / ZEROS,
        REQUEST * sum(_requests(problem, side) for side in sides),
        LATENCY / max(config.stages - 2, 0.5),
    )


class _Side(NamedTuple):
    """What stands left or right in the products: ``a`` or ``b``, and how many rows it has."""

    name: str
    rows: int
    operand: TmaOperand


def _sides(problem: Problem, config: TmaConfig) -> tuple[_Side, _Side]:
    left, right = operands(tma.relayout_problem(problem), config)
    a, b = ("a", problem.m), ("b", problem.n)
    one, other = (b, a) if config.swap else (a, b)
    return _Side(*one, left), _Side(*other, right)


def _beyond(k: int, side: _Side) -> float:
    """Of the rows that this CTA's copies bring in a step, those that they fill with zeros, on an
    average of all tiles and steps: beyond the last row, where there are no copies of the rest
    alone, and beyond the end of K.
    """
    rows, operand = side.rows, side.operand
    own, filled = operand.extent / operand.sharers, 0.0
    if not operand.has_edge_map:
        filled = -rows % operand.extent / operand.sharers / max(1, -(-rows // operand.extent))
    rest = -k % operand.depth
    return filled + (own - filled) * rest / max(1, k + rest)


def _requests(problem: Problem, side: _Side) -> float:
    """Requests to the L2 for what this CTA brings in a step. A copy asks for each of its lines; for
    more where that lies across multiples of 128 bytes.
    """
    operand, pitch = side.operand, _pitch(problem, side.name)
    size = operand.size
    line = (
        geometry.SWIZZLE_BYTES
        if operand.major == "K"
        else geometry.swizzle_bytes(operand.extent, 8 * size)
    )
    crossing = max(0, line - pitch) / (128 - pitch) if pitch < 128 else 0.0
    return operand.bytes / operand.sharers / line * (1 + (STRADDLES[pitch] - 1) * crossing)


@lru_cache(maxsize=256)
def _pitch(problem: Problem, name: str) -> int:
    """The bytes, 16 to 128, that divide the distance of A's or B's lines, as they mostly lie."""
    if _is_copied(problem, name):
        return 128
    rows = {"a": problem.m, "b": problem.n}[name]
    length = problem.k if getattr(problem, f"{name}_major") == "k" else rows
    pitch = length * problem.input.bits // 8
    return max((pitch | 128) & -(pitch | 128), 16)


def _is_copied(problem: Problem, name: str) -> bool:
    """Whether A or B must be relaid out, because TMA cannot read its layout."""
    major = f"{name}_major"
    turned = getattr(problem, major) != getattr(tma.relayout_problem(problem), major)
    return turned or getattr(problem, f"align_{name}") < 16


@lru_cache(maxsize=256)
def _copies(problem: Problem) -> float:
    """Seconds of the relayout of operands that TMA cannot read."""
    rows = {"a": problem.m, "b": problem.n}
    moved = sum(rows[x] for x in rows if _is_copied(problem, x)) * problem.batch
    return COPY + 2 * moved * problem.k * problem.input.bits / 8 * COPIED if moved else 0.0
