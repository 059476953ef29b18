"""Configuration of kernel ``multistage``: the shape of tiles, warps and stages.

``128x128x32:2x2:4`` is a CTA tile of 128×128, 32 of K at a time, 2×2 warps, 4 stages;
``64x64x16:2x2:4:m8n8k4`` one that multiplies by another matrix instruction than m16n8k16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...errors import ConfigError, TargetError
from ...mma import instruction
from ...target import DeviceSpec, Limits
from ..config_checks import (
    MmaShape,
    check_counts,
    check_kinds,
    check_shared_memory,
    check_tile,
    notation,
    numbers_of,
)
from ..problem import Problem

DEFAULT_MMA: MmaShape = (16, 8, 16)  # of mma.sync
# By A's format, the shapes of mma.sync that multiply it.
MMA_SHAPES: dict[str, tuple[MmaShape, ...]] = {
    "f16": (DEFAULT_MMA,),
    "bf16": (DEFAULT_MMA,),
    "f64": ((8, 8, 4), (16, 8, 4), (16, 8, 8), DEFAULT_MMA),
}
WARP = 32
REQUIRED_TARGET = "sm_80"  # cp.async, and mma.sync of the least shapes
MIN_TILE = (16, 16, 16)  # a tile's M, N, K; of K, two instructions
STAGED_ROWS = 16  # rows of a warp's result that are staged at once
PAD = 8  # elements between these, against bank conflicts

_NOTATION = notation("#x#x#:#x#:#(p?)(?:/#)?(?:@#)?(?::m#n#k#)?")


@dataclass(frozen=True, slots=True)
class Config:
    """Kernel ``multistage``: cp.async into a ring of ``stages``, mma.sync of the shape ``mma``.

    ``tile`` (M, N, K) of a CTA, ``warps`` (along M, along N), ``group``: how many rows of tiles are
    walked together for the L2, ``ctas``: how many CTAs an SM should hold (the compiler's register
    budget). ``persistent``: a CTA for each place on the machine goes from tile to tile (where the
    tiles cover D without a rest), and starts the next one's copies before it writes the last one
    out. Raises ConfigError.
    """

    tile: MmaShape
    warps: tuple[int, int]
    stages: int
    group: int = 8
    ctas: int = 1
    persistent: bool = False
    mma: MmaShape = DEFAULT_MMA

    def __post_init__(self) -> None:
        check_kinds(self, tile=3, warps=2, stages=0, group=0, ctas=0, mma=3)
        if not any(self.mma in shapes for shapes in MMA_SHAPES.values()):
            raise ConfigError(f"{self}: no supported type has an mma.sync of this shape")
        check_tile(self, (*MIN_TILE[:2], max(MIN_TILE[2], 2 * self.mma[2])))
        for what, size, count in zip(("rows", "columns"), self.tile[:2], self.warps, strict=True):
            if count < 1 or size % count or (size // count) % 16:
                raise ConfigError(
                    f"{self}: {size} {what} must divide among {count} warps by multiples of 16"
                )
        check_counts(self)

    @classmethod
    def parse(cls, text: str) -> Config:
        """``BMxBNxBK:WMxWN:STAGES``, then optionally ``p`` (persistent), ``/CTAS``, ``@GROUP``, and
        the instruction where it is not m16n8k16, ``:m8n8k4``.
        """
        found = numbers_of(_NOTATION, text, "128x128x32:2x2:4")
        bm, bn, bk, wm, wn, stages = (int(x) for x in found.groups()[:6])
        group, ctas = int(found[9] or 8), int(found[8] or 1)
        m, n, k = (int(x or y) for x, y in zip(found.groups()[9:], DEFAULT_MMA, strict=True))
        return cls((bm, bn, bk), (wm, wn), stages, group, ctas, bool(found[7]), (m, n, k))

    def __str__(self) -> str:
        tile, warps = ("x".join(map(str, x)) for x in (self.tile, self.warps))
        stages = f"{self.stages}{'p' if self.persistent else ''}"
        shape = "" if self.mma == DEFAULT_MMA else f":{self.mma_name}"
        return f"{tile}:{warps}:{stages}/{self.ctas}@{self.group}{shape}"

    @property
    def mma_name(self) -> str:
        """The instruction's shape as PTX has it."""
        return "m{}n{}k{}".format(*self.mma)

    @property
    def threads(self) -> int:
        return self.warps[0] * self.warps[1] * WARP

    @property
    def warp_tile(self) -> tuple[int, int]:
        return self.tile[0] // self.warps[0], self.tile[1] // self.warps[1]

    def stage_bytes(self, bits: int) -> int:
        """A stage of both operands in shared memory."""
        bm, bn, bk = self.tile
        return (bm + bn) * bk * bits // 8

    def epilogue_bytes(self, bits: int) -> int:
        """Bytes that stage 16 rows of each warp in the epilogue; f64 is stored from registers."""
        wm, wn = self.warps
        return wm * wn * STAGED_ROWS * (self.warp_tile[1] + PAD) * 4 if bits < 64 else 0

    def shared_bytes(self, bits: int) -> int:
        """The ring and the staged result, one in the other's place unless both are needed."""
        ring, staged = self.stages * self.stage_bytes(bits), self.epilogue_bytes(bits)
        return ring + staged if self.persistent else max(ring, staged)

    def tiles(self, problem: Problem) -> int:
        """Tiles of D, or of all of them."""
        return -(-problem.m // self.tile[0]) * -(-problem.n // self.tile[1]) * problem.batch

    def is_persistent(self, problem: Problem) -> bool:
        """Whether a CTA computes more than one tile of this problem."""
        rest = problem.m % self.tile[0] or problem.n % self.tile[1]
        return self.persistent and not rest and not problem.batched

    def resident(self, bits: int, limits: Limits) -> int:
        """CTAs that an SM holds: as many as it should, if their shared memory is there."""
        room = limits.shared_per_sm // (self.shared_bytes(bits) + limits.shared_reserved)
        return max(1, min(self.ctas, room))


# From large to small; the first wants an H100's shared memory, the second fits 99 KB.
TABLE: tuple[Config, ...] = (
    Config((256, 128, 64), (4, 2), 3, persistent=True),
    Config((256, 128, 32), (4, 2), 4),
    Config((128, 128, 64), (2, 2), 3, ctas=2),
    Config((128, 128, 32), (2, 2), 4, ctas=2),
    Config((128, 64, 64), (2, 2), 3, ctas=2),
    Config((64, 128, 64), (2, 2), 3, ctas=2),
    Config((64, 64, 64), (2, 2), 4, ctas=2),
    Config((32, 64, 64), (1, 2), 5, ctas=2),
    Config((16, 64, 64), (1, 2), 6, ctas=2),
    Config((64, 16, 64), (2, 1), 6, ctas=2),
)

# The same for f64, with an instruction of sm_90's. The second fits 99 KB, too.
_f64 = partial(Config, mma=(16, 8, 4))
F64_TABLE: tuple[Config, ...] = (
    _f64((128, 128, 16), (2, 4), 4, persistent=True),
    _f64((128, 128, 16), (2, 4), 3, persistent=True),
    _f64((128, 64, 16), (2, 2), 4, ctas=2),
    _f64((64, 128, 16), (2, 2), 4, ctas=2),
    _f64((64, 64, 16), (2, 2), 4, ctas=2),
    _f64((32, 64, 16), (2, 2), 4, ctas=3),
    _f64((64, 32, 16), (2, 2), 4, ctas=3),
    _f64((32, 32, 16), (2, 2), 4, ctas=4),
    _f64((16, 64, 32), (1, 4), 4, ctas=4),
    _f64((64, 16, 32), (4, 1), 4, ctas=4),
)


def check(problem: Problem, config: Config, device: DeviceSpec) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    if not device.target.runs(REQUIRED_TARGET):
        raise TargetError(
            f"multistage needs {REQUIRED_TARGET} or later; {device.name} is {device.target}",
            hint="device='vm' computes as a newer one",
        )
    if problem.a not in MMA_SHAPES:
        raise TargetError(
            f"multistage supports {', '.join(MMA_SHAPES)}, not {problem.a}",
            hint="tma does, on sm_90a",
        )
    _check_shape(problem, config, device)
    check_shared_memory(config, config.shared_bytes(problem.input.bits), device)
    shared_out = device.limits.registers_per_sm // (config.threads * config.ctas)
    have = min(shared_out, device.limits.registers_per_thread)
    need = accumulator_registers(problem, config)
    if need >= have:
        raise ConfigError(
            f"{config}: accumulators alone take {need} of {have} registers per thread",
            hint="more warps, or fewer CTAs on an SM",
        )


def _check_shape(problem: Problem, config: Config, device: DeviceSpec) -> None:
    shapes = MMA_SHAPES[problem.a]
    if config.mma not in shapes:
        known = ", ".join("m{}n{}k{}".format(*shape) for shape in shapes)
        raise ConfigError(f"{config}: the mma shape for {problem.a} must be one of {known}")
    needed = instruction(opcode(problem, config)).target
    if not device.target.runs(needed):
        raise TargetError(
            f"{config}: {config.mma_name} of {problem.a} needs {needed} or later; {device.name} is "
            f"{device.target}",
            hint="m8n8k4 runs there",
        )


def opcode(problem: Problem, config: Config) -> str:
    """The matrix instruction."""
    types = f"{problem.accumulator_type}.{problem.a}.{problem.b}.{problem.accumulator_type}"
    return f"mma.sync.aligned.{config.mma_name}.row.col.{types}"


def accumulator_registers(problem: Problem, config: Config) -> int:
    """Accumulator registers of a thread."""
    wm, wn = config.warp_tile
    return wm * wn // WARP * (1 + problem.is_f64)
