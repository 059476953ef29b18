"""Kernel tma on the virtual machine: its products, that it writes D and nothing else, and that all
ways to add up in one order give the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import GemmCase, check
from gemm_cases.resident import Resident, registered
from gemm_cases.tma_cases import ASKED, DIGESTS, FEW, HALF, SORTS, digest, layouts
from rows import every_row, slow_but
from tilewright.errors import ConfigError, DtypeError, LayoutError, ProblemError, TargetError
from tilewright.number_conversion import decode, encode
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


# --- every way through the kernel ---------------------------------------------------------------

QUICK = {
    "one warpgroup", "four beside one another, swapped", "pingpong by a counter",
    "the last wave's K, in clusters", "nothing aligned", "alpha is 0",
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(QUICK, ASKED))
def test_d_is_exact_and_nothing_else_is_written(name: str) -> None:
    config, gemm_case = ASKED[name]
    for seed in range(3):
        check(gemm_case, VmDevice(FEW, seed=seed), config, seed)


@pytest.mark.parametrize("name", slow_but(QUICK, ASKED))
def test_the_bits_are_an_h200_s(name: str) -> None:
    kept = json.loads(DIGESTS.read_text(encoding="utf-8"))[name]
    for sort in SORTS:
        assert digest(name, sort, VmDevice(FEW)) == kept[sort], sort


ROUND = "tma:64x32x64:1:2", "tma:64x32x64:1:2~"


@every_row("config", ROUND, parts=3)
@every_row("layout", ["nn", "nt", "tn", "tt"])
def test_layouts(config: str, layout: str) -> None:
    check(GemmCase((70, 50, 130), HALF, layouts(f"{layout}tt", pad=8)), VmDevice(FEW), config)


@every_row("config", ["tma:64x16x64:1:3~", "tma:64x16x64:1:3*3"], parts=3)
@every_row("sizes", [(1, 1, 1), (1, 300, 70), (300, 1, 70), (1, 1, 700)])
def test_vectors(config: str, sizes: tuple[int, int, int]) -> None:
    check(GemmCase(sizes, HALF, beta=1.0), VmDevice(FEW), config)


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 128, 320, 700])
def test_any_depth_against_the_ring(depth: int) -> None:
    for config in ("tma:64x16x64:1:3", "tma:64x16x64:2p:3", "tma:64x16x64:1:3*3"):
        check(GemmCase((130, 40, depth), ("f16", "f16", "f32")), VmDevice(FEW), config)


@every_row("config", [
    "tma:64x16x64:1:2@3", "tma:64x16x64:2p:2", "tma:64x16x64:1:2/2x2", "tma:64x16x64:1:2*2",
    "tma:64x16x64:1:2+2@2", "tma:64x16x64:1:2~", "tma:64x16x64:1:2d", "tma:64x16x64:2p:2d",
], parts=17)  # fmt: skip
@every_row("tiles", [(1, 1), (1, 9), (9, 1), (5, 7)])
def test_each_tile_is_done_once(tiles: tuple[int, int], config: str) -> None:
    """D = 2 · D in place, without K: what is done twice would be four times itself."""
    m, n = tiles[0] * 64, tiles[1] * 16
    numbers = np.arange(m * n, dtype=np.float32).reshape(m, n)
    on = VmDevice(FEW)
    d, a, b = (Resident.of(x, on) for x in (numbers, np.ones((m, 0), "f2"), np.ones((n, 0), "f2")))
    tilewright.matmul(a, b.T, c=d, beta=2.0, out=d, device=on, config=config)
    assert np.array_equal(d.numpy(), 2 * numbers)


@every_row("config", [
    "tma:64x16x64:1:2/1x2", "tma:64x16x64:1:2/2x1", "tma:64x16x64:1:2/1x2~",
    "tma:64x16x64:1:2/2x1~", "tma:64x16x64:1:2/2x2~",
], parts=7)  # fmt: skip
@every_row("tiles", [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_a_clusters_tile_may_lie_beyond_whole_tiles(tiles: tuple[int, int], config: str) -> None:
    m, n = (64, 16)[:: -1 if config.endswith("~") else 1]
    sizes = tiles[0] * m, tiles[1] * n, 128
    check(GemmCase(sizes, HALF, layouts("tntt")), VmDevice(FEW), config)


@every_row("n", [5, 61, 62, 66], parts=23)
@every_row("pad", [0, 2, 3, 6])
@every_row("config", ["tma:64x64x64:1:2*2", "tma:64x64x64:1:2*2~", "tma:64x64x64:2p:2+2@2"])
def test_of_a_cut_k_no_neighbour_beyond_a_lines_end_is_written(
    n: int, pad: int, config: str
) -> None:
    """The second kernel stores four at once, where lines' ends allow."""
    gemm_case = GemmCase((65, n, 200), HALF, layouts("tntt", pad=pad), beta=float(pad == 2))
    check(gemm_case, VmDevice(FEW), config)


