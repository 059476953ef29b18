"""Configuration of kernel ``multistage``: the shape of tiles, warps and stages.

``128x128x32:2x2:4`` is a CTA tile of 128×128, 32 of K at a time, 2×2 warps, 4 stages;
``64x64x16:2x2:4:m8n8k4`` names the matrix instruction, which is else the widest of the type;
``128x128x32:2x2:4*2`` is split-K by 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

from ...dtypes import dtype
from ...errors import ConfigError, TargetError
from ...mma import instruction
from ...mma.metadata_blocks import BLOCKS_TOGETHER, block_k
from ...target import DeviceSpec, Limits, Target
from ..config_checks import (
    MAX_SPLIT,
    MmaShape,
    check_counts,
    check_epilogue,
    check_flags,
    check_kinds,
    check_shared_memory,
    check_tile,
    notation,
    numbers_of,
)
from ..problem import FP8, PROMOTION_K, Problem

_BYTES: tuple[MmaShape, ...] = ((16, 8, 16), (16, 8, 32))
# By A's format, the shapes of mma.sync that multiply it, the widest last.
MMA_SHAPES: dict[str, tuple[MmaShape, ...]] = {
    "f16": ((16, 8, 16),),
    "bf16": ((16, 8, 16),),
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "s8": _BYTES,
    "u8": _BYTES,
    "s4": ((16, 8, 32), (16, 8, 64)),
    "u4": ((16, 8, 32), (16, 8, 64)),
    "b1": ((16, 8, 128), (16, 8, 256)),
    "e4m3": _BYTES[1:],
    "e5m2": _BYTES[1:],
    "f64": ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)),
}
WARP = 32
REQUIRED_TARGET = "sm_80"  # cp.async, and mma.sync of the least shapes
MIN_TILE = (16, 16, 16)  # a tile's M, N, K; of K, two instructions of the type
MIN_COPY = 4  # bytes that a cp.async copies
LDMATRIX_BYTES = 32  # of K, of which ldmatrix.x4 loads 16 rows of A or B
SPLITS = (2, 4, 8, 16)  # candidates
STAGED_ROWS = 16  # rows of a warp's accumulators that the epilogue stages at a time
PAD = 8  # elements of padding of such a row, against bank conflicts
TRANSPOSED_PAD = 4  # the same where the epilogue stages Dᵀ, of a sparse B

_NOTATION = notation("#x#x#:#x#:#(p?)(?:/#)?(?:\\*#)?(?:@#)?(?::m#n#k#)?")


@dataclass(frozen=True, slots=True)
class Config:
    """Kernel ``multistage``: cp.async into a ring of ``stages``, mma.sync.

    ``tile`` (M, N, K) of a CTA, ``warps`` (along M, along N), ``group``: rows of tiles that are
    rasterized together for the L2, ``ctas``: resident CTAs per SM (the compiler's register budget).
    ``persistent``: a CTA for each resident one of the device computes tile after tile (where D is
    a multiple of the tile), and copies the next tile's first stages during the epilogue. ``mma``:
    shape of the matrix instruction; None: the widest. ``split``: split-K. Raises ConfigError.
    """

    tile: MmaShape
    warps: tuple[int, int]
    stages: int
    group: int = 8
    ctas: int = 1
    persistent: bool = False
    mma: MmaShape | None = None
    split: int = 1
    programmatic: ClassVar[bool] = False  # whether the kernel itself waits for prior grids

    def __post_init__(self) -> None:
        mma = {"mma": 3} if self.mma else {}
        check_kinds(self, tile=3, warps=2, stages=0, group=0, ctas=0, split=0, **mma)
        check_flags(self, "persistent")
        if self.mma and not any(self.mma in shapes for shapes in MMA_SHAPES.values()):
            raise ConfigError(f"{self}: no supported type has an mma.sync of this shape")
        check_tile(self, (*MIN_TILE[:2], max(MIN_TILE[2], 2 * self.mma[2] if self.mma else 0)))
        for what, size, count in zip(("rows", "columns"), self.tile[:2], self.warps, strict=True):
            if count < 1 or size % count or (size // count) % 16:
                raise ConfigError(
                    f"{self}: {size} {what} must divide among {count} warps by multiples of 16"
                )
        if not 1 <= self.split <= MAX_SPLIT:
            raise ConfigError(f"{self}: split-K must be 1 to {MAX_SPLIT}, got {self.split}")
        if self.persistent and self.split > 1:
            raise ConfigError(f"{self}: a persistent kernel excludes split-K")
        check_counts(self)

    @classmethod
    def parse(cls, text: str) -> Config:
        """``BMxBNxBK:WMxWN:STAGES``, then optionally ``p`` (persistent), ``/CTAS``, ``*SPLIT``,
        ``@GROUP``, and the shape of the instruction, ``:m8n8k4``.
        """
        found = numbers_of(_NOTATION, text, "128x128x32:2x2:4")
        bm, bn, bk, wm, wn, stages = (int(x) for x in found.groups()[:6])
        ctas, split, group = int(found[8] or 1), int(found[9] or 1), int(found[10] or 8)
        mma = (int(found[11]), int(found[12]), int(found[13])) if found[11] else None
        return cls((bm, bn, bk), (wm, wn), stages, group, ctas, bool(found[7]), mma, split)

    def __str__(self) -> str:
        tile, warps = ("x".join(map(str, x)) for x in (self.tile, self.warps))
        stages = f"{self.stages}{'p' if self.persistent else ''}"
        shape = f":{mma_name(self.mma)}" if self.mma else ""
        split = f"*{self.split}" * (self.split > 1)
        return f"{tile}:{warps}:{stages}/{self.ctas}{split}@{self.group}{shape}"

    def mma_shape(self, type_: str) -> MmaShape:
        """The shape of the instruction that multiplies an A of this type."""
        return self.mma or MMA_SHAPES[type_][-1]

    @property
    def threads(self) -> int:
        return self.warps[0] * self.warps[1] * WARP

    @property
    def warp_tile(self) -> tuple[int, int]:
        return self.tile[0] // self.warps[0], self.tile[1] // self.warps[1]

    def stage_bytes(self, bits: int, sparse: str = "") -> int:
        """Bytes of a stage: a k-tile of A and of B, elements of ``bits``; of the ``sparse`` one
        half, and metadata.
        """
        bm, bn, bk = self.tile
        dense = (bm + bn) * bk * bits // 8
        if not sparse:
            return dense
        rows = bm if sparse == "a" else bn
        return dense - rows * bk * bits // 16 + self.metadata_bytes(bits, sparse)

    def metadata_bytes(self, bits: int, sparse: str) -> int:
        """Bytes of a stage's metadata: 4 bits for each chunk of 4 elements (f32: 2, 4-bit: 8)."""
        rows, chunk = self.tile["ab".index(sparse)], {32: 2, 4: 8}.get(bits, 4)
        return rows * self.tile[2] // chunk // 2

    def epilogue_bytes(self, bits: int, sparse: str = "") -> int:
        """Bytes of shared memory in which the epilogue stages 16 rows of each warp, or 16 columns
        of a sparse B; f64 is stored from registers.
        """
        wm, wn = self.warps
        if sparse == "b":
            return wm * wn * self.warp_tile[0] * (STAGED_ROWS + TRANSPOSED_PAD) * 4
        return wm * wn * STAGED_ROWS * (self.warp_tile[1] + PAD) * 4 if bits < 64 else 0

    def shared_bytes(self, bits: int, sparse: str = "") -> int:
        """Bytes of the ring and the epilogue; they share memory unless the kernel is persistent."""
        ring = self.stages * self.stage_bytes(bits, sparse)
        staged = self.epilogue_bytes(bits, sparse)
        return ring + staged if self.persistent else max(ring, staged)

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

    def is_persistent(self, problem: Problem) -> bool:
        """Whether a CTA computes more than one tile of this problem."""
        rest = problem.m % self.tile[0] or problem.n % self.tile[1]
        return self.persistent and not rest and not problem.batched

    def resident(self, bits: int, limits: Limits, sparse: str = "") -> int:
        """Resident CTAs per SM: ``ctas``, or fewer where shared memory limits them."""
        room = limits.shared_per_sm // (self.shared_bytes(bits, sparse) + limits.shared_reserved)
        return max(1, min(self.ctas, room))


def mma_name(shape: MmaShape) -> str:
    """A shape of matrix instructions as PTX writes it."""
    return "m{}n{}k{}".format(*shape)


# For 16-bit types, from large to small; the first needs an H100's shared memory, the second fits
# 99 KB.
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

# For f64, with an instruction of sm_90. The second fits 99 KB, too.
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

# For 8-bit floats besides: warps enough for the registers of promoted accumulation. The second fits
# 99 KB.
FP8_TABLE: tuple[Config, ...] = (
    Config((128, 128, 128), (2, 4), 3, persistent=True),
    Config((128, 128, 128), (2, 4), 3),
)


@lru_cache(maxsize=64)
def table(type_: str, target: Target, sparse: str = "") -> tuple[Config, ...]:
    """The configurations for an A of this type, with the instructions of the target. K-tiles of a
    ``sparse`` operand have two of its instructions at least; persistent kernels would spill.
    """
    if sparse:
        least = 4 * MMA_SHAPES[type_][-1][2]
        given = (config for config in table(type_, target) if not config.persistent)
        return tuple(dict.fromkeys(_with_k(config, least) for config in given))
    if type_ == "f64":
        older = tuple(replace(config, mma=(8, 8, 4)) for config in F64_TABLE)
        return F64_TABLE if target.runs("sm_90") else older
    bits = dtype(type_).bits
    scaled = TABLE if bits == 16 else tuple(_with_bits(config, bits) for config in TABLE)
    return FP8_TABLE + scaled if type_ in FP8 else scaled


@lru_cache(maxsize=64)
def split_candidates(type_: str, target: Target, sparse: str = "") -> tuple[Config, ...]:
    """The configurations of the table with split-K."""
    configs = [config for config in table(type_, target, sparse) if not config.persistent]
    return tuple(replace(config, split=split) for config in configs for split in SPLITS)


def _with_bits(config: Config, bits: int) -> Config:
    """A configuration for 16-bit types with as many bytes of K of another one."""
    bm, bn, bk = config.tile
    return replace(config, tile=(bm, bn, bk * 16 // bits))


def _with_k(config: Config, least: int) -> Config:
    bm, bn, bk = config.tile
    return replace(config, tile=(bm, bn, max(bk, least)))


@lru_cache(maxsize=256)
def relayout_problem(problem: Problem) -> Problem:
    """The problem after relayout. ldmatrix transposes 16-bit elements only, so operands of other
    types must be K-major (f64 is loaded without it), as a sparse operand is; those of 8 bits begin
    at multiples of 4 bytes, the least that cp.async copies.
    """
    changes: dict[str, Any] = {}
    for name in "ab":
        if problem.input.bits in (16, 64) and problem.sparse != name:
            continue
        if getattr(problem, f"{name}_major") != "k" or getattr(problem, f"align_{name}") < MIN_COPY:
            changes |= {f"{name}_major": "k", f"align_{name}": 16}
    return replace(problem, **changes)


def check(problem: Problem, config: Config, device: DeviceSpec) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    check_epilogue(config, problem)
    if not device.target.runs(REQUIRED_TARGET):
        raise TargetError(
            f"multistage needs {REQUIRED_TARGET} or later; {device.name} is {device.target}",
            hint="device='vm' computes as a newer one",
        )
    if problem.a not in MMA_SHAPES:
        raise TargetError(f"multistage supports {', '.join(MMA_SHAPES)}, not {problem.a}")
    if problem != relayout_problem(problem):
        raise ConfigError(
            f"{config}: {'sparse ' if problem.sparse else ''}operands of {problem.a} must be "
            f"K-major and aligned to {MIN_COPY} bytes",
            hint="relayout_problem gives the problem after relayout",
        )
    _check_shape(problem, config, device)
    if config.split > 1 and problem.is_f64:
        raise ConfigError(f"{config}: split-K is not supported for f64")
    check_shared_memory(config, config.shared_bytes(problem.input.bits, problem.sparse), device)
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
    shape = config.mma_shape(problem.a)
    if shape not in shapes:
        known = ", ".join(map(mma_name, shapes))
        raise ConfigError(f"{config}: the mma shape for {problem.a} must be one of {known}")
    m, n, part = instruction_shape(problem, config)
    if config.tile[2] < 2 * part:
        raise ConfigError(
            f"{config}: tile K must be at least {2 * part} for {problem.a}, two instructions "
            f"of {mma_name((m, n, part))}, got {config.tile[2]}"
        )
    _check_sparse(problem, config)
    if not problem.is_f64 and shape[2] * problem.input.bits < 8 * LDMATRIX_BYTES:
        if min(config.warp_tile) < 32:
            raise ConfigError(
                f"{config}: {mma_name(shape)} of {problem.a} needs warp tiles of at least 32×32, "
                "because ldmatrix loads four matrices"
            )
    if problem.promoted and config.tile[2] % PROMOTION_K:
        raise ConfigError(
            f"{config}: tile K must be a multiple of {PROMOTION_K} for {problem.a} without "
            f"fast_accum, got {config.tile[2]}"
        )
    needed = instruction(opcode(problem, config)).target
    if not device.target.runs(needed):
        raise TargetError(
            f"{config}: {mma_name(shape)} of {problem.a} needs {needed} or later; {device.name} is "
            f"{device.target}",
            hint="m8n8k4 runs there" if problem.is_f64 else "",
        )


def _check_sparse(problem: Problem, config: Config) -> None:
    if not problem.sparse:
        return
    if config.mma not in (None, MMA_SHAPES[problem.a][-1]):
        raise ConfigError(f"{config}: a sparse matrix needs the widest instruction")
    most = BLOCKS_TOGETHER * block_k(problem.a)
    if config.tile[2] > most:
        raise ConfigError(
            f"{config}: tile K of sparse {problem.a} must be at most {most}, got {config.tile[2]}"
        )


def opcode(problem: Problem, config: Config) -> str:
    """The matrix instruction."""
    left, right = (problem.b, problem.a) if problem.sparse == "b" else (problem.a, problem.b)
    types = f"{problem.accumulator_type}.{left}.{right}.{problem.accumulator_type}"
    operation = ".and.popc" if problem.a == "b1" else ""
    name = "mma.sp.sync" if problem.sparse else "mma.sync"
    return (
        f"{name}.aligned.{mma_name(instruction_shape(problem, config))}.row.col.{types}{operation}"
    )


def instruction_shape(problem: Problem, config: Config) -> MmaShape:
    """The shape of the matrix instruction; that of a sparse operand has twice the K."""
    m, n, k = config.mma_shape(problem.a)
    return m, n, k * (2 if problem.sparse else 1)


def in_bytes(problem: Problem, config: Config) -> tuple[Problem, Config]:
    """Packed elements as bytes along K. The fragments of their instructions are those of the u8
    instruction with as many bytes of K.
    """
    per, (m, n, k) = problem.per_byte, config.mma_shape(problem.a)
    if per == 1:
        return problem, config
    bm, bn, bk = config.tile
    return (
        replace(problem, a="u8", b="u8", k=problem.k // per),
        replace(config, tile=(bm, bn, bk // per), mma=(m, n, k // per)),
    )


def accumulator_registers(problem: Problem, config: Config) -> int:
    """Accumulator registers of a thread; promoted accumulation has two sets of them."""
    wm, wn = config.warp_tile
    return wm * wn // WARP * (1 + (problem.is_f64 or problem.promoted))
