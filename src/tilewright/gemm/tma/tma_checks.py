"""Rules that decide which configurations of kernel ``tma`` fit a problem and a device.

A rule is a condition on the fields of a configuration. ``check`` raises the error of the first rule
that one configuration breaks; ``fits`` evaluates the same rules on columns of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConfigError, TargetError
from ...mma.instruction_table import INTEGER_N
from ...mma.metadata_blocks import BLOCKS_TOGETHER, block_k
from ...mma.tensor_maps.tensor_map_rules import EXTENT
from ...quantization.weight_format import UNITS_MULTIPLE
from ...target import DeviceSpec
from ..columns import Column, larger, select
from ..problem import PROMOTION_K, Problem, accumulator_type_of
from .tma_config import TmaConfig
from .tma_geometry import SWIZZLE_BYTES, WGMMA_ROWS, TmaGeometry
from .tma_operand import TmaOperand, matrix_operands, operands

REQUIRED_TARGET = "sm_90a"
STORE_BYTES = 32  # rows of an epilogue tile must be a multiple of these
# Accumulator registers of a thread at most, and how many of them the epilogue takes for C, and once
# more for rows of D or C that are not aligned to 16 bytes; by one or two consumer warpgroups, and
# by three.
MAX_ACCUMULATOR_REGISTERS, EPILOGUE_REGISTERS = 208, 72
MAX_ACCUMULATOR_REGISTERS_OF_3, EPILOGUE_REGISTERS_OF_3 = 96, 16
MAX_ACCUMULATOR_REGISTERS_OF_4 = 56  # which have no epilogue of their own but the first
F32_C_REGISTERS = 16  # that a C of 32 bits takes besides
_IS_INTEGER_N = np.array([n in INTEGER_N for n in range(257)])

Geometry = TmaGeometry[Any]


class _Rule(NamedTuple):
    """Whether a configuration, or each of a column of them, breaks the rule; the text of its error
    after the configuration, and a hint.
    """

    broken: Any
    text: Callable[[], str]
    hint: str = ""


def check(problem: Problem, config: TmaConfig, device: DeviceSpec) -> None:
    """Raise ConfigError where the configuration does not fit problem and device, TargetError where
    no configuration of kernel ``tma`` does. ``problem`` is after relayout.
    """
    if not device.target.runs(REQUIRED_TARGET):
        raise TargetError(f"tma needs {REQUIRED_TARGET}; {device.name} is {device.target}")
    for broken, text, hint in _rules(problem, config, device):
        if broken:
            raise ConfigError(f"{config}{text()}", hint=hint)


def fits(problem: Problem, configs: Geometry, device: DeviceSpec) -> Column:
    """Column of Booleans: the configurations that ``check`` accepts, on a device that runs ``tma``.
    ``problem`` is after relayout.
    """
    broken = np.zeros(len(configs.tile[0]), bool)
    for rule in _rules(problem, configs, device):
        broken |= rule.broken
    return ~broken


def has_two_accumulator_sets(problem: Problem, config: TmaConfig) -> bool:
    """Whether a thread's registers hold the partial accumulators of two stages beside the totals
    that they are promoted to.
    """
    return bool(has_accumulator_sets(problem, config))


def has_accumulator_sets(problem: Problem, configs: Geometry) -> Any:
    """The same of one configuration, or of each of a column of them."""
    return 3 * configs.accumulator_registers <= _max_accumulator_registers(problem, configs)


def _rules(problem: Problem, config: Geometry, device: DeviceSpec) -> Iterator[_Rule]:
    """The rules in the order in which ``check`` reports them."""
    yield from _sparse_rules(problem, config)
    yield from _group_rules(problem, config)
    yield from _operand_rules(problem, config)
    bn, d_bits = config.tile[1], problem.output.bits
    yield _Rule(
        select(config.swap, False, bn * d_bits % (8 * STORE_BYTES) != 0),
        lambda: (
            f": the epilogue stores {STORE_BYTES}-byte rows of {problem.d}, so tile_n must be a "
            f"multiple of {8 * STORE_BYTES // d_bits}, got {bn}"
        ),
    )
    yield from _epilogue_rules(problem, config)
    need, have = config.shared_bytes(problem), device.limits.shared_per_block
    yield _Rule(
        need > have,
        lambda: f" needs {need} bytes of shared memory; {device.name} has {have} for a CTA",
        "fewer stages or a smaller tile",
    )
    used = config.accumulator_registers * (1 + problem.promoted)
    if problem.weights is not None:
        used = config.weight_registers(problem.weights)
    most = _max_accumulator_registers(problem, config)
    yield _Rule(
        used > most,
        lambda: f": accumulators take {used} of {most} registers per thread for {problem}",
        "more warpgroups or a smaller tile",
    )
    yield _Rule(
        config.stream_k > config.resident_clusters(device),
        lambda: (
            f": groups of {config.stream_k} clusters must be resident on {device.name}, got "
            f"{config.resident_clusters(device)}"
        ),
    )
    ctas = device.limits.cluster
    yield _Rule(config.ctas > ctas, lambda: f": a cluster has at most {ctas} CTAs")


def _epilogue_rules(problem: Problem, config: Geometry) -> Iterator[_Rule]:
    """What an epilogue function requires of the tile: rows of 32 bytes of every output."""
    if problem.epilogue is None:
        return
    if problem.scaling is not None or problem.gathers:
        what = "gathered rows" if problem.gathers else "block scales"
        yield _Rule(
            config.consumers == 3,
            lambda: f": {what} and 3 epilogue loads need 5 producer warps, there are 4",
            "1 or 2 consumer warpgroups",
        )
    if problem.pair:
        sharers = select(config.swap, config.cluster[1], config.cluster[0])
        several = config.warpgroup_rows > 2 * WGMMA_ROWS  # blocks of each matrix
        reduced = bool(problem.epilogue.partial_reductions) or problem.weights is None
        yield _Rule(
            (config.split > 1) & (several | reduced),
            lambda: (
                ": two matrices B exclude split-K, but prepared weights without reductions, of "
                f"which a warpgroup has {WGMMA_ROWS} rows each"
            ),
        )
        yield _Rule(
            sharers > 2,
            lambda: ": two matrices B exclude clusters of which more than 2 CTAs share B",
        )
        whole = config.warpgroup_rows % (2 * WGMMA_ROWS) == 0
        halves = _divides_pair(problem, config)
        yield _Rule(
            select(config.swap, select(whole | halves, False, True), False),
            lambda: (
                f": a warpgroup must have a multiple of {2 * WGMMA_ROWS} rows of a swapped pair, "
                f"got {config.warpgroup_rows}"
            ),
        )
        yield _Rule(
            halves & (config.stream_k > 0),
            lambda: ": warpgroups that divide a pair exclude stream-K",
        )
    sizes = problem.epilogue.output_bytes
    width, least = config.graph_epilogue_width(problem), STORE_BYTES // min(sizes)
    bn = config.tile[1]
    yield _Rule(
        select(config.swap, False, width < least),
        lambda: f": tile_n must be a multiple of {least} for this epilogue, got {bn}",
    )


def _divides_pair(problem: Problem, config: Geometry) -> Any:
    """Whether two warpgroups, or two sets of them that share k-blocks, divide a pair."""
    two = select(config.pingpong, False, config.epilogue_warpgroups == 2)
    return two & config.divides_pair(problem)


def _sparse_rules(problem: Problem, config: Geometry) -> Iterator[_Rule]:
    """What a sparse operand requires: it is wgmma's A, and K-major."""
    if not problem.sparse:
        return
    of_b = problem.sparse == "b"
    yield _Rule(
        config.swap != of_b,
        lambda: (
            f": sparse {problem.sparse.upper()} must be wgmma's A: {'with' if of_b else 'no'} ~"
        ),
    )
    yield _Rule(
        (problem.b_major if of_b else problem.a_major) != "k",
        lambda: f": sparse {problem.sparse.upper()} must be K-major",
    )
    most = BLOCKS_TOGETHER * block_k(problem.a)
    yield _Rule(
        config.tile[2] > most,
        lambda: f": tile_k of sparse {problem.a} must be at most {most}, got {config.tile[2]}",
    )


