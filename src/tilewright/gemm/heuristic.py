"""Heuristic: selects the candidate configuration with the least estimated time on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from ..errors import ConfigError, TargetError
from ..target import DeviceSpec
from .cost_model import AnyConfig, estimate
from .cp_async import multistage_config as multistage
from .cp_async import simt_config as simt
from .cp_async.simt_config import SimtConfig
from .problem import PROMOTION_K, Problem, validate
from .tma import tma_checks
from .tma import tma_config as tma
from .tma import tma_geometry as geometry
from .tma.tma_config import TmaConfig


def choose(problem: Problem, device: DeviceSpec) -> AnyConfig:
    """The configuration with the least estimated time on the device.

    Raises TargetError for a device that no kernel for this problem runs on.
    """
    validate(problem, device)
    return ranked(problem, device)[0][1]


def ranked(problem: Problem, device: DeviceSpec) -> tuple[tuple[float, AnyConfig], ...]:
    """All candidates that fit, the best first, each with its estimated seconds."""
    validate(problem, device)
    return _ranked(problem, device)


@lru_cache(maxsize=256)
def _ranked(problem: Problem, device: DeviceSpec) -> tuple[tuple[float, AnyConfig], ...]:
    fitting: list[tuple[float, AnyConfig]] = []
    for config in candidates(problem, device):
        try:
            check(problem, config, device)
        except (ConfigError, TargetError):
            continue
        fitting.append((estimate(problem, config, device), config))
    if not fitting:
        check(problem, table(problem, device)[-1], device)  # the reason
        raise ConfigError(f"no configuration fits {problem} on {device.name}")
    return tuple(sorted(fitting, key=lambda pair: pair[0]))


def check(problem: Problem, config: AnyConfig, device: DeviceSpec) -> None:
    """Raises ConfigError where the configuration does not fit problem and device, TargetError where
    none does.
    """
    validate(problem, device)
    if not isinstance(config, AnyConfig):
        raise ConfigError(f"config must be a configuration, got {config!r:.60}")
    if isinstance(config, SimtConfig):
        simt.check(problem, config, device)
    elif problem.a == simt.TYPE:
        raise TargetError(
            f"{config}: tensor cores don't multiply {simt.TYPE} as it is",
            hint="precision='tf32' rounds it to 10 bits of mantissa; or a configuration of simt",
        )
    elif isinstance(config, TmaConfig):
        if problem.is_f64:
            raise TargetError(
                f"{config}: wgmma does not multiply f64", hint="a configuration of multistage"
            )
        tma_checks.check(tma.relayout_problem(problem), config, device)
    else:
        multistage.check(multistage.relayout_problem(problem), config, device)


def candidates(problem: Problem, device: DeviceSpec) -> Iterator[AnyConfig]:
    """The search space: candidate configurations, which may not all fit."""
    by_wgmma = problem.a != simt.TYPE and not problem.is_f64
    by_wgmma = by_wgmma and device.target.runs(tma_checks.REQUIRED_TARGET)
    if by_wgmma:
        yield from _tma_candidates(problem, device)
    if not by_wgmma or problem.input.bits == 16:  # of others wgmma is at least twice as fast
        yield from table(problem, device)


def table(problem: Problem, device: DeviceSpec) -> Sequence[AnyConfig]:
    """The configuration table for this type."""
    if problem.a == simt.TYPE:
        return simt.TABLE
    return multistage.table(problem.a, device.target)


# --- candidates of tma --------------------------------------------------------------------------

# (M, warpgroups that multiply, in turn): Ns of the tile
TILES = {
    (128, 2, True): (192, 176, 160, 144, 128),
    (128, 2, False): (256, 192, 160, 128, 96, 64, 32),
    (256, 2, False): (128,),
    (64, 1, False): (256, 192, 128, 96, 80, 64, 32, 16),
}
CLUSTERS = ((1, 1), (2, 1), (1, 2))
MORE_CLUSTERS = ((4, 1), (1, 4), (4, 2), (2, 4))  # where all tiles find a place at once
WAVES = 3  # that tiles may be made to fill
LEAST_STAGES, MOST_STAGES = 3, 12
GROUP, GROUP_OF_8 = 8, 16  # rows of tiles walked together; of 8-bit inputs, which want most a time


def _tma_candidates(problem: Problem, device: DeviceSpec) -> Iterator[TmaConfig]:
    """Tiles, with and without swap, clusters, split-K, with as many stages as fit."""
    bits = problem.input.bits
    least = PROMOTION_K if problem.promoted else 8 * geometry.SWIZZLE_BYTES // bits
    group = GROUP_OF_8 if bits == 8 else GROUP
    for (bm, consumers, pingpong), swap in product(TILES, (False, True)):
        rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
        if bm >= 2 * rows and bm > 64:
            continue
        for bn in _widths(problem, device, (bm, consumers, pingpong), swap):
            if bn >= 2 * columns and bn > 16:
                continue
            for depth in (least, 2 * least)[: 1 + (bm * bn < 128 * 128)]:
                tile = (bm, bn, depth)
                one = TmaConfig(tile, consumers, 2, (1, 1), pingpong, group=group, swap=swap)
                fit: dict[tuple[bool, bool], int] = {}  # stages, by how K is cut
                for cluster, split, tail in _variants(problem, one, device):
                    cut = split > 1, tail
                    if cut not in fit:
                        fit[cut] = _stages(problem, replace(one, split=split, tail=tail), device)
                    if fit[cut] >= LEAST_STAGES:
                        yield TmaConfig(
                            tile, consumers, fit[cut], cluster, pingpong, split, tail, group, swap
                        )


def _stages(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """The number of stages that fit into shared memory; ``config`` has two."""
    left = device.limits.shared_per_block - config.shared_bytes(problem)
    return min(MOST_STAGES, 2 + left // config.stage_bytes(problem.input.bits))


def _widths(
    problem: Problem, device: DeviceSpec, frame: tuple[int, int, bool], swap: bool
) -> Iterable[int]:
    """N of candidate tiles: the table's; narrower ones that need as many tiles; tile sizes fitted
    to the problem, so that the tiles fill whole waves. With a C, or a D that is not stored by
    tensor copies, only the table's: the epilogue needs registers of the accumulators.
    """
    if problem.with_c or tma.relayout_problem(problem).align_d < 16:
        return TILES[frame]
    rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
    right = problem.a_major if swap else problem.b_major
    eights = swap and right == "k" and problem.accumulator_type != "s32"
    written, down = TILES[frame], max(1, -(-rows // frame[0]))
    counts = [-(-columns // bn) for bn in written]
    counts += [wave * device.sms // down for wave in range(1, WAVES + 1)]
    low, high = min(written), max(written)
    found = dict.fromkeys(written)
    for each in (-(-columns // count) for count in counts if count):
        # so does a wide tile's that leaves by eights
        unit = 8 if eights and each <= 128 else 16
        bn = -(-each // unit) * unit
        if low <= bn <= high:
            found[bn] = None
    return found


def _variants(
    problem: Problem, config: TmaConfig, device: DeviceSpec
) -> Iterator[tuple[tuple[int, int], int, bool]]:
    """(cluster, split, tail): clusters, and splits of K that give each SM work, of all tiles or of
    those in the tail wave.
    """
    down, across = config.tile_grid(problem)
    most = min(tma.MAX_SPLIT, problem.k // (2 * config.tile[2]))
    large = config.tile[0] * config.tile[1] >= 128 * 128
    for cm, cn in CLUSTERS:
        # small tiles, where each CTA of a cluster is needed for a side of D, and they do for all of
        # it: then what is long is read once
        if not (large or cm * cn == 1 or (down == cm if cm > 1 else across == cn)):
            continue
        yield (cm, cn), 1, False
        pieces = -(-down // cm) * -(-across // cn) * problem.batch
        places = geometry.resident_clusters(cm * cn, device)
        full = places // max(pieces, 1)
        for split in sorted({2, full // 2, full}):
            if 2 <= split <= most and pieces * split <= places:
                yield (cm, cn), split, False
        for split in (2, 3):
            if pieces > places and pieces % places * split <= places and split <= most:
                yield (cm, cn), split, True
    for cm, cn in MORE_CLUSTERS:
        pieces = -(-down // cm) * -(-across // cn) * problem.batch
        if cm <= down and cn <= across and pieces <= geometry.resident_clusters(cm * cn, device):
            yield (cm, cn), 1, False
