"""The heuristic: the recorded choices; columns of candidates against single configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemm_cases.choice_cases import Cases, cases, choice, recorded
from rows import every_row
from tilewright.errors import ConfigError, TargetError
from tilewright.gemm import Problem, TmaConfig, check, choose, parse, ranked
from tilewright.gemm.block_scaling import BlockScaling
from tilewright.gemm.config_completion import complete
from tilewright.gemm.cost_model import estimate
from tilewright.gemm.epilogue.bound_epilogue import BoundEpilogue, EpilogueOperandLayout
from tilewright.gemm.epilogue.graph import EpilogueInput
from tilewright.gemm.epilogue.tracing import cast, epilogue
from tilewright.gemm.grouping import Grouping
from tilewright.gemm.tma import tma_checks, tma_search_space
from tilewright.gemm.tma.cost.candidate_order import CLOSE
from tilewright.gemm.tma.cost.coefficients import COEFFICIENTS, deciding
from tilewright.gemm.tma.cost.tma_cost import estimates, tile_costs
from tilewright.gemm.tma.tma_columns import TmaColumns
from tilewright.gemm.tma.tma_config import relayout_problem
from tilewright.target import DEFAULT_DEVICE, DeviceSpec


@epilogue
def scaled(acc: Any, bias: Any, scale: Any) -> dict[str, Any]:
    return {"d": cast(acc * scale + bias, "e4m3"), "sum": acc + bias}


def epilogue_problem(m: int, n: int, k: int) -> Problem:
    """A product with two outputs, of 8 and of 32 bits."""
    inputs = EpilogueInput("bias", "f32", "n"), EpilogueInput("scale", "f32", "")
    graph = scaled.trace("f32", inputs)
    bound = BoundEpilogue(graph, (EpilogueOperandLayout(),) * 2, (EpilogueOperandLayout(),))
    return Problem(m, n, k, "bf16", "bf16", "e4m3", epilogue=bound)


def bf16(m: int, n: int, k: int, batch: int = 1) -> Problem:
    return Problem(m, n, k, "bf16", "bf16", "bf16", batch=batch)


def e4m3(m: int, n: int, k: int, sparse: str = "") -> Problem:
    return Problem(m, n, k, "e4m3", "e4m3", "bf16", fast=True, sparse=sparse)


E4M3 = "e4m3", "e4m3"
BY_TMA = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
SOME = [case for case in cases(200) if case[0].a in BY_TMA and case[1].target.name == "sm_90a"]
EPILOGUES = [
    (epilogue_problem(*sizes), DEFAULT_DEVICE) for sizes in ((512, 768, 1024), (20, 48, 64))
]
# The least estimate is another candidate's than the choice: of PRODUCTS, and of OTHERS.
FAST = [(e4m3(*sizes), DEFAULT_DEVICE) for sizes in ((64, 5120, 14336), (2176, 8896, 768))]


@every_row(("case", "line"), lambda: zip(cases(), recorded(), strict=True), parts=11)
def test_the_choice_is_the_recorded_one(case: tuple[Problem, DeviceSpec], line: str) -> None:
    """Configuration and estimate; ``choice_cases.py`` records anew."""
    assert choice(*case) == line


@every_row(("problem", "device"), [*cases(40), *EPILOGUES, *FAST], parts=2)
def test_candidates_are_ranked_by_the_estimate_of_each(
    problem: Problem, device: DeviceSpec
) -> None:
    try:
        order = ranked(problem, device)
    except TargetError:
        return
    for seconds, config in order:
        check(problem, config, device)
        assert seconds == pytest.approx(estimate(problem, config, device), rel=1e-13)
    seconds = [s for s, _ in order]
    close = sum(s <= (1 + CLOSE) * min(seconds) for s in seconds) * (len(deciding(problem)) > 1)
    assert sorted(seconds[:close]) + seconds[close:] == sorted(seconds)
    assert order[0][1] == choose(problem, device)


@every_row(("problem", "device"), FAST)
def test_other_coefficients_decide_between_close_candidates(
    problem: Problem, device: DeviceSpec
) -> None:
    least = min(ranked(problem, device), key=lambda each: each[0])
    close = [config for s, config in ranked(problem, device) if s <= (1 + CLOSE) * least[0]]
    columns = TmaColumns.of([config for config in close if isinstance(config, TmaConfig)])
    costs = tile_costs(problem, columns, device, COEFFICIENTS[deciding(problem)[1]])
    by_others = estimates(problem, columns, costs, device)
    assert choose(problem, device) == close[0] == close[int(by_others.argmin())] != least[1]
    assert by_others.tolist() == sorted(by_others.tolist())
    assert complete("tma", problem, device) == close[0]


def test_a_ranking_is_a_sequence() -> None:
    order = ranked(Problem(1000, 2000, 300), DEFAULT_DEVICE)
    every = list(order)
    assert len(every) == len(order) > 100
    assert order[-1] == every[-1] and list(order[3:50:7]) == every[3:50:7]
    assert len({config for _, config in every}) == len(every)
    with pytest.raises(IndexError):
        order[len(order)]


# --- columns --------------------------------------------------------------------------------------


@st.composite
def random_configs(draw: st.DrawFn) -> TmaConfig:
    consumers, pingpong = draw(st.sampled_from([(1, False), (2, False), (3, False), (2, True)]))
    rows = 64 * draw(st.integers(1, 3)) * (1 if pingpong else consumers)
    tile = rows, 8 * draw(st.integers(1, 32)), 2 ** draw(st.integers(5, 9))
    cluster = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (4, 2), (1, 8), (4, 4)]))
    split = draw(st.sampled_from([1, 1, 2, 3, 64]))
    tail = split > 1 and draw(st.booleans())
    more = cluster, pingpong, split, tail, draw(st.integers(1, 9)), draw(st.booleans())
    return TmaConfig(tile, consumers, draw(st.integers(2, 12)), *more)


def fits(problem: Problem, config: TmaConfig, device: DeviceSpec) -> bool:
    try:
        tma_checks.check(problem, config, device)
    except ConfigError:
        return False
    return True


@given(
    st.lists(random_configs(), min_size=1, max_size=30),
    st.sampled_from([*SOME, *EPILOGUES, *EPILOGUES]),
)
def test_the_rules_on_columns_are_the_rules_of_check(
    configs: Sequence[TmaConfig], case: tuple[Problem, DeviceSpec]
) -> None:
    problem, device = relayout_problem(case[0]), case[1]
    columns = TmaColumns.of(configs)
    assert [columns.config(i) for i in range(len(columns))] == configs
    expected = [fits(problem, config, device) for config in configs]
    assert tma_checks.fits(problem, columns, device).tolist() == expected
    assert not tma_checks.fits(case[0], columns, device).any() or case[0].align_a == 16


@given(st.lists(random_configs(), min_size=1, max_size=9), st.integers(0, 10**9))
def test_quantities_on_columns_are_those_of_each(configs: Sequence[TmaConfig], seed: int) -> None:
    problem, columns = Cases(seed).problem(), TmaColumns.of(configs)
    for name in ("threads", "ctas", "warpgroup_rows", "accumulator_registers", "stores_partial"):
        assert getattr(columns, name).tolist() == [getattr(c, name) for c in configs]
    for name in ("epilogue_width", "epilogue_tiles", "stores_together", "epilogue_bytes"):
        for bits in (16, 32):
            expected = [getattr(c, name)(bits) for c in configs]
            assert getattr(columns, name)(bits).tolist() == expected
    for name, device in (("shared_bytes", ()), ("cluster_tiles", ()), ("tile_grid", ())):
        expected = [getattr(c, name)(problem, *device) for c in configs]
        assert np.array(getattr(columns, name)(problem)).T.tolist() == np.array(expected).tolist()
    expected = [c.unsplit_tiles(problem, DEFAULT_DEVICE) for c in configs]
    assert columns.unsplit_tiles(problem, DEFAULT_DEVICE).tolist() == expected


def test_stages_are_as_many_as_fit() -> None:
    for problem, device in SOME[:30]:
        columns, *_ = tma_search_space.candidates(problem, device)
        for i in range(0, len(columns), 7):
            config = columns.config(i)
            most = config.max_stages(problem, device)
            assert config.stages == min(most, tma_search_space.MAX_STAGES)


LINES, BLOCKS = (
    BlockScaling(rows=1, columns=columns, contiguous=("mn", "mn")) for columns in (1, 128)
)


def blocks(sizes: tuple[int, int, int], groups: int = 1, form: str = "") -> Problem:
    """Scales of 1×128 and 128×128; ``sizes`` with all rows of ``groups``."""
    grouping = Grouping("s32", form) if form else None
    return Problem(*sizes, *E4M3, "bf16", batch=groups, groups=grouping, scaling=BLOCKS)


def along_k(m: int, n: int, k: int, groups: int) -> Problem:
    """Scales of 1×128 of both."""
    grouping = Grouping("s32", "ends", "k")
    return Problem(m, n, groups * k, *E4M3, "f32", batch=groups, groups=grouping, scaling=LINES)


# Choices that were measured on an H200, faster than those before: by 2 % or more, of the sparse
# product by 0.1 to 0.6 %.
MEASURED = [
    (bf16(64, 64, 64, 1024), "tma:64x64x64:2p:12/1x1@8"),
    (bf16(16, 128, 128, 512), "tma:64x16x128:2p:10/1x1@8~"),
    (bf16(32, 32, 32, 4096), "32x32x32:1x2:1/16@8"),
    (bf16(16, 16, 16, 16384), "16x16x32:1x1:1/32@8"),
    (bf16(2048, 5376, 2048), "tma:128x192x64:2p:4/1x1+sk2@8"),
    (bf16(2688, 1792, 4096), "tma:128x192x64:2p:4/1x1+sk2@8~"),
    (bf16(1024, 8192, 28672), "tma:128x128x64:2p:6/1x1@8"),
    (e4m3(4096, 2112, 7168), "tma:128x176x128:2p:5/1x1@16"),
    (e4m3(512, 2112, 7168), "tma:64x128x128:1:8/1x2@16~"),
    (e4m3(128, 4096, 7168), "tma:64x64x128:1:12/2x1@16"),
    (e4m3(64, 2112, 7168), "tma:64x16x256:1:11/1x1@16"),
    (e4m3(384, 3072, 7808), "tma:128x80x128:2:8/1x1@16"),
    (e4m3(4736, 1024, 704), "tma:128x160x128:2p:5/1x1@16~"),
    (e4m3(64, 5120, 14336), "tma:64x48x256:1:7/1x4@16"),
    (e4m3(256, 5376, 21504), "tma:64x176x128:1:7/1x1@16"),
    (e4m3(15696, 544, 240), "tma:128x192x128:2p:4/2x1@16"),
    (e4m3(64, 512, 64), "tma:64x16x128:1:12/1x4@16~"),
    (e4m3(8192, 8192, 8192, "a"), "tma:128x192x128:2p:5/2x1@16"),
    (along_k(4096, 7168, 8192, 4), "tma:128x128x128:2:5/2x1@16"),
    (along_k(7168, 2048, 4096, 8), "tma:128x128x128:2:5/2x1@16"),
    (blocks((4 * 8192, 7168, 3072), 4, "ends"), "tma:128x128x128:2:5/1x2@16"),
    (blocks((8 * 512, 4096, 4096), 8, "ends"), "tma:128x128x128:2:5/1x1@16"),
    (blocks((192, 6144, 7168), 32, "counts"), "tma:64x192x128:1:6/1x1@16"),
    (blocks((4 * 8192, 7168, 3072)), "tma:128x128x128:2:5/1x1@16"),
    (blocks((8192, 8192, 8192)), "tma:128x192x128:2:4/1x1@16"),
    (blocks((4096, 2112, 7168)), "tma:128x192x128:2:4/1x1@16"),
    (blocks((64 * 128, 4096, 7168), 64, "ends"), "tma:128x128x128:2:5/1x1@16"),
]


@every_row(("problem", "config"), MEASURED)
def test_measured_choices(problem: Problem, config: str) -> None:
    assert str(choose(problem, DEFAULT_DEVICE)) == config


# In clusters; whether they were faster than single CTAs by 4 % or more, or slower.
CLUSTERS = [
    (e4m3(512, 2112, 7168), "tma:64x128x128:1:8/1x2@16~", True),  # share rows of the larger matrix
    (e4m3(128, 4096, 7168), "tma:64x64x128:1:12/2x1@16", True),
    (e4m3(64, 4096, 7168), "tma:64x32x256:1:9/1x2@16~", True),
    (e4m3(64, 4096, 7168), "tma:64x32x256:1:9/1x2@16", False),  # of the smaller
    (e4m3(64, 2112, 7168), "tma:64x16x256:1:11/1x2@16", False),
    (e4m3(576, 2048, 4608), "tma:64x144x128:1:8/2x1@16~", False),
    (e4m3(256, 7168, 2048), "tma:128x128x128:2:6/2x2@16", False),
    (e4m3(64, 512, 64), "tma:64x16x128:1:12/1x4@16~", True),  # on a quarter of the SMs
    (e4m3(512, 128, 128), "tma:64x16x128:1:12/1x4@16~", False),  # on half of them
]


@every_row(("problem", "config", "faster"), CLUSTERS)
def test_clusters_in_one_wave(problem: Problem, config: str, faster: bool) -> None:
    found = parse(config)
    assert isinstance(found, TmaConfig)
    single = estimate(problem, replace(found, cluster=(1, 1)), DEFAULT_DEVICE)
    assert (estimate(problem, found, DEFAULT_DEVICE) < single) == faster


def test_d_is_added_to_by_the_kernel_that_can() -> None:
    """Not by ``multistage``, whose cost model takes reads of D to be free."""
    joined = replace(bf16(8192, 8192, 64), d="f32", with_c=True, accumulates_c=True)
    assert joined.accumulates and isinstance(choose(joined, DEFAULT_DEVICE), TmaConfig)
    for other in (replace(joined, align_d=8), replace(joined, accumulates_c=False)):
        assert not other.accumulates
    unaligned = replace(joined, align_a=8)
    assert not all(isinstance(config, TmaConfig) for _, config in ranked(unaligned, DEFAULT_DEVICE))