def _group_rules(problem: Problem, config: Geometry) -> Iterator[_Rule]:
    """What the grouped tile scheduler requires."""
    if problem.groups is not None:
        yield _Rule(
            (config.split > 1) | config.dynamic | (config.stream_k > 0),
            lambda: ": groups exclude split-K, stream-K and the dynamic tile scheduler",
        )
        unit = problem.k_group_unit
        yield _Rule(
            (config.tile[2] != unit) & (unit > 1),
            lambda: f": tile_k must be {unit} for 8-bit groups along K, got {config.tile[2]}",
        )


def _operand_rules(problem: Problem, config: Geometry) -> Iterator[_Rule]:
    """What TMA and wgmma require of A and B and of their tiles."""
    (_, bn, bk), bits = config.tile, problem.input.bits
    yield _Rule(
        problem.align_a < 16 or problem.align_b < 16,
        lambda: ": TMA requires rows of A and B at multiples of 16 bytes",
    )
    yield _Rule(
        bits != 16 and (problem.a_major != "k" or problem.b_major != "k"),
        lambda: f": wgmma reads {problem.a} K-major only",
    )
    yield _Rule(
        accumulator_type_of(problem.a) == "s32" and ~_IS_INTEGER_N[bn],
        lambda: f": tile_n of integers must be 8, 24 or a multiple of 16, got {bn}",
    )
    yield _Rule(
        problem.promoted and bk != PROMOTION_K,
        lambda: f": tile_k must be {PROMOTION_K} for {problem.a} without fast_accum, got {bk}",
    )
    yield from _weight_rules(problem, config)
    least = 8 * SWIZZLE_BYTES // bits
    yield _Rule(bk < least, lambda: f": tile_k must be at least {least} for {problem.a}, got {bk}")
    a, b = matrix_operands(problem, config)
    yield _Rule(_misfits(a) | _misfits(b), lambda: _extent_error(problem, config))
    rows = larger(a.lines_per_copy, b.lines_per_copy)
    yield _Rule(rows > EXTENT, lambda: f": one TMA copy loads at most {EXTENT} rows, got {rows}")


