"""``Plan.explain``: its numbers are the launch's and the cost model's."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright import gemm
from tilewright.gemm.cost_model import terms
from tilewright.run import plan

pytestmark = pytest.mark.vm

SIZES = 1000, 2200, 640


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("128x128x64:2x2:3/2", "2×2 warps of 64×64 (128 threads)"),
        ("tma:128x256x64:2:4", "cooperative, 64 rows each, wgmma m64n256k16; 1 producer"),
        ("tma:128x128x64:2p:4", "2 consumer warpgroups, pingpong"),
        ("tma:64x256x64:1:4~", "CTA tile 64×256 of Dᵀ"),
        ("tma:128x128x64:2:4/2x1", "clusters of 2×1 CTAs, TMA multicast"),
        ("tma:128x128x64:2:4/2x2", "clusters of 2×2 CTAs"),
        ("tma:128x128x64:2:4d", "dynamic tile scheduler"),
        ("tma:128x128x64:2:4*3", "split-K: each tile in 3 parts"),
        ("tma:128x128x64:2:4+3", "split-K: the tiles of the tail wave in 3 parts"),
    ],
)
def test_the_configuration_and_its_launch(config: str, words: str) -> None:
    found = plan(*SIZES, dtype="bf16", device="vm", config=config)
    text = found.explain()
    assert words in text and "the caller requested this configuration" in text
    waves, resident = (float(x) for x in re.findall(r"waves +([\d.]+) of (\d+) CTAs", text)[0])
    (launched, _, _), *_ = gemm.launch_shape(found.problem, found.config, found.device.target)
    work_tiles = waves * resident
    want = work_tiles if isinstance(found.config, gemm.Config) else min(work_tiles, resident)
    assert abs(launched - want) <= 0.005 * resident  # waves are printed to a hundredth


@pytest.mark.parametrize(("dtype", "on"), [("bf16", "vm"), ("bf16", "vm:A100"), ("e4m3", "vm")])
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (128, 128, 65536), (300, 200, 101)])
def test_the_reason_is_the_estimate(sizes: tuple[int, int, int], dtype: str, on: str) -> None:
    found = plan(*sizes, dtype=dtype, device=on)
    order = gemm.ranked(found.original_problem, found.device.target)
    assert order[0][1] == found.config
    parts = terms(found.original_problem, found.config, found.device.target)
    assert max(parts.values()) <= order[0][0] <= sum(parts.values()) * 2
    text = " ".join(found.explain().split())
    assert f"of {len(order)} candidates" in text and f"next best: {order[1][1]}" in text
    name, _ = max(parts.items(), key=lambda part: part[1])
    assert f"candidates: {name} " in text


@pytest.mark.parametrize("sizes", [(1000, 600, 200), (300, 500, 90)])
def test_the_terms_of_simt_add_up_to_the_estimate(sizes: tuple[int, int, int]) -> None:
    found = plan(*sizes, dtype="f32", device="vm")
    parts = terms(found.problem, found.config, found.device.target)
    overlapped = parts.pop("memory")
    busy = parts["mainloops"] + parts["prologues and epilogues"]
    assert busy > overlapped
    expected = gemm.ranked(found.problem, found.device.target)[0][0]
    assert sum(parts.values()) == pytest.approx(expected)
    assert parts["correction by measured products"] < 0
    assert "correction by measured products −" in found.explain()


def test_waves_of_simt_are_those_of_its_launch() -> None:
    """With parts of K, and with unused shared memory, which leaves an SM three of four CTAs."""
    text = plan(
        512, 512, 512, dtype="f32", device="vm", config="simt:64x64x16:8x8x2:3/4*6"
    ).explain()
    assert "64 (384 work tiles)" in text and "0.97 of 396 CTAs (3 per SM)" in text


def test_threads_of_simt() -> None:
    found = plan(500, 600, 700, dtype="f32", device="vm", config="simt:128x64x16:16x8:3/4")
    assert "16×8 threads of 8×8, fma.rn.f32" in found.explain()


def test_relayouts_are_reported() -> None:
    assert "relayout 2.0" in plan(300, 200, 101, device="vm").explain()
    assert "relayout 2.0" not in plan(300, 200, 104, device="vm").explain()


def test_operands_of_the_epilogue_that_tma_loads_are_reported() -> None:
    a, b = np.zeros((256, 64), np.float16), np.zeros((64, 128), np.float16)
    given = {"epilogue": lambda acc, r, s: acc * s + r, "r": np.zeros((256, 128), np.float16)}
    given |= {"s": np.zeros((128,), np.float32), "device": "vm"}
    text = plan(a, b, config="tma:128x128x64:2:4", **given).explain()
    assert "epilogue load by TMA: r, 2 epilogue tiles per consumer warpgroup, 32 KB" in text
    assert "epilogue load" not in plan(a, b, config="tma:128x128x64:2:6", **given).explain()


@pytest.mark.parametrize(
    ("config", "adds"),
    [("tma:64x32x64:1:2", True), ("tma:64x32x64:1:2*2", False), ("64x32x32:2x2:3", False)],
)
def test_an_operand_that_is_d_is_reported(config: str, adds: bool) -> None:
    """Only where the kernel adds to it."""
    a, b = np.zeros((256, 64), np.float16), np.zeros((64, 128), np.float16)
    d = np.zeros((256, 128), np.float32)
    given = {"epilogue": lambda acc, e, s: acc * s + e, "s": 2.0, "device": "vm", "out": d}
    text = plan(a, b, config=config, e=d, **given).explain()
    line = "e is D: tensor copies add the epilogue's other terms to D"
    assert (line in text, "→ f32 + D" in text) == (adds, adds)
    assert " is D" not in plan(a, b, config=config, e=d.copy(), **given).explain()
