"""Configuration of kernel ``simt``: the shape of tiles, threads, stages and parts of K.

``simt:128x256x8:16x16:4`` is a CTA tile of 128×256, 8 of K at a time, 16×16 threads (8×16 of the
tile each), 4 stages. ``simt:64x64x32:8x8x4:3*6`` is one of 64×64 whose k-tiles of 32 are shared by
4 slices of 8×8 threads, and 6 CTAs compute each tile, a sixth of K each.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ConfigError, TargetError
from ...layout import Layout
from ...target import DeviceSpec, Limits
from ..config_checks import (
    MAX_SPLIT,
    check_counts,
    check_epilogue,
    check_kinds,
    check_shared_memory,
    check_tile,
    notation,
    numbers_of,
)
from ..problem import Problem

REQUIRED_TARGET = "sm_80"  # cp.async
TYPE = "f32"
VECTOR = 4  # elements that a thread loads at once
MIN_TILE = (16, 32, 8)  # a tile's M, N, K
# A warp is 4×8 threads. The lane numbers of neighbours differ in the lowest bit along one dimension
# and in the next one along the other, so that wide loads of both operands take the fewest
# wavefronts.
LANES = (4, 8)  # along M, along N
_BITS = ((0, 1, 0, 2, 0), (1, 0, 2, 0, 4))  # along M, N: of each bit of the lane's number
COLUMN_LANES = tuple(1 << i for i, bit in enumerate(_BITS[1]) if bit)  # bits that differ along N
PAD = 4  # elements of padding in shared memory, of an operand that is transposed by the copies
OTHER_REGISTERS = 28  # registers of a thread besides accumulators and fragments, at least

_NOTATION = notation(r"simt:#x#x#:#x#(?:x#)?:#(?:/#)?(?:\*#)?(?:@#)?")


@dataclass(frozen=True, slots=True)
class SimtConfig:
    """Kernel ``simt``: cp.async into a ring of ``stages``, FFMA.

    ``tile`` (M, N, K) of a CTA, ``block``: threads along M and along N, ``group``: rows of tiles
    that are rasterized together for the L2, ``ctas``: resident CTAs per SM (the compiler's register
    budget), ``split``: parts of K that different CTAs compute, ``slices``: parts of each k-tile
    that different threads of a CTA compute. Raises ConfigError.
    """

    tile: tuple[int, int, int]
    block: tuple[int, int]
    stages: int
    group: int = 8
    ctas: int = 1
    split: int = 1
    slices: int = 1

    def __post_init__(self) -> None:
        check_kinds(self, tile=3, block=2, stages=0, group=0, ctas=0, split=0, slices=0)
        check_tile(self, MIN_TILE)
        for name, size, count, lanes in zip("MN", self.tile[:2], self.block, LANES, strict=True):
            if count < lanes or count & (count - 1):
                raise ConfigError(
                    f"{self}: threads along {name} must be a power of two from {lanes} on, "
                    f"got {count}"
                )
            if size < count * VECTOR:
                raise ConfigError(
                    f"{self}: {size} of {name} must divide among {count} threads by multiples of 4"
                )
        self._check_parts()
        check_counts(self)

    def _check_parts(self) -> None:
        """Raises ConfigError for parts of K that a CTA or its threads cannot share."""
        if not 1 <= self.split <= MAX_SPLIT:
            raise ConfigError(f"{self}: split-K must be from 1 to {MAX_SPLIT}, got {self.split}")
        most = min(self.accumulator_registers // VECTOR**2, self.tile[2] // 2)
        if not 1 <= self.slices <= most or self.slices & (self.slices - 1):
            raise ConfigError(
                f"{self}: slices of a k-tile must be a power of two up to {most}, got {self.slices}"
            )

    @classmethod
    def parse(cls, text: str) -> SimtConfig:
        """``simt:BMxBNxBK:TMxTN:STAGES`` or ``TMxTNxSLICES``, then optionally ``/CTAS``,
        ``*SPLIT``, ``@GROUP``.
        """
        found = numbers_of(_NOTATION, text, "simt:128x256x8:16x16:4")
        bm, bn, bk, tm, tn = (int(x) for x in found.groups()[:5])
        slices, stages, ctas, split, group = (int(found[i] or 1) for i in range(6, 11))
        group = group if found[10] else 8
        return cls((bm, bn, bk), (tm, tn), stages, group, ctas, split, slices)

    def __str__(self) -> str:
        tile, block = ("x".join(map(str, x)) for x in (self.tile, self.block))
        slices = f"x{self.slices}" if self.slices != 1 else ""
        split = f"*{self.split}" if self.split != 1 else ""
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

    def share(self, side: int) -> Layout:
        """(thread, (4, vectors)) → row of the tile (``side`` 0), or column (1)."""
        lanes, vectors = LANES[side], self.thread_tile[side] // VECTOR
        warps = tuple(count // n for count, n in zip(self.block, LANES, strict=True))
        step = lanes * VECTOR
        between = tuple(step * vectors * (i == side) for i in range(2))
        bits = tuple(VECTOR * bit for bit in _BITS[side])
        lanes_shape = (2,) * len(bits)
        if self.slices > 1:
            warps, between = (*warps, self.slices), (*between, 0)
        return Layout(((lanes_shape, warps), (VECTOR, vectors)), ((bits, between), (1, step)))

    def tiles(self, problem: Problem) -> int:
        """Tiles of D, or of all of them."""
        return -(-problem.m // self.tile[0]) * -(-problem.n // self.tile[1]) * problem.batch

    # What the split-K reduction asks of every configuration: CTAs form no clusters here.

    @property
    def cluster(self) -> tuple[int, int]:
        """CTAs of a cluster along M and N."""
        return 1, 1

    @property
    def swap(self) -> bool:
        """Whether Dᵀ is computed."""
        return False

    def cluster_tiles(self, problem: Problem) -> int:
        """Tiles of D, or of all of them."""
        return self.tiles(problem)

    def unsplit_tiles(self, problem: Problem, device: DeviceSpec) -> int:
        """Tiles that are not split along K."""
        return self.tiles(problem) if self.split == 1 else 0

    @property
    def accumulator_registers(self) -> int:
        """Accumulator registers of a thread."""
        rows, columns = self.thread_tile
        return rows * columns

    @property
    def registers(self) -> int:
        """Minimum registers per thread: accumulators, and fragments of two steps of K."""
        return self.accumulator_registers + 2 * sum(self.thread_tile) + OTHER_REGISTERS

    @property
    def shared_bytes(self) -> int:
        """The bytes of the stages, for any layout of the operands, and after the mainloop of the
        slices' accumulators.
        """
        bm, bn, bk = self.tile
        sums = self.slices * bm * bn * 4 if self.slices > 1 else 0
        return max(self.stages * (bm + bn + 2 * PAD) * bk * 4, sums)

    def resident(self, limits: Limits) -> int:
        """Resident CTAs per SM: ``ctas``, or fewer if shared memory limits them."""
        limit = limits.shared_per_sm // (self.shared_bytes + limits.shared_reserved)
        return max(1, min(self.ctas, limit))


# From large to small; each thread's part as large as its registers allow, or more warps.
TABLE: tuple[SimtConfig, ...] = (
    SimtConfig((128, 256, 16), (16, 16), 3),
    SimtConfig((256, 128, 16), (32, 8), 3),
    SimtConfig((128, 256, 8), (16, 16), 4),
    SimtConfig((128, 128, 16), (16, 16), 3, ctas=2),
    SimtConfig((128, 64, 16), (16, 8), 3, ctas=4),
    SimtConfig((64, 128, 16), (8, 16), 3, ctas=4),
    SimtConfig((64, 64, 16), (16, 8), 4, ctas=4),
    SimtConfig((32, 64, 16), (8, 8), 4, ctas=6),
    SimtConfig((64, 32, 16), (8, 8), 4, ctas=6),
    SimtConfig((16, 32, 16), (4, 8), 4, ctas=8),
)


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
    check_shared_memory(config, config.shared_bytes, device)
    shared_out = device.limits.registers_per_sm // (config.threads * config.ctas)
    have = min(shared_out, device.limits.registers_per_thread)
    if config.registers > have:
        raise ConfigError(
            f"{config}: needs {config.registers} registers per thread, at most {have}",
            hint="more threads, or fewer CTAs on an SM",
        )