def _weight_rules(problem: Problem, config: Geometry) -> Iterator[_Rule]:
    """What prepared weights require: they are wgmma's A, in registers."""
    yield _Rule(
        (config.slices > 1) & (problem.weights is None),
        lambda: f": sliced-K requires prepared weights, so tile_m must be {config.consumers} · 64",
    )
    more = problem.pair or problem.epilogue is not None  # groups exclude all split-K
    yield _Rule(
        select(config.in_cluster, problem.weights is None or more, False),
        lambda: (
            ": split-K in a cluster requires prepared weights of one matrix, without an epilogue "
            "function"
        ),
        "split-K without c",
    )
    if problem.weights is None:
        return
    bm, _, bk = config.tile
    alone = select(config.divides_pair(problem), False, bm != WGMMA_ROWS)
    yield _Rule(
        (config.slices > 1) & alone,
        lambda: f": sliced-K requires tile_m of {WGMMA_ROWS}, or of a pair {2 * WGMMA_ROWS}",
    )
    yield _Rule(config.swap != 1, lambda: ": prepared weights require a swapped product (~)")
    unit_k = problem.weights.unit_k
    most = unit_k * UNITS_MULTIPLE
    yield _Rule(
        (bk % unit_k != 0) | (bk > most),
        lambda: f": tile_k must be {unit_k} or {most} for {problem.weights}, got {bk}",
    )
    # A stage belongs to one slice: another's wait for a later phase of its barrier could end two
    # phases too early. A slice keeps its stage until its next one is full.
    slices, stages = config.slices, config.stages
    least = 2 * slices
    yield _Rule(
        (slices > 1) & ((stages % slices != 0) | (stages < least)),
        lambda: f": stages must be a multiple of {slices}, at least {least}, for sliced-K",
    )


def _misfits(operand: TmaOperand) -> Any:
    return operand.extent % operand.extent_unit != 0


def _extent_error(problem: Problem, config: Any) -> str:
    sides = zip("mn", operands(problem, config), strict=True)
    side, operand = next(x for x in sides if _misfits(x[1]))
    by = f", which {operand.sharers} CTAs share," if operand.sharers > 1 else ""
    return f": tile_{side}{by} must be a multiple of {operand.extent_unit}, got {operand.extent}"


def _max_accumulator_registers(problem: Problem, config: Geometry) -> Any:
    """Accumulator registers per thread, at most: the epilogue needs some where it reads C, and
    where rows of D or C are not aligned to 16 bytes.
    """
    aligned = min(problem.align_d, problem.align_c if problem.loads_c else 16) == 16
    uses, three = problem.loads_c + (not aligned), config.consumers == 3
    most = select(three, MAX_ACCUMULATOR_REGISTERS_OF_3, MAX_ACCUMULATOR_REGISTERS)
    most = select(config.consumers == 4, MAX_ACCUMULATOR_REGISTERS_OF_4, most)
    taken = uses * select(three, EPILOGUE_REGISTERS_OF_3, EPILOGUE_REGISTERS)
    if problem.loads_c and problem.output.bits == 32:
        taken = taken + F32_C_REGISTERS
    return select(config.stores_partial, most, most - taken)
