"""Which configuration for which problem: the least estimated time on the device.

An estimate is seconds: how long the busiest SM multiplies, loads and ends its tiles, and how long
memory takes at least. What the terms weigh was measured on an H200 (``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import ceil

from ..errors import ConfigError, TargetError
from ..target import Device
from . import config as multistage
from . import tma_config as tma
from .config import Config
from .problem import Problem
from .tma_config import TmaConfig

AnyConfig = Config | TmaConfig


def choose(problem: Problem, device: Device) -> AnyConfig:
    """The configuration with the least estimated time on the device.

    Raises TargetError for a device that no kernel for this problem runs on.
    """
    return ranked(problem, device)[0][1]


@lru_cache(maxsize=256)
def ranked(problem: Problem, device: Device) -> tuple[tuple[float, AnyConfig], ...]:
    """All configurations that fit, the best first, each with its estimated seconds."""
    fitting: list[tuple[float, AnyConfig]] = []
    for config in candidates(problem, device):
        try:
            check(problem, config, device)
        except (ConfigError, TargetError):
            continue
        fitting.append((estimate(problem, config, device), config))
    if not fitting:
        check(problem, TABLE[-1], device)  # the reason
        raise ConfigError(f"no configuration fits {problem} on {device.name}")
    return tuple(sorted(fitting, key=lambda pair: pair[0]))


def check(problem: Problem, config: AnyConfig, device: Device) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    if isinstance(config, TmaConfig):
        tma.check(tma.taken(problem), config, device)
    else:
        multistage.check(problem, config, device)


def candidates(problem: Problem, device: Device) -> Iterator[AnyConfig]:
    """What is worth a thought."""
    if device.target.runs(tma.NEEDED):
        yield from _tma_candidates(problem, device)
    yield from TABLE


def estimate(problem: Problem, config: AnyConfig, device: Device) -> float:
    """Seconds on the device, about."""
    if isinstance(config, TmaConfig):
        return _tma_time(problem, config, device)
    return _multistage_time(problem, config, device)


# --- multistage ---------------------------------------------------------------------------------

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

PRODUCTS = 1024  # of an SM in a cycle by mma.sync, on the devices that this was fitted to
CLOCK = 1.6e9
# What a tile shape reaches of the tensor cores' mma.sync rate when it has the SM for itself, by
# what it reads from shared memory for each product: 1 / (1 + COST · (1/wm + 1/wn)).
COST = 30.0
STEP = 40_000  # products of an SM in the time that a stage's barrier takes
TILE = 3_000_000  # and in the time of a tile's first copies and its way out


def _multistage_time(problem: Problem, config: Config, device: Device) -> float:
    """Waves of CTAs, each as long as its products, barriers and ends take."""
    bm, bn, bk = config.tile
    tiles = -(-problem.m // bm) * -(-problem.n // bn)
    together = min(
        config.resident(problem.input.bits, device.limits), max(1, -(-tiles // device.sms))
    )
    waves = -(-tiles // (device.sms * together))
    wm, wn = config.warp_tile
    busy = min(1.0, config.threads * together / 256)  # four schedulers want two warps each
    rate = busy / (1 + COST * (1 / wm + 1 / wn))
    step = bm * bn * bk * together / rate + STEP
    products = waves * (-(-problem.k // bk) * step + TILE)
    return products / (PRODUCTS * CLOCK)


# --- tma ----------------------------------------------------------------------------------------

TILES = (
    (128, 192, 2, True), (128, 176, 2, True), (128, 160, 2, True), (128, 144, 2, True),
    (128, 128, 2, True), (128, 256, 2, False), (256, 128, 2, False), (128, 128, 2, False),
    (64, 128, 1, False), (128, 64, 2, False), (64, 64, 1, False), (64, 32, 1, False),
    (64, 16, 1, False), (64, 8, 1, False), (64, 256, 1, False),
)  # fmt: skip
MOST_STAGES = 12


def _tma_candidates(problem: Problem, device: Device) -> Iterator[TmaConfig]:
    """Tiles, either way round, with as many stages as fit."""
    bits = problem.input.bits
    for bm, bn, consumers, pingpong in TILES:
        for depth in (64, 128):
            for swap in (False, True):
                for split in (1, 2):
                    if split > 1 and pingpong:
                        continue
                    tile = bm, bn, depth * 16 // bits
                    try:
                        made = TmaConfig(tile, consumers, 2, (1, 1), pingpong, split, 8, swap)
                    except ConfigError:
                        continue
                    room = device.limits.shared_per_block - made.shared_bytes(problem)
                    stages = min(MOST_STAGES, 2 + room // made.stage_bytes(bits))
                    if room >= 0:
                        yield replace(made, stages=stages)


TMA_PRODUCTS = {8: 4096, 16: 2048, 32: 1024}  # of an SM in a cycle, by an element's bits
TMA_CLOCK = 1.6e9  # what power leaves
SHARED = 128  # bytes that an SM's shared memory gives in a cycle
INGRESS = 56  # bytes that reach it from the L2 in a cycle
BANDWIDTH = 4.2e12  # bytes of memory in a second
LAUNCH = 3.0e-6  # until the first products, and after the last
END = 2.0e-6  # of a tile of 128×256 to leave
COPY = 3.0e-6  # to start a copy that lays a matrix out


def _tma_time(problem: Problem, config: TmaConfig, device: Device) -> float:
    bits = problem.input.bits
    bm, bn, bk = config.tile
    m, n = (problem.n, problem.m) if config.swap else (problem.m, problem.n)
    (cm, cn), split = config.cluster, config.split
    blocks = ceil(m / (bm * cm)) * ceil(n / (bn * cn)) * problem.batch
    waves = ceil(blocks / (device.sms // config.ctas))
    steps = max(1, ceil(ceil(problem.k / bk) / split))
    depth = bk * bits // 256  # instructions along K
    products = bm * bn * bk / TMA_PRODUCTS[bits]
    read = bm // ROWS * (ROWS + bn) * 32 * depth / SHARED
    loaded = config.stage_bytes(bits) / INGRESS
    step = max(products, read, loaded) + 8
    end = END * bm * bn / (128 * 256) * (0.25 if config.pingpong else 1.0)
    if split > 1:
        end += 2.0e-6
    busiest = waves * (steps * step / TMA_CLOCK + end)
    memory = problem.bytes / BANDWIDTH
    return LAUNCH + max(busiest, memory) + _copies(problem)


def _copies(problem: Problem) -> float:
    """To lay out what tensor copies can't read as it lies."""
    taken, seconds = tma.taken(problem), 0.0
    for name, rows in (("a", problem.m), ("b", problem.n)):
        majors = getattr(problem, f"{name}_major"), getattr(taken, f"{name}_major")
        aligned = getattr(problem, f"align_{name}") == 16
        if not aligned or majors[0] != majors[1]:
            moved = 2 * rows * problem.k * problem.input.bits // 8
            seconds += COPY + moved / BANDWIDTH
    return seconds


ROWS = tma.ROWS
