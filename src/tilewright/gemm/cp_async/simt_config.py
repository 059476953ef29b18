"""Configuration of kernel ``simt``: the shape of tiles, threads, stages and parts of K.

``simt:128x256x8:16x16:4`` is a CTA tile of 128×256, 8 of K at a time, 16×16 threads (8×16 of the
tile each), 4 stages. ``simt:64x64x32:8x8x4:3*6`` is one of 64×64 whose k-tiles of 32 are shared by
4 slices of 8×8 threads, and 6 CTAs compute each tile, a sixth of K each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ...errors import ConfigError, TargetError
from ...layout import Layout
from ...target import DeviceSpec, Limits
from ..config_checks import (
    MAX_SPLIT,
    check_counts,
    check_epilogue,
    check_flags,
    check_kinds,
    check_power_of_two,
    check_shared_memory,
    notation,
    numbers_of,
)
from ..problem import Problem

REQUIRED_TARGET = "sm_80"  # cp.async
CLUSTER_TARGET = "sm_90"
TYPE, FLOAT = "f32", 4  # of an element: its type, its bytes
VECTOR = 4  # elements that a thread loads at once
MIN_K = 8  # of a tile
CLUSTERS = (2, 4, 8)  # CTAs that may share a tile in a cluster
LANES = (4, 8)  # threads of a warp along M, along N; the other way round where N permits only 4
WARP = 32
# Along 4 and 8 lanes: what each bit of the lane's number adds. Alternating, wide loads of both
# operands take the fewest wavefronts, two, but write registers so fast that FFMAs wait. In order,
# those of the 8 lanes' operand take four and FFMAs do not wait for them.
_ALTERNATING = ((0, 1, 0, 2, 0), (1, 0, 2, 0, 4))
_IN_ORDER = ((0, 0, 0, 1, 2), (1, 2, 4, 0, 0))
# With 8 lanes along M: those along N first, so that stores of a tile of D in shared memory, whose
# rows are 4 apart, are in different banks.
_SWAPPED = ((0, 0, 1, 2, 4), (1, 2, 0, 0, 0))
PAD = 4  # elements of padding in shared memory, of an operand that is transposed by the copies
OTHER_REGISTERS = 28  # registers of a thread besides accumulators and fragments, at least

_NOTATION = notation(r"simt:#x#x#:#x#(?:x#)?:#(?:/#)?(?:\*#(c?))?(?:@#)?")


@dataclass(frozen=True, slots=True)
class SimtConfig:
    """Kernel ``simt``: cp.async into a ring of ``stages``, FFMA.

    ``tile`` (M, N, K) of a CTA, ``block``: threads along M and along N, ``group``: rows of tiles
    that are rasterized together for the L2, ``ctas``: resident CTAs per SM (the compiler's register
    budget), ``split``: parts of K that different CTAs compute, ``slices``: parts of each k-tile
    that different threads of a CTA compute, ``in_cluster``: the CTAs that share a tile are a
    cluster and add up their parts through distributed shared memory, not through the workspace.
    ``programmatic``: programmatic dependent launch; it follows from the device
    (``simt_launch``), so the notation leaves it out. Raises ConfigError.
    """

    tile: tuple[int, int, int]
    block: tuple[int, int]
    stages: int
    group: int = 8
    ctas: int = 1
    split: int = 1
    slices: int = 1
    in_cluster: bool = False
    programmatic: bool = False

    def __post_init__(self) -> None:
        check_kinds(self, tile=3, block=2, stages=0, group=0, ctas=0, split=0, slices=0)
        check_flags(self, "in_cluster", "programmatic")
        self._check_tile()
        sides = zip("MN", self.tile[:2], self.block, self.lanes, strict=True)
        for name, size, count, lanes in sides:
            if count < lanes or count & (count - 1):
                raise ConfigError(
                    f"{self}: threads along {name} must be a power of two from {lanes} on, "
                    f"got {count}"
                )
            if size % (count * VECTOR):
                raise ConfigError(
                    f"{self}: {size} of {name} must divide among {count} threads by multiples of 4"
                )
        self._check_parts()
        check_counts(self)

    def _check_tile(self) -> None:
        """Raises ConfigError for a tile that is not made of whole units."""
        for name, size, lanes in zip("MN", self.tile[:2], self.lanes, strict=True):
            if size < lanes * VECTOR or size % (lanes * VECTOR):
                other = " where N is no multiple of 32" if self.lanes != LANES else ""
                raise ConfigError(
                    f"{self}: tile {name} must be a multiple of {lanes * VECTOR}{other}, got {size}"
                )
        check_power_of_two(self, "tile K", self.tile[2], MIN_K)

    def _check_parts(self) -> None:
        """Raises ConfigError for parts of K that a CTA or its threads cannot share."""
        allowed = CLUSTERS if self.in_cluster else range(1, MAX_SPLIT + 1)
        if self.split not in allowed:
            known = "2, 4 or 8 in a cluster" if self.in_cluster else f"from 1 to {MAX_SPLIT}"
            raise ConfigError(f"{self}: split-K must be {known}, got {self.split}")
        check_power_of_two(self, "slices", self.slices, 1)
        if self.slices > self.tile[2] // 2 or not self._lines_divide(1):
            raise ConfigError(
                f"{self}: slices must be at most half of tile K, and divide a thread's "
                f"{self.accumulator_registers // VECTOR} lines of 4 elements, got {self.slices}"
            )
        if self.in_cluster and not self._lines_divide(self.split):
            raise ConfigError(
                f"{self}: the CTAs of a cluster and their slices must divide a thread's "
                f"{self.accumulator_registers // VECTOR} lines of 4 elements, got "
                f"{self.split}·{self.slices}"
            )

    def _lines_divide(self, ctas: int) -> bool:
        """Whether slices of a cluster of CTAs add up equally many lines of a thread, 4 elements
        each.
        """
        return self.accumulator_registers // VECTOR % (ctas * self.slices) == 0

    def clusters(self) -> list[SimtConfig]:
        """The same with parts of K in clusters of each possible size."""
        sizes = [split for split in CLUSTERS if self._lines_divide(split)]
        return [replace(self, split=split, in_cluster=True) for split in sizes]

    @classmethod
    def parse(cls, text: str) -> SimtConfig:
        """``simt:BMxBNxBK:TMxTN:STAGES`` or ``TMxTNxSLICES``, then optionally ``/CTAS``,
        ``*SPLIT`` or ``*SPLITc`` (in a cluster), ``@GROUP``.
        """
        found = numbers_of(_NOTATION, text, "simt:128x256x8:16x16:4")
        bm, bn, bk, tm, tn = (int(x) for x in found.groups()[:5])
        slices, stages, ctas, split = (int(found[i] or 1) for i in range(6, 10))
        group = int(found[11] or 8)
        return cls((bm, bn, bk), (tm, tn), stages, group, ctas, split, slices, bool(found[10]))

    def __str__(self) -> str:
        tile, block = ("x".join(map(str, x)) for x in (self.tile, self.block))
        slices = f"x{self.slices}" if self.slices != 1 else ""
        split = f"*{self.split}{'c' * self.in_cluster}" if self.split != 1 else ""
        return f"simt:{tile}:{block}{slices}:{self.stages}/{self.ctas}{split}@{self.group}"

    @property
    def threads(self) -> int:
        return self.slice_threads * self.slices

    @property
    def slice_threads(self) -> int:
        """Threads that share a tile of accumulators."""
        return self.block[0] * self.block[1]

    @property
    def thread_tile(self) -> tuple[int, int]:
        """Rows and columns of the tile that a thread computes."""
        return self.tile[0] // self.block[0], self.tile[1] // self.block[1]

    @property
    def lanes(self) -> tuple[int, int]:
        """Threads of a warp along M, along N."""
        return LANES if self.tile[1] % (LANES[1] * VECTOR) == 0 else (LANES[1], LANES[0])

    @property
    def _lane_bits(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """In order unless loads would take more than two thirds of the wavefronts that an SM can
        serve while its four schedulers issue the FFMAs.
        """
        if self.lanes != LANES:
            return _SWAPPED
        rows, columns = self.thread_tile
        wavefronts, cycles = (2 * rows + 4 * columns) // VECTOR, rows * columns // 4
        return _IN_ORDER if 3 * wavefronts <= 2 * cycles else _ALTERNATING

    @property
    def column_lanes(self) -> tuple[int, ...]:
        """The bits of the lane's number that differ along N."""
        return tuple(1 << i for i, bit in enumerate(self._lane_bits[1]) if bit)

    def share(self, side: int) -> Layout:
        """(thread, (4, vectors)) → row of the tile (``side`` 0), or column (1)."""
        lanes, vectors = self.lanes[side], self.thread_tile[side] // VECTOR
        warps = tuple(count // n for count, n in zip(self.block, self.lanes, strict=True))
        step = lanes * VECTOR
        between = tuple(step * vectors * (i == side) for i in range(2))
        bits = tuple(VECTOR * bit for bit in self._lane_bits[side])
        lanes_shape = (2,) * len(bits)
        if self.slices > 1:
            warps, between = (*warps, self.slices), (*between, 0)
        return Layout(((lanes_shape, warps), (VECTOR, vectors)), ((bits, between), (1, step)))

    def tiles(self, problem: Problem) -> int:
        """Tiles of D, or of all of them."""
        return -(-problem.m // self.tile[0]) * -(-problem.n // self.tile[1]) * problem.batch

    # What the split-K reduction asks of every configuration: its CTAs form no clusters.

    @property
    def cluster(self) -> tuple[int, int]:
        """CTAs of a cluster along M and N."""
        return 1, 1

    @property
    def swap(self) -> bool:
        """Whether Dᵀ is computed."""
        return False

    def for_reduction(self) -> SimtConfig:
        """The configuration that represents all with the same split-K reduction."""
        bm, bn, _ = self.tile
        least = SimtConfig((bm, bn, MIN_K), self.lanes, 1, self.group)
        return replace(least, split=self.split, programmatic=self.programmatic)

    def cluster_tiles(self, problem: Problem) -> int:
        """Tiles of D, or of all of them."""
        return self.tiles(problem)

    def unsplit_tiles(self, problem: Problem, device: DeviceSpec) -> int:
        """Tiles that are not split along K."""
        return 0 if self.has_partials else self.tiles(problem)

    @property
    def has_partials(self) -> bool:
        """Whether partial accumulators go through the workspace."""
        return self.split > 1 and not self.in_cluster

    @property
    def accumulator_registers(self) -> int:
        """Accumulator registers of a thread."""
        rows, columns = self.thread_tile
        return rows * columns

    @property
    def rows_together(self) -> int:
        """Rows of 4 elements that a thread adds up together over the slices: a block of 4, if all
        slices have equally many, and no cluster divides them.
        """
        blocks = self.accumulator_registers // VECTOR**2
        return 1 if self.in_cluster or blocks % self.slices else VECTOR

    @property
    def registers(self) -> int:
        """Minimum registers per thread: accumulators, and fragments of two steps of K."""
        return self.accumulator_registers + 2 * sum(self.thread_tile) + OTHER_REGISTERS

    @property
    def shared_bytes(self) -> int:
        """The bytes of the stages, for any layout of the operands, and after the mainloop of the
        slices' accumulators, whose rows may be padded.
        """
        bm, bn, bk = self.tile
        sums = self.slices * bm * (bn + PAD) * 4 if self.slices > 1 or self.in_cluster else 0
        return max(self.stages * (bm + bn + 2 * PAD) * bk * 4, sums)

    @property
    def warp_columns(self) -> int:
        """Columns of the tile that a warp computes."""
        return self.lanes[1] * self.thread_tile[1]

    @property
    def staged_rows(self) -> int:
        """Rows of D that a warp stages together."""
        return self.lanes[0] * VECTOR

    @property
    def staged_bytes(self) -> int:
        """Shared memory of the rows that a warp stages together."""
        return self.staged_rows * (self.warp_columns + PAD) * 4

    def resident(self, limits: Limits) -> int:
        """Resident CTAs per SM: ``ctas``, or fewer if shared memory limits them."""
        limit = limits.shared_per_sm // (self.shared_bytes + limits.shared_reserved)
        return max(1, min(self.ctas, limit))


# (tile, threads along M and N, stages, CTAs per SM, slices), from large to small. Threads of 8×16
# elements read shared memory least, those of 12×8 and 8×8 leave room for more warps; of the former
# a k-tile of 16 takes more instructions than the cache holds, so theirs are of 8. Slices give small
# tiles enough warps for few CTAs.
_SHAPES: tuple[tuple[tuple[int, int, int], tuple[int, int], int, int, int], ...] = (
    ((128, 256, 8), (16, 16), 6, 1, 1),
    ((256, 128, 8), (32, 8), 6, 1, 1),
    ((128, 192, 8), (16, 16), 6, 1, 1),
    ((192, 128, 8), (16, 16), 6, 1, 1),
    ((128, 128, 16), (16, 8), 3, 1, 2),
    ((96, 128, 8), (8, 16), 4, 3, 1),
    ((64, 192, 16), (8, 16), 3, 3, 1),
    ((80, 128, 16), (4, 16), 3, 2, 2),
    ((64, 160, 16), (8, 8), 3, 2, 2),
    ((128, 80, 16), (16, 4), 3, 2, 2),
    ((64, 128, 32), (8, 8), 3, 1, 4),
    ((64, 128, 8), (8, 16), 4, 4, 1),
    ((64, 96, 16), (8, 8), 3, 3, 2),
    ((64, 96, 8), (8, 8), 4, 6, 1),
    ((48, 128, 16), (4, 16), 3, 2, 2),
    ((64, 80, 16), (8, 4), 3, 4, 2),
    ((128, 32, 8), (16, 8), 4, 6, 1),
    ((64, 64, 32), (8, 8), 3, 2, 4),
    ((64, 64, 16), (8, 8), 3, 4, 2),
    ((64, 64, 8), (8, 8), 4, 6, 1),
    ((32, 128, 16), (4, 16), 3, 4, 2),
    ((32, 128, 8), (4, 16), 4, 8, 1),
    ((32, 96, 16), (4, 8), 3, 6, 2),
    ((32, 64, 32), (4, 8), 3, 3, 4),
    ((32, 64, 16), (4, 8), 3, 6, 2),
    ((16, 96, 32), (4, 8), 3, 4, 4),
    ((32, 32, 32), (4, 8), 3, 4, 4),
    ((16, 32, 32), (4, 8), 3, 6, 4),
    ((16, 32, 16), (4, 8), 4, 8, 1),
)
TABLE: tuple[SimtConfig, ...] = tuple(
    SimtConfig(tile, block, stages, ctas=ctas, slices=slices)
    for tile, block, stages, ctas, slices in _SHAPES
)
SPLITS = (*range(2, 17), 20, 24, 28, 32, 40, 48, 64)


@lru_cache(maxsize=1)
def candidates() -> tuple[SimtConfig, ...]:
    """The configurations of the table, without and with split-K."""
    found = [*TABLE, *(replace(config, split=split) for config in TABLE for split in SPLITS)]
    return (*found, *(c for config in TABLE for c in config.clusters()))


def check(problem: Problem, config: SimtConfig, device: DeviceSpec) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    check_epilogue(config, problem)
    if not device.target.runs(REQUIRED_TARGET):
        raise TargetError(
            f"simt needs {REQUIRED_TARGET} or later; {device.name} is {device.target}",
            hint="device='vm' computes as a newer one",
        )
    if problem.a != TYPE:
        raise TargetError(f"simt supports {TYPE}, not {problem.a}")
    if config.in_cluster:
        _check_cluster(config, device)
    if problem.epilogue is not None and problem.epilogue.partial_reductions:
        _check_reductions(config)
    check_shared_memory(config, config.shared_bytes, device)
    shared_out = device.limits.registers_per_sm // (config.threads * config.ctas)
    have = min(shared_out, device.limits.registers_per_thread)
    if config.registers > have:
        raise ConfigError(
            f"{config}: needs {config.registers} registers per thread, at most {have}",
            hint="more threads, or fewer CTAs on an SM",
        )


def _check_reductions(config: SimtConfig) -> None:
    """Raises ConfigError where a thread does not store blocks of 4 rows, whose elements the
    reductions of an epilogue combine.
    """
    if config.in_cluster:
        raise ConfigError(
            f"{config}: an epilogue with reductions excludes split-K in a cluster",
            hint=f"*{config.split}, through the workspace",
        )
    if not config.has_partials and config.rows_together == 1:
        raise ConfigError(
            f"{config}: an epilogue with reductions needs slices that divide a thread's "
            f"{config.accumulator_registers // VECTOR**2} blocks of 4×4 elements, "
            f"got {config.slices}"
        )


def _check_cluster(config: SimtConfig, device: DeviceSpec) -> None:
    if not device.target.runs(CLUSTER_TARGET):
        raise ConfigError(f"{config}: clusters need {CLUSTER_TARGET}; {device.name} has none")
