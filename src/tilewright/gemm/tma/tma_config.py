"""Configuration of kernel ``tma``: tile, warpgroups, stages, cluster, schedule.

``tma:128x256x64:2:4/2x1`` is a CTA tile of 128×256, 64 of K at a time, two cooperative
consumer warpgroups (``2p``: pingpong, a tile each), 4 stages, a cluster of two CTAs above one
another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from ...errors import ConfigError, TargetError
from ...mma.instruction_table import INTEGER_N
from ...mma.tensor_maps.tensor_map_rules import EXTENT
from ...target import DeviceSpec
from ..config_checks import check_group, check_kinds, check_shared_memory, notation, numbers_of
from ..problem import Problem

REQUIRED_TARGET = "sm_90a"
WARPGROUP = 128
WGMMA_ROWS = 64  # of D that a wgmma computes
EPILOGUE_BUFFERS = 2  # of each warpgroup, for epilogue tiles of D
MAX_STORED_TOGETHER = 3  # parts at most that have one each, and leave together
SWIZZLE_BYTES = 128  # bytes of the longest swizzled line
PROMOTION_K = 128  # of K, after which fast sums of 8-bit floats are added up in f32
# registers of a thread for sums, and what C or the edge of a line takes of them, by how many
# warpgroups multiply
MAX_ACCUMULATOR_REGISTERS = {1: (208, 72), 2: (208, 72), 3: (96, 16)}
MAX_SPLIT = 64
BARRIER_BYTES = 1024  # bytes of shared memory for barriers, at most

_NOTATION = notation("tma:#x#x#:#(p?):#(d?)(?:/#x#)?(?:([*+])#)?(?:@#)?(~?)")


@dataclass(frozen=True, slots=True)
class TmaConfig:
    """Kernel ``tma``: a producer warp fills ``stages`` by tensor copies, consumers issue wgmma.

    ``tile`` (M, N, K) of a CTA, or with ``pingpong`` of each of its two warpgroups in turn; else
    ``consumers`` warpgroups share the tile's rows. ``cluster`` (along M, along N) CTAs share what
    they load. ``split``: split-K, whose partial accumulators a reduction kernel adds in order;
    with ``tail`` only for the tiles of the tail wave. ``group``: rows of
    tiles that are rasterized together for the L2. ``swap``: Dᵀ = Bᵀ Aᵀ is computed, so that
    the tile's M
    is the problem's N. ``dynamic``: a CTA's next tile is the next one of all, not the next of its
    own. Raises ConfigError.
    """

    tile: tuple[int, int, int]
    consumers: int = 2
    stages: int = 4
    cluster: tuple[int, int] = (1, 1)
    pingpong: bool = False
    split: int = 1
    tail: bool = False
    group: int = 8
    swap: bool = False
    dynamic: bool = False

    def __post_init__(self) -> None:
        check_kinds(self, tile=3, cluster=2, consumers=0, stages=0, split=0, group=0)
        bm, bn, bk = self.tile
        if not 1 <= self.consumers <= 3 or (self.pingpong and self.consumers != 2):
            raise ConfigError(f"{self}: consumer warpgroups must be 1 to 3, and 2 for pingpong")
        rows = WGMMA_ROWS * (1 if self.pingpong else self.consumers)
        if bm < WGMMA_ROWS or bm % rows:
            raise ConfigError(f"{self}: tile_m must be a multiple of {rows}, got {bm}")
        if not 8 <= bn <= 256 or bn % 8:
            raise ConfigError(f"{self}: tile_n must be a multiple of 8 up to 256, got {bn}")
        if bk < 1 or bk & (bk - 1) or not 2 <= self.stages <= 32:
            raise ConfigError(f"{self}: tile_k must be a power of two and stages 2 to 32")
        check_group(self)
        if any(side < 1 or side & (side - 1) for side in self.cluster):
            raise ConfigError(f"{self}: cluster sizes must be powers of two, got {self.cluster}")
        if not 1 <= self.split <= MAX_SPLIT:
            raise ConfigError(f"{self}: split-K must be 1 to {MAX_SPLIT}, got {self.split}")
        if self.dynamic and (self.split > 1 or self.ctas > 1):
            raise ConfigError(f"{self}: the dynamic tile scheduler excludes split-K and clusters")
        if self.tail and self.split == 1:
            raise ConfigError(f"{self}: split-K of the last wave must be at least 2")

    @classmethod
    def parse(cls, text: str) -> TmaConfig:
        """``tma:BMxBNxBK:CONSUMERS:STAGES``, ``p`` after the consumers for pingpong, ``d`` after
        the stages for dynamic; then optionally ``/CMxCN`` (cluster), ``*SPLIT`` (or ``+SPLIT``, of
        the last wave), ``@GROUP``, ``~`` (swap).
        """
        found = numbers_of(_NOTATION, text, "tma:128x256x64:2:4/2x1")
        bm, bn, bk, consumers = (int(found[i]) for i in range(1, 5))
        cluster = int(found[8] or 1), int(found[9] or 1)
        return cls(
            (bm, bn, bk), consumers, int(found[6]), cluster, bool(found[5]),
            int(found[11] or 1), found[10] == "+", int(found[12] or 8), bool(found[13]),
            bool(found[7]),
        )  # fmt: skip

    def __str__(self) -> str:
        tile, cluster = ("x".join(map(str, x)) for x in (self.tile, self.cluster))
        turns = "p" * self.pingpong
        split = f"{'+' if self.tail else '*'}{self.split}" * (self.split > 1)
        shape = f"tma:{tile}:{self.consumers}{turns}:{self.stages}{'d' * self.dynamic}"
        return f"{shape}/{cluster}{split}@{self.group}{'~' * self.swap}"

    @property
    def threads(self) -> int:
        return WARPGROUP * (1 + self.consumers)

    @property
    def ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def warpgroup_rows(self) -> int:
        """Rows of D that a warpgroup computes at a time."""
        return self.tile[0] // (1 if self.pingpong else self.consumers)

    def stage_bytes(self, bits: int) -> int:
        """A stage of both operands in shared memory."""
        bm, bn, bk = self.tile
        return (bm + bn) * bk * bits // 8

    def epilogue_width(self, bits: int) -> int:
        """Of D's ``bits``: columns that leave at a time; lines of 32 to 128 bytes, or (swapped) so
        many lines of 64.
        """
        widths = (64, 32, 16, 8) if self.swap or bits == 16 else (32, 16, 8)
        return next(w for w in widths if self.tile[1] % w == 0)

    def epilogue_bytes(self, bits: int) -> int:
        """Element type that the epilogue stages: D, or 32-bit partial accumulators of split-K."""
        all_bits = {32} if self.split > 1 and not self.tail else {bits, 32} if self.tail else {bits}
        size = max(
            self.epilogue_buffers(b) * WGMMA_ROWS * self.epilogue_width(b) * b // 8
            for b in all_bits
        )
        return self.consumers * -(-size // 1024) * 1024

    def epilogue_tiles(self, bits: int) -> int:
        """Parts in which a warpgroup's D leaves."""
        return self.accumulator_registers * WARPGROUP // (WGMMA_ROWS * self.epilogue_width(bits))

    def stores_together(self, bits: int) -> bool:
        """Whether all epilogue tiles are stored at once: few, where nothing overlaps them."""
        return (
            self.consumers > 1
            and not self.pingpong
            and self.epilogue_tiles(bits) <= MAX_STORED_TOGETHER
        )

    def epilogue_buffers(self, bits: int) -> int:
        """Bytes of shared memory that stage epilogue tiles of D."""
        return (
            max(EPILOGUE_BUFFERS, self.epilogue_tiles(bits))
            if self.stores_together(bits)
            else EPILOGUE_BUFFERS
        )

    def resident_clusters(self, device: DeviceSpec) -> int:
        """Clusters that find a place on the device at once."""
        return resident_clusters(self.ctas, device)

    def tile_grid(self, problem: Problem) -> tuple[int, int]:
        """Pieces along the tiles' M and N: tiles, or the blocks of them that clusters take."""
        (bm, bn, _), (cm, cn) = self.tile, self.cluster
        m, n = (problem.n, problem.m) if self.swap else (problem.m, problem.n)
        return -(-m // (bm * cm)), -(-n // (bn * cn))

    def cluster_tiles(self, problem: Problem) -> int:
        """All pieces of D, of a stack of them."""
        down, across = self.tile_grid(problem)
        return down * across * problem.batch

    def unsplit_tiles(self, problem: Problem, device: DeviceSpec) -> int:
        """Pieces that are not cut along K."""
        pieces, places = self.cluster_tiles(problem), self.resident_clusters(device)
        if self.split == 1:
            return pieces
        return pieces // places * places if self.tail else 0

    def shared_bytes(self, problem: Problem) -> int:
        ring = self.stages * self.stage_bytes(problem.input.bits)
        return ring + self.epilogue_bytes(problem.output.bits) + BARRIER_BYTES

    @property
    def accumulator_registers(self) -> int:
        """Accumulator registers of a thread."""
        return self.warpgroup_rows * self.tile[1] // WARPGROUP


def resident_clusters(ctas: int, device: DeviceSpec) -> int:
    """Resident clusters of this number of CTAs on the device. Those of 4 and more leave
    some SMs empty: on an H200's 132 there is room for 66 of 2, 30 of 4, 15 of 8.
    """
    usable = device.sms if ctas <= 2 else device.sms * 10 // 11
    return max(1, usable // ctas)


@lru_cache(maxsize=256)
def relayout_problem(problem: Problem) -> Problem:
    """The problem as tensor copies and wgmma take it: A and B aligned, and 8- and 32-bit ones along
    K. Other layouts are relaid out first. D's alignment counts the end of its lines, too: a copy
    writes 16 bytes or nothing, and what follows a line is not D's.
    """
    majors = {} if problem.input.bits == 16 else {"a_major": "k", "b_major": "k"}
    align_d = gcd(problem.align_d, problem.n * problem.output.bits // 8)
    return replace(problem, align_a=16, align_b=16, align_d=align_d, **majors)


def check(problem: Problem, config: TmaConfig, device: DeviceSpec) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    if not device.target.runs(REQUIRED_TARGET):
        raise TargetError(f"tma needs {REQUIRED_TARGET}; {device.name} is {device.target}")
    _check_problem(problem, config)
    check_shared_memory(config, config.shared_bytes(problem), device)
    most, sums = (
        _max_accumulator_registers(problem, config),
        config.accumulator_registers * (1 + problem.promoted),
    )
    if sums > most:
        raise ConfigError(
            f"{config}: accumulators take {sums} of {most} registers per thread for {problem}",
            hint="more warpgroups or a smaller tile",
        )
    if config.ctas > device.limits.cluster:
        raise ConfigError(f"{config}: a cluster has at most {device.limits.cluster} CTAs")


def has_two_accumulator_sets(problem: Problem, config: TmaConfig) -> bool:
    """Whether a thread has registers for fast sums of two stages beside what they add up to."""
    return 3 * config.accumulator_registers <= _max_accumulator_registers(problem, config)


def _max_accumulator_registers(problem: Problem, config: TmaConfig) -> int:
    """Registers per thread for the accumulator: the epilogue takes more of them where there is a
    C, or where D's lines begin at less than 16 bytes.
    """
    aligned = min(problem.align_d, problem.align_c if problem.with_c else 16) == 16
    most, taken = MAX_ACCUMULATOR_REGISTERS[config.consumers]
    if config.split > 1 and not config.tail:  # another kernel writes D
        return most
    wide = 16 if problem.with_c and problem.output.bits == 32 else 0
    return most - taken * (problem.with_c + (not aligned)) - wide


def _check_problem(problem: Problem, config: TmaConfig) -> None:
    bits, (bm, bn, bk) = problem.input.bits, config.tile
    if problem.align_a < 16 or problem.align_b < 16:
        raise ConfigError(f"{config}: TMA requires rows of A and B at multiples of 16 bytes")
    if bits != 16 and (problem.a_major != "k" or problem.b_major != "k"):
        raise ConfigError(f"{config}: wgmma reads {problem.a} K-major only")
    if problem.accumulator_type == "s32" and bn not in INTEGER_N:
        raise ConfigError(
            f"{config}: tile_n of integers must be 8, 24 or a multiple of 16, got {bn}"
        )
    if problem.promoted and bk != PROMOTION_K:
        raise ConfigError(
            f"{config}: tile_k must be {PROMOTION_K} for {problem.a} without fast_accum, got {bk}"
        )
    if bk * bits < 8 * SWIZZLE_BYTES:
        least = 8 * SWIZZLE_BYTES // bits
        raise ConfigError(f"{config}: tile_k must be at least {least} for {problem.a}, got {bk}")
    majors = problem.a_major, problem.b_major
    left, right = majors[::-1] if config.swap else majors
    sides = ("M", bm, left, config.cluster[1]), ("N", bn, right, config.cluster[0])
    for side, extent, major, sharers in sides:
        unit = sharers * (8 if major == "k" else swizzle_elements(extent, bits))
        if extent % unit:
            by = f", shared by {sharers} CTAs" if sharers > 1 else ""
            what = f"the tile's {side}, {extent}, is no multiple of {unit}"
            raise ConfigError(f"{config}: {what}, of whole lines{by}")
        lines = extent // sharers if major == "k" else bk
        if lines > EXTENT:
            raise ConfigError(f"{config}: one TMA copy loads at most {EXTENT} rows, got {lines}")
    if not config.swap and bn * problem.output.bits % (8 * SWIZZLE_BYTES // 4):
        raise ConfigError(
            f"{config}: the epilogue stores 32-byte rows of {problem.d}, so the tile's N must be a "
            f"multiple of {8 * SWIZZLE_BYTES // 4 // problem.output.bits}, got {bn}"
        )


def swizzle_elements(extent: int, bits: int) -> int:
    """Elements of the longest swizzled row that divides an extent, else of the shortest one."""
    least = 256 // bits
    return next((n for n in (4 * least, 2 * least) if extent % n == 0), least)
