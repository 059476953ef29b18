"""Kernel multistage with split-K, and with one stage: exact results, no race, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import GemmCase, check
from gemm_cases.kernels import make_problem
from gemm_cases.resident import registered
from gemm_cases.tma_cases import layouts
from rows import every_row
from tilewright import gemm, ptx
from tilewright.errors import ConfigError
from tilewright.gemm import Config, LaunchShape, MatrixStrides, Problem, parse, splitk_reduction
from tilewright.gemm.cost_model import estimate
from tilewright.run import VmDevice
from tilewright.target import device_spec
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

A100 = device_spec("A100")
HALF, F32, S8 = ("f16",) * 3, ("f16", "f16", "f32"), ("s8", "u8", "s32")


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


CASES: dict[str, tuple[str, GemmCase]] = {
    "in two": ("32x32x32:1x2:3*2", GemmCase((70, 45, 230), HALF, layouts("tntt"), 0.5, 2.0)),
    "in three, D not aligned": (
        "32x32x32:1x2:2*3", GemmCase((70, 45, 230), HALF, layouts("nttt", pad=1, before=3), beta=1),
    ),
    "in more parts than k-blocks": ("32x64x32:1x2:2*7", GemmCase((40, 70, 90), F32)),
    "more than are loaded at once": ("16x16x32:1x1:2*19", GemmCase((20, 40, 700), F32)),
    "D column-major": ("32x64x32:2x2:2*2", GemmCase((40, 70, 130), F32, layouts("tnnn"), -2.0, 1)),
    "a stack": ("32x32x32:1x1:2*2", GemmCase((40, 33, 70), HALF, layouts("tntt", gap=5), batch=3)),
    "integers": ("64x32x64:2x1:2*3", GemmCase((70, 45, 300), S8, layouts("tttt"), beta=1.0)),
    "tf32": ("32x32x16:1x1:3*2", GemmCase((40, 45, 100), ("f32",) * 3, layouts("tntt"))),
    "8-bit floats": ("32x32x128:1x1:2*2", GemmCase((40, 45, 400), ("e4m3", "e5m2", "bf16"))),
    "no K": ("32x32x32:1x1:2*2", GemmCase((40, 33, 0), HALF, beta=-2.0)),
    "alpha is 0": ("32x32x32:1x1:2*2", GemmCase((40, 33, 80), HALF, alpha=0.0, beta=1.0)),
    "one stage": (
        "32x32x32:1x1:1", GemmCase((70, 45, 230), HALF, layouts("nttt", pad=1), beta=1.0),
    ),
    "one stage, persistent": ("32x32x64:1x1:1p", GemmCase((128, 96, 200), S8)),
    "one stage, split": ("32x32x128:1x1:1*2", GemmCase((40, 45, 400), ("e5m2", "e4m3", "f32"))),
    "one stage of simt": (
        "simt:32x32x8:8x8:1", GemmCase((40, 45, 50), ("f32",) * 3, precision="ieee"),
    ),
}  # fmt: skip


@every_row(("config", "gemm_case"), CASES.values(), ids=CASES, parts=5)
def test_nothing_beside_d_is_written(config: str, gemm_case: GemmCase) -> None:
    """D is exact, in memory whose every byte is known; the partial accumulators too fit theirs."""
    check(gemm_case, VmDevice(replace(device_spec("RTX 4090"), name="few", sms=3)), config)


def test_the_heuristic_splits_a_long_k_where_there_is_no_wgmma() -> None:
    problem = Problem(16, 512, 16384)
    chosen = gemm.choose(problem, A100)
    assert isinstance(chosen, Config) and chosen.split > 1
    once = replace(chosen, split=1)
    assert estimate(problem, chosen, A100) < estimate(problem, once, A100)
    large = gemm.choose(Problem(8192, 8192, 8192), A100)
    assert isinstance(large, Config) and large.split == 1


def test_the_same_bits_as_parts_added_in_order() -> None:
    """f32 accumulators of two halves of K, added; then the one rounding to D's type."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s, np.float32).astype(np.float16) for s in ((32, 128), (128, 32)))
    whole, half = "32x32x32:1x1:2*2", "32x32x32:1x1:2"
    options: dict[str, Any] = {"device": "vm:A100", "out_dtype": "f32"}
    halves = slice(64), slice(64, 128)
    parts = [tilewright.matmul(a[:, k], b[k], config=half, **options) for k in halves]
    want = (parts[0] + parts[1]).astype(np.float16)
    got = tilewright.matmul(a, b, config=whole, device="vm:A100")
    assert np.array_equal(got.view(np.uint16), want.view(np.uint16))


