"""Texts of configurations that leave parts out: what is written stays, the rest is chosen."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

import tilewright
from gemm_cases.kernels import make_problem
from ptxas import assemble, ptxas
from rows import every_row
from tilewright.errors import ConfigError, TargetError
from tilewright.gemm import (
    Config,
    Problem,
    TmaConfig,
    build,
    check,
    choose,
    complete,
    parse,
    ranked,
    relayout_problem,
)
from tilewright.gemm.cost_model import estimate
from tilewright.target import device_spec

H200, A100 = device_spec("H200"), device_spec("A100")
BF16 = Problem(4096, 4096, 4096, "bf16", "bf16", "bf16")
SKINNY, E4M3 = BF16.with_sizes(16, 8192, 8192), Problem(1000, 1000, 1000, "e4m3", "e4m3", "bf16")


@pytest.mark.parametrize("problem", [BF16, SKINNY, E4M3, replace(BF16, m=333, a_major="m")])
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("tma:128x64x128", {"tile": (128, 64, 128)}),
        ("tma:128x64x128:2p", {"consumers": 2, "pingpong": True}),
        ("tma:128x64x128:1", {"consumers": 1}),
        ("tma:128x64x128::3", {"stages": 3, "dynamic": False}),
        ("tma:128x64x128::3d", {"stages": 3, "dynamic": True, "split": 1, "cluster": (1, 1)}),
        ("tma:128x64x128/1x2", {"cluster": (1, 2)}),
        ("tma:64x128x128/4x1", {"cluster": (4, 1)}),
        ("tma:128x64x128*5", {"split": 5, "tail": False}),
        ("tma:128x64x128*1", {"split": 1}),
        ("tma:128x64x128+3", {"split": 3, "tail": True}),
        ("tma:128x64x128@3", {"group": 3}),
        ("tma:128x64x128~", {"swap": True, "tile": (128, 64, 128)}),
        ("tma:64x16x128:1/2x1*2@5", {"cluster": (2, 1), "split": 2, "group": 5, "consumers": 1}),
        ("tma*3", {"split": 3}),
        ("tma~", {"swap": True}),
    ],
)
def test_written_parts_of_tma_stay(problem: Problem, text: str, written: dict[str, Any]) -> None:
    config = complete(text, problem, H200)
    check(problem, config, H200)
    assert {name: getattr(config, name) for name in written} == written
    if isinstance(config, TmaConfig) and "stages" not in written:
        assert config.stages == min(config.max_stages(problem, H200), 12)


@pytest.mark.parametrize("problem", [BF16, SKINNY, E4M3])
def test_the_kernel_alone_is_the_best_of_its_candidates(problem: Problem) -> None:
    assert complete("tma", problem, H200) == choose(problem, H200)
    order = [config for _, config in ranked(BF16, A100)]
    assert complete("multistage", BF16, A100) == order[0]


@pytest.mark.parametrize("problem", [BF16, SKINNY, E4M3])
def test_the_chosen_parts_are_the_best(problem: Problem) -> None:
    """No candidate of the search space with the same tile is faster."""
    for _, config in list(ranked(problem, H200))[::40]:
        if isinstance(config, TmaConfig) and not config.swap:
            bm, bn, bk = config.tile
            found = complete(f"tma:{bm}x{bn}x{bk}", problem, H200)
            assert isinstance(found, TmaConfig) and found.tile == config.tile
            best = estimate(problem, found, H200)
            assert best <= estimate(problem, config, H200) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("type_", "text", "written"),
    [
        ("bf16", "128x128x32", {"tile": (128, 128, 32)}),
        ("bf16", "64x64x64:2x1", {"warps": (2, 1)}),
        ("bf16", "64x64x64::3", {"stages": 3}),
        ("bf16", "64x64x64::p", {"persistent": True}),
        ("bf16", "64x64x64/2@3", {"ctas": 2, "group": 3}),
        ("bf16", "64x64x64*4", {"split": 4}),
        ("f64", "64x64x16:m8n8k4", {"mma": (8, 8, 4)}),
        ("f64", "64x64x16", {"mma": (16, 8, 4)}),
        ("f32", "simt:64x64x16", {"tile": (64, 64, 16)}),
        ("f32", "simt:64x64x16:16x8", {"block": (16, 8)}),
        ("f32", "simt:64x64x16::2/4", {"stages": 2, "ctas": 4}),
    ],
)
def test_written_parts_of_the_others_stay(type_: str, text: str, written: dict[str, Any]) -> None:
    problem = make_problem((500, 600, 700), "tt", type_)
    config = complete(text, problem, H200)
    check(problem, config, H200)
    assert {name: getattr(config, name) for name in written} == written


def test_split_k_is_chosen_where_it_is_left_out() -> None:
    """One tile of D and a long K: an A100 has 108 SMs."""
    config = complete("64x64x64", Problem(64, 64, 1 << 16), A100)
    assert isinstance(config, Config) and config.split > 1


def test_a_complete_text_has_default_values() -> None:
    for text in ("tma:128x128x64:2:4", "128x128x32:2x2:4", "simt:64x64x16:16x8:4"):
        assert complete(text, BF16, H200) == parse(text)


@pytest.mark.parametrize(
    ("problem", "device", "text", "error", "says"),
    [
        (BF16, H200, "tma:256x256x64", ConfigError, "no configuration tma:256x256x64 fits"),
        (BF16, H200, "tma:128x256x64::9", ConfigError, "needs .* bytes of shared memory"),
        (E4M3, H200, "tma:128x128x64", ConfigError, "tile_k must be 128 for e4m3"),
        (BF16, H200, "tma:128x512x64", ConfigError, "tile_n must be a multiple of 8 up to 256"),
        (BF16, H200, "tma:0x64x64", ConfigError, "tile_m must be a multiple of 64, got 0"),
        (BF16, H200, "tma/3x1", ConfigError, "cluster sizes must be powers of two"),
        (BF16, H200, "tma/0x1", ConfigError, "cluster sizes must be powers of two"),
        (BF16, H200, "tma:64x64x64/2x1::4", ConfigError, "expected a configuration such as tma"),
        (BF16, H200, "tma:64x64x64::4d*2", ConfigError, "dynamic tile scheduler excludes"),
        (BF16, H200, "tma@0", ConfigError, "rasterization group must be"),
        (BF16, H200, "tmax", ConfigError, "expected a configuration such as tma"),
        (BF16, H200, "128x128", ConfigError, "expected a configuration such as 128x128x32"),
        (BF16, H200, "256x256x64", ConfigError, "accumulators alone take"),
        (BF16, H200, "17x64x64", ConfigError, "tile M must be a power of two"),
        (BF16, H200, "simt:64x64", ConfigError, "expected a configuration such as simt"),
        (BF16, A100, "tma:128x128x64", TargetError, "tma needs sm_90a; A100 is sm_80"),
        (BF16, H200, "simt", TargetError, "simt supports f32, not bf16"),
        (
            make_problem((64, 64, 64), "tt", "f64"),
            H200,
            "tma",
            TargetError,
            "tma does not multiply",
        ),
    ],
)
def test_what_cannot_be_completed(
    problem: Problem, device: Any, text: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        complete(text, problem, device)


def test_a_plan_completes_its_configuration() -> None:
    plan = tilewright.plan(512, 512, 512, dtype="bf16", device="vm", config="tma:128x128x64:2p")
    assert str(plan.config).startswith("tma:128x128x64:2p:6/")


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@every_row(
    ("type_", "text"),
    [
        *product(["bf16"], ["tma:192x128x64", "tma:256x128x64", "tma:128x208x64", "tma:64x64x128"]),
        *product(["bf16"], ["128x128x32", "64x64x64", "64x256x32", "16x128x64"]),
        *product(["f32"], ["simt:128x128x16", "simt:256x64x16", "simt:64x128x8", "simt:32x32x16"]),
    ],
)
def test_completed_configurations_do_not_spill(type_: str, text: str) -> None:
    problem = make_problem((4096, 4096, 4096), "tn", type_)
    config = complete(text, problem, H200)
    cubin = assemble(build(relayout_problem(problem, config), config, H200).ptx, "sm_90a")
    assert not cubin.spills, config