# --- lines that lie in one another --------------------------------------------------------------


def test_lines_may_overlap() -> None:
    """A row for all, and windows: each line begins 8 elements after the one before."""
    on, rng = VmDevice(FEW), np.random.default_rng(0)
    x, b = (rng.integers(-3, 4, s).astype(np.float16) for s in (1000, (64, 48)))
    there, b_there = Resident.of(x, on), Resident.of(b, on)
    for step in (0, 8):
        lines = np.lib.stride_tricks.as_strided(x, (100, 64), (2 * step, 2))
        a = there.cut((100, 64), (step, 1))
        d = tilewright.matmul(a, b_there, out_dtype="f32", device=on, config="tma:64x64x64:1:2")
        assert np.array_equal(d.numpy(), lines.astype(np.float32) @ b.astype(np.float32))


def test_stacks_may_share_their_matrices() -> None:
    on, rng = VmDevice(FEW), np.random.default_rng(0)
    x, b = (rng.integers(-3, 4, s).astype(np.float16) for s in (4000, (3, 64, 48)))
    there, b_there = Resident.of(x, on), Resident.of(b, on)
    for apart in (0, 64, -64):  # one for all, windows, backwards
        steps = (apart, 64, 1)
        at = 128 if apart < 0 else 0
        stack = np.lib.stride_tricks.as_strided(x[at:], (3, 40, 64), [2 * s for s in steps])
        a = there.cut((3, 40, 64), steps, at)
        d = tilewright.matmul(a, b_there, out_dtype="f32", device=on, config="tma:64x64x64:1:2")
        assert np.array_equal(d.numpy(), stack.astype(np.float32) @ b.astype(np.float32))


# --- the same bits ------------------------------------------------------------------------------


