"""How kernel ``multistage`` does it: the shape of tiles, warps and stages.

``128x128x32:2x2:4`` is a CTA tile of 128×128, 32 of K at a time, 2×2 warps, 4 stages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, TargetError
from ..target import Device, Limits
from .problem import LIMIT, Problem

INSTRUCTION = (16, 8, 16)  # m16n8k16
WARP = 32
TYPES = ("f16", "bf16")
NEEDED = "sm_80"  # cp.async, and mma.sync of this shape
LEAST = (16, 16, 32)  # a tile's M, N, K
PAD = 8  # elements between rows of the staged result, against bank conflicts



# --- what the configurations of all kernels have in common ----------------------------------------


def notation(form: str) -> re.Pattern[str]:
    """How a kernel's configurations are written; each ``#`` is a number."""
    return re.compile(form.replace("#", r"(\d{1,10})"), re.ASCII)


def numbers_of(form: re.Pattern[str], text: str, example: str) -> re.Match[str]:
    """The parts of a configuration's text. Raises ConfigError."""
    found = form.fullmatch(text)
    if not found:
        raise ConfigError(f"{text!r} is no configuration", hint=f"written as {example}")
    return found


def check_tile(config: Any, least: tuple[int, int, int]) -> None:
    """Raises ConfigError for a side that is no power of two from ``least`` on."""
    for name, size, smallest in zip("MNK", config.tile, least, strict=True):
        if size < smallest or size & (size - 1):
            raise ConfigError(
                f"{config}: the tile's {name} is a power of two from {smallest} on, not {size}"
            )


def check_counts(config: Any) -> None:
    """Raises ConfigError for threads, CTAs on an SM or stages that no ring of cp.async has."""
    if not 2 <= config.stages <= 16:
        raise ConfigError(f"{config}: 2 to 16 stages, not {config.stages}")
    if config.threads > 1024 or config.ctas < 1:
        raise ConfigError(f"{config}: at most 1024 threads, and at least 1 CTA")
    check_group(config)


def check_group(config: Any) -> None:
    """Raises ConfigError for a group of rows of tiles that the kernel can't count."""
    if not 1 <= config.group < LIMIT:
        raise ConfigError(f"{config}: a group is at least 1 row of tiles, and less than 2^31")


# --- multistage -----------------------------------------------------------------------------------

_NOTATION = notation("#x#x#:#x#:#(p?)(?:/#)?(?:@#)?")


@dataclass(frozen=True, slots=True)
class Config:
    """Kernel ``multistage``: cp.async into a ring of ``stages``, ldmatrix, mma.sync.

    ``tile`` (M, N, K) of a CTA, ``warps`` (along M, along N), ``group``: how many rows of tiles are
    walked together for the L2, ``ctas``: how many CTAs an SM should hold (the compiler's register
    budget). ``persistent``: a CTA for each place on the machine goes from tile to tile (where the
    tiles cover D without a rest), and starts the next one's copies before it writes the last one
    out. Raises ConfigError.
    """

    tile: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    group: int = 8
    ctas: int = 1
    persistent: bool = False

    def __post_init__(self) -> None:
        check_tile(self, LEAST)
        for what, size, count in zip(("rows", "columns"), self.tile[:2], self.warps, strict=True):
            if count < 1 or size % count or (size // count) % 16:
                raise ConfigError(f"{self}: {count} warps don't share {size} {what} by 16s")
        check_counts(self)

    @classmethod
    def parse(cls, text: str) -> Config:
        """``BMxBNxBK:WMxWN:STAGES``, then optionally ``p`` (persistent), ``/CTAS``, ``@GROUP``."""
        found = numbers_of(_NOTATION, text, "128x128x32:2x2:4")
        bm, bn, bk, wm, wn, stages = (int(x) for x in found.groups()[:6])
        group, ctas = int(found[9] or 8), int(found[8] or 1)
        return cls((bm, bn, bk), (wm, wn), stages, group, ctas, bool(found[7]))

    def __str__(self) -> str:
        tile, warps = ("x".join(map(str, x)) for x in (self.tile, self.warps))
        stages = f"{self.stages}{'p' if self.persistent else ''}"
        return f"{tile}:{warps}:{stages}/{self.ctas}@{self.group}"

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

    @property
    def staged_bytes(self) -> int:
        """16 rows of each warp's result on their way out."""
        wm, wn = self.warps
        return wm * wn * INSTRUCTION[0] * (self.warp_tile[1] + PAD) * 4

    def shared_bytes(self, bits: int) -> int:
        """The ring and the staged result, one in the other's place unless both are needed."""
        ring = self.stages * self.stage_bytes(bits)
        return ring + self.staged_bytes if self.persistent else max(ring, self.staged_bytes)

    def persists(self, problem: Problem) -> bool:
        """Whether a CTA computes more than one tile of this problem."""
        rest = problem.m % self.tile[0] or problem.n % self.tile[1]
        return self.persistent and not rest

    def resident(self, bits: int, limits: Limits) -> int:
        """CTAs that an SM holds: as many as it should, if their shared memory is there."""
        room = limits.shared_per_sm // (self.shared_bytes(bits) + limits.shared_reserved)
        return max(1, min(self.ctas, room))


def check(problem: Problem, config: Config, device: Device) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    if not device.target.runs(NEEDED):
        raise TargetError(
            f"multistage needs {NEEDED} or later; {device.name} is {device.target}",
            hint="device='vm' computes as a newer one",
        )
    if problem.a not in TYPES or problem.batched:
        what = f"a batch of {problem.batch}" if problem.batched else f"{problem.a}"
        raise TargetError(
            f"multistage multiplies single matrices of {' or '.join(TYPES)}, not {what}",
            hint="tma does, on sm_90a",
        )
    have, need = device.limits.shared_per_block, config.shared_bytes(problem.input.bits)
    if need > have:
        raise ConfigError(
            f"{config} needs {need} bytes of shared memory; {device.name} has {have} for a CTA",
            hint="fewer stages or a smaller tile",
        )
    shared_out = device.limits.registers_per_sm // (config.threads * config.ctas)
    have, need = min(shared_out, device.limits.registers_per_thread), accumulators(config)
    if need >= have:
        raise ConfigError(
            f"{config}: its accumulators alone take {need} of a thread's {have} registers",
            hint="more warps, or fewer CTAs on an SM",
        )


def accumulators(config: Config) -> int:
    """Accumulator registers of a thread."""
    wm, wn = config.warp_tile
    return wm * wn // WARP