def test_two_launches_and_their_workspace() -> None:
    problem = Problem(100, 200, 4096, with_c=True, align_d=2, align_c=4, batch=3)
    config = parse("64x64x32:2x2:3*4")
    strides = {x: MatrixStrides(4096, 1 << 20) for x in "abcd"}
    first, second = gemm.launches(problem, config, strides, A100)
    tiles = 2 * 4 * 3
    assert first.shape == LaunchShape((tiles, 4, 1), (128, 1, 1))
    assert second.shape.grid == (tiles * 64 * 64 // 1024, 1, 1)
    assert not second.shape.programmatic
    assert gemm.workspace_bytes(problem, config, A100) == tiles * 4 * 64 * 64 * 4
    other = replace(problem, with_c=False, align_d=16, align_c=16)
    assert str(gemm.kernels(other, config, A100)[0]) == str(first.kernel)
    for launch in (first, second):
        traced = launch.kernel.trace()
        assert A100.target.runs(traced.module.target[0])
        ptx.check(ptx.parse(traced.ptx))


def test_the_reduction_of_tma_waits_for_the_grid_before() -> None:
    texts = [
        splitk_reduction.build(make_problem((64, 64, 64)), parse(text)).ptx
        for text in ("64x64x32:2x2:3*2", "tma:64x64x64:1:3*2")
    ]
    assert ["griddepcontrol.wait" in text for text in texts] == [False, True]


@pytest.mark.parametrize(
    ("text", "problem", "says"),
    [
        ("64x64x32:2x2:3p*2", None, "a persistent kernel excludes split-K"),
        ("64x64x32:2x2:3*65", None, "split-K must be 1 to 64, got 65"),
        ("64x64x16:2x2:3*2:m16n8k4", Problem(8, 8, 8, *("f64",) * 3), "not supported for f64"),
    ],
)
def test_what_split_k_excludes(text: str, problem: Problem | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        gemm.check(problem or Problem(8, 8, 8), parse(text), device_spec("H100"))


@pytest.mark.parametrize("text", ["64x64x32:2x2:1", "64x64x64:2x2:1:m16n8k16"])
def test_one_stage_has_no_race(text: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 200), (64, 200)))
    traced = gemm.build(make_problem((64, 64, 200), d="f32"), parse(text), A100)
    results = set()
    for machine in (Machine(checked=True), *(Machine(seed=s) for s in range(4))):
        machine.load(traced.module)
        d = np.full((64, 64), np.nan, np.float32)
        addresses = [machine.upload(x) for x in (a, b, d, d)]
        args = [*addresses, 64, 64, 200, 200, 200, 64, 64, 1.0, 0.0, 0, 0, 0, 0, 0, 0]
        machine.launch(traced.name, 1, traced.block, args, shared=traced.dynamic_shared)
        results.add(machine.download(addresses[3], like=d).tobytes())
    want = a.astype(np.float32) @ b.astype(np.float32).T
    assert results == {want.tobytes()}


@tilewright.epilogue
def twice(x: Any) -> Any:
    return 2.0 * x


@every_row("config", ["16x64x64:1x2:4*4", "16x64x64:1x2:4"])
@every_row("function", [None, twice], ids=["plain", "epilogue"])
def test_rows_that_end_within_a_vector(config: str, function: Any) -> None:
    """D's columns are some of a wider matrix with aligned rows; nothing beside them is written."""
    rng = np.random.default_rng(45)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((8, 280), (280, 45)))
    wide = np.full((8, 48), 7, np.float16)
    options = {"epilogue": function} if function else {}
    tilewright.matmul(a, b, out=wide[:, :45], config=config, device="vm:A100", **options)
    assert (wide[:, :45] == a.astype(np.float32) @ b * (2 if function else 1)).all()
    assert (wide[:, 45:] == 7).all()