def normal(*shape: int, dtype: Any = np.float16, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def product(a: Array, b: Array, config: str, **options: Any) -> Array:
    options = {"out_dtype": "f32", "device": VmDevice(FEW), "config": config} | options
    return tilewright.matmul(a, b, **options)


SAME = (
    "16x64x64:1x2:6", "tma:64x32x64:1:2", "tma:64x32x128:1:2", "tma:128x64x64:2:3",
    "tma:64x64x64:2p:3", "tma:64x64x64:1:2/2x1", "tma:64x64x64:1:2/1x2", "tma:64x32x64:1:3~",
    "tma:64x64x64:1:2d",
)  # fmt: skip


@pytest.mark.parametrize(("dtype", "configs"), [
    (np.float16, SAME[::3]), pytest.param(np.float16, SAME, marks=pytest.mark.slow),
    pytest.param(ml_dtypes.bfloat16, SAME, marks=pytest.mark.slow),
])  # fmt: skip
def test_one_order_of_k_gives_the_same_bits(dtype: Any, configs: tuple[str, ...]) -> None:
    """Whatever the tile, the stages, the cluster, the schedule, and mma.sync or wgmma."""
    a, b = normal(140, 300, dtype=dtype), normal(72, 300, dtype=dtype).T
    made = {product(a, b, config).tobytes() for config in configs}
    assert len(made) == 1


@every_row(
    ("dtype", "config"),
    [
        (np.float16, "tma:64x64x64:2p:3d"), (np.float16, "tma:64x64x64:1:2/2x2"),
        (np.float16, "tma:64x64x64:1:3+2"), (ml_dtypes.float8_e4m3fn, "tma:128x64x128:2:3"),
        (np.float16, "tma:64x64x64:2p:3"), (ml_dtypes.float8_e4m3fn, "tma:64x160x128:1:2"),
    ],
    parts=3,
)  # fmt: skip
def test_no_order_of_warps_and_copies_changes_a_bit(dtype: Any, config: str) -> None:
    a, b = normal(140, 600, dtype=dtype), normal(72, 600, dtype=dtype).T
    made = {product(a, b, config, device=VmDevice(FEW, seed=s)).tobytes() for s in range(12)}
    assert len(made) == 1


def cut(a: Array, b: Array, places: list[int], of: Any) -> Array:
    """The products of parts of K, added up in order."""
    parts = [of(a[:, i:j], b[i:j]) for i, j in pairwise(places)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@every_row("way", ["64x32x64:1:2*{}", "64x40x64:1:2*{}~", "64x32x64:2p:2*{}"], parts=5)
@every_row("split", [3, 2, 5])
def test_a_cut_k_is_the_sum_of_its_parts_in_order(way: str, split: int) -> None:
    a, b = normal(100, 600), normal(600, 40)
    steps = -(-600 // 64)
    places = [min(64 * (steps * i // split), 600) for i in range(split + 1)]
    want = cut(a, b, places, partial(product, config=SAME[1]))
    assert product(a, b, f"tma:{way.format(split)}").tobytes() == want.tobytes()


# sums of stage after stage, of halves of the columns (one pair not equal), of blocks of rows
PROMOTED = (
    "tma:64x40x128:1:2", "tma:128x64x128:2:2~", "tma:64x160x128:1:2", "tma:64x168x128:1:3",
    "tma:256x96x128:2:2", "tma:192x96x128:3:2", "tma:64x64x128:2p:3", "tma:64x160x128:1:2*2",
)  # fmt: skip


@pytest.mark.parametrize("depth", slow_but([129, 500], [1, 128, 129, 300, 500, 640]))
@pytest.mark.parametrize("configs", [
    PROMOTED[1:-1:3], pytest.param(PROMOTED[:-1], marks=pytest.mark.slow),
])  # fmt: skip
def test_bytes_are_added_up_in_f32_every_128_of_k(depth: int, configs: tuple[str, ...]) -> None:
    t = ml_dtypes.float8_e4m3fn
    a, b = normal(140, depth, dtype=t), normal(depth, 200, dtype=t)
    fast = partial(product, config="tma:64x40x128:1:2", fast_accum=True)
    places = [*range(0, depth, 128), depth]
    want = cut(a, b, places, fast).tobytes()
    assert (want == fast(a, b).tobytes()) == (depth <= 128)
    for config in configs:
        assert product(a, b, config).tobytes() == want, config
    if depth > 256:
        half = places[(len(places) - 1) // 2]
        parts = [cut(a[:, i:j], b[i:j], [*range(0, j - i, 128), j - i], fast)
                 for i, j in ((0, half), (half, depth))]  # fmt: skip
        assert product(a, b, PROMOTED[-1]).tobytes() == (parts[0] + parts[1]).tobytes()


def test_tf32_is_the_product_of_rounded_numbers() -> None:
    a, b = normal(70, 100, dtype=np.float32), normal(100, 40, dtype=np.float32)
    tf32 = partial(product, config="tma:64x40x32:1:2", precision="tf32")
    rounded = [decode("tf32", encode("tf32", x)).astype(np.float32) for x in (a, b)]
    assert tf32(a, b).tobytes() == tf32(*rounded).tobytes()


@every_row("config", ["tma:64x48x64:1:2*2", "tma:64x48x64:1:2"], parts=2)
def test_a_stack_is_its_products(config: str) -> None:
    a, b = normal(3, 70, 100), normal(3, 100, 40)
    stack = product(a, b, config)
    each = [product(x, y, config) for x, y in zip(a, b, strict=True)]
    assert stack.tobytes() == np.stack(each).tobytes()


# --- numbers that are none ----------------------------------------------------------------------


@every_row("config", ["tma:64x48x64:1:2*2", "tma:64x48x64:1:2~"])
def test_infinities_and_nans_stay_in_their_rows(config: str) -> None:
    a, b = np.ones((70, 200), np.float16), np.ones((200, 40), np.float16)
    a[3, 150], a[5, 0], a[6, :2] = np.nan, np.inf, (np.inf, -np.inf)
    d = product(a, b, config)
    assert np.isnan(d[[3, 6]]).all() and (d[5] == np.inf).all()
    assert (np.delete(d, [3, 5, 6], 0) == 200).all()


@every_row("config", ["tma:64x48x64:1:2*2", "tma:64x48x64:1:2", "tma:64x48x64:2p:2"], parts=3)
def test_what_is_not_read_need_not_be_there(config: str) -> None:
    """With α = 0 nobody brings A and B to the device; an empty array may be at address 0."""
    on, c = VmDevice(FEW), normal(70, 40, dtype=np.float32)
    a, b = np.full((70, 100), np.nan, np.float16), np.full((100, 40), np.nan, np.float16)
    assert np.array_equal(product(a, b, config, c=c, alpha=0.0, beta=1.0), c)
    none = [Resident(Resident.of(x, on).memory._replace(address=0), on) for x in (a[:, :0], b[:0])]
    d = product(*none, config, c=Resident.of(c, on), beta=-1.0, device=on)
    assert np.array_equal(d.numpy(), -c)


# --- misuse -------------------------------------------------------------------------------------

M64, BYTES = np.ones((64, 64), np.float16), np.ones((64, 64), np.int8)
EIGHT = "tma:64x64x128:1:2"
MISUSE: dict[str, tuple[Any, type[Exception], str]] = {
    "stages": (lambda: product(M64, M64, "tma:128x256x64:2:9"), ConfigError, "shared memory"),
    "a cluster": (lambda: product(M64, M64, "tma:128x256x64:2:2/16x1"), ConfigError, "16 CTAs"),
    "an A100": (
        lambda: product(M64, M64, EIGHT, device="vm:A100"), TargetError, "tma needs sm_90a",
    ),
    "multistage of s8": (
        lambda: product(BYTES, BYTES, "32x32x32:1x1:2", out_dtype="s32"), ConfigError,
        "tile K must be at least 64 for s8",
    ),
    "alpha of s8": (
        lambda: product(BYTES, BYTES, EIGHT, out_dtype="s32", alpha=2), ProblemError,
        "alpha must be the number 0 or 1 for an s32 result, got 2",
    ),
    "alpha of s8 with nothing to compute": (
        lambda: product(BYTES[:0], BYTES, EIGHT, out_dtype="s32", alpha=2), ProblemError,
        "alpha must be the number 0 or 1",
    ),
    "beta of s8": (
        lambda: product(BYTES, BYTES, EIGHT, out_dtype="s32", c=np.ones((64, 64), np.int32),
                        beta=0.5),
        ProblemError, "beta must be the number 0 or 1",
    ),
    "alpha of s8 on the device": (
        lambda: product(*(Resident.of(x) for x in (BYTES, BYTES)), EIGHT, out_dtype="s32",
                        alpha=Resident.of(np.ones(1, np.float32)), device=None),
        ProblemError, "got one on the GPU",
    ),
    "types": (
        lambda: product(M64.astype(ml_dtypes.float8_e5m2), BYTES, EIGHT), DtypeError,
        "b must be e4m3 or e5m2 if a is e5m2, got s8",
    ),
    "precision": (
        lambda: product(M64, M64, EIGHT, precision=[]), DtypeError, r"precision must .* got \[\]",
    ),
    "a batch": (lambda: tilewright.plan(8, 8, 8, batch=1.5), ProblemError, "batch .* got 1.5"),
    "fewer than none": (lambda: tilewright.plan(8, 8, 8, batch=-1), ProblemError, "got -1"),
    "a size": (lambda: tilewright.plan(2**31, 8, 8, dtype="s8"), ProblemError, "M must be"),
    "lines too far apart": (
        lambda: product(Resident.of(M64).cut((2, 64), (1 << 39, 1)), Resident.of(M64),
                        "tma:64x64x64:1:2", device=None),
        LayoutError, "stride 1 must be a multiple of 16 bytes below 2.40",
    ),
    "matrices too far apart": (
        lambda: product(Resident.of(M64).cut((2, 32, 64), (1 << 39, 64, 1)),
                        Resident.of(M64).cut((2, 64, 32), (2048, 32, 1)),
                        "tma:64x64x64:1:2", device=None),
        LayoutError, "stride 2 must be a multiple of 16 bytes below 2.40",
    ),
}  # fmt: skip


@every_row(("call", "error", "words"), MISUSE.values(), ids=MISUSE)
def test_misuse_is_a_typed_error(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_fast_accumulation_is_of_8_bit_floats_alone() -> None:
    """For others the word changes nothing, and no kernel."""
    plans = [tilewright.plan(64, 64, 64, device="vm", fast_accum=fast) for fast in (False, True)]
    assert plans[0] == plans[1] and plans[0].traced is plans[1].traced
    plans = [
        tilewright.plan(64, 64, 64, dtype="e4m3", device="vm", fast_accum=fast)
        for fast in (False, True)
    ]
    assert plans[0].problem.promoted and not plans[1].problem.promoted
