"""Configurations of kernel tma: notation, checks, launch shape, workspace, which is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rows import every_row
from tilewright.errors import ConfigError, TargetError
from tilewright.gemm import (
    Config,
    Problem,
    TmaConfig,
    build,
    check,
    choose,
    launch_shape,
    parse,
    ranked,
    relayout_problem,
    splitk_reduction,
    workspace,
    workspace_bytes,
)
from tilewright.target import device_spec

H200 = device_spec("H200")
PROBLEM = Problem(4096, 4096, 4096, "bf16", "bf16", "bf16")


@st.composite
def configs(draw: Any) -> TmaConfig:
    consumers, pingpong = draw(st.sampled_from([(1, False), (2, False), (3, False), (2, True)]))
    rows = 64 * draw(st.integers(1, 2)) * (1 if pingpong else consumers)
    if draw(st.booleans()):  # sliced-K
        consumers, rows, pingpong = draw(st.integers(1, 4)), 64, False
    tile = rows, 8 * draw(st.integers(1, 32)), draw(st.sampled_from([32, 64, 128]))
    in_cluster = tile[1] % 16 == 0 and draw(st.integers(0, 7)) == 7
    cluster = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (4, 2)]))
    split = draw(st.sampled_from([1, 2]) | st.integers(1, 64))
    if in_cluster:
        cluster, split = (1, 1), 2
    tail = split > 1 and not in_cluster and draw(st.booleans())
    more = draw(st.integers(2, 32)), cluster, pingpong, split, tail, draw(st.integers(1, 99))
    dynamic = cluster == (1, 1) and split == 1 and draw(st.booleans())
    whole = split > 1 or dynamic
    stream_k = 0 if whole else draw(st.sampled_from([0, 0, 2, 3, 12]))
    return TmaConfig(tile, consumers, *more, draw(st.booleans()), dynamic, stream_k, in_cluster)


@given(configs())
def test_notation_round_trips(config: TmaConfig) -> None:
    assert parse(str(config)) == config


def test_no_part_of_the_notation_belongs_to_no_split() -> None:
    """The text of a configuration that is refused is a configuration, too."""
    with pytest.raises(ConfigError, match="cluster must be by 2, got 1") as found:
        TmaConfig((64, 16, 128), 2, 4, in_cluster=True)
    assert parse(str(found.value).split(": split")[0]) == TmaConfig((64, 16, 128), 2, 4)


def test_defaults_of_the_notation() -> None:
    plain = TmaConfig((128, 256, 64), 2, 4, (1, 1), False, 1, False, 8, False)
    assert parse("tma:128x256x64:2:4") == plain
    assert parse("tma:128x256x64:2p:4") == replace(plain, pingpong=True)
    assert parse("tma:128x256x64:2:4/2x1") == replace(plain, cluster=(2, 1))
    assert parse("tma:128x256x64:2:4*3") == replace(plain, split=3)
    assert parse("tma:128x256x64:2:4*2c") == replace(plain, split=2, in_cluster=True)
    assert parse("tma:128x256x64:2:4+3") == replace(plain, split=3, tail=True)
    assert parse("tma:128x256x64:2:4d") == replace(plain, dynamic=True)
    assert parse("tma:128x256x64:2:4+sk3") == replace(plain, stream_k=3)
    assert parse("tma:128x256x64:2:4@1~") == replace(plain, group=1, swap=True)


@every_row(
    ("text", "says"),
    [
        ("tma", "such as tma:128x256x64:2:4/2x1, got"),
        ("tma:128x256x64:2:4~@8", "expected a configuration"),
        ("tma:128x256x64:0:4", "consumer warpgroups must be 1 to 3"),
        ("tma:256x64x64:4:4", "consumer warpgroups must be 1 to 3"),
        ("tma:64x64x64:1p:4", "and 2 for pingpong"),
        ("tma:192x64x64:2:4", "tile_m must be a multiple of 128, got 192"),
        ("tma:32x64x64:1:4", "tile_m must be a multiple of 64, got 32"),
        ("tma:64x4x64:1:4", "tile_n must be a multiple of 8 up to 256, got 4"),
        ("tma:64x264x64:1:4", "tile_n must be a multiple of 8 up to 256, got 264"),
        ("tma:64x60x64:1:4", "tile_n must be a multiple of 8 up to 256, got 60"),
        ("tma:64x64x96:1:4", "tile_k must be a power of two"),
        ("tma:64x64x64:1:4d*2", "dynamic tile scheduler excludes split-K and clusters"),
        ("tma:64x64x64:1:4d/2x1", "dynamic tile scheduler excludes split-K and clusters"),
        ("tma:64x64x64:1:1", "stages 2 to 32"),
        ("tma:64x64x64:1:33", "stages 2 to 32"),
        (f"tma:{'9' * 5000}x64x64:1:4", "expected a configuration"),
        ("tma:\u0666\u0664x64x64:1:4", "expected a configuration"),
        ("tma:64x64x64:1:4@0", "group must be from 1 to"),
        ("tma:64x64x64:1:4@2147483648", "the rasterization group must be"),
        ("tma:64x64x64:1:4/3x1", r"cluster sizes must be powers of two, got \(3, 1\)"),
        ("tma:64x64x64:1:4/1x0", r"cluster sizes must be powers of two, got \(1, 0\)"),
        ("tma:64x64x64:1:4*0", "split-K must be 1 to 64, got 0"),
        ("tma:64x64x64:1:4*65", "split-K must be 1 to 64, got 65"),
        ("tma:64x64x64:1:4+1", "split-K of the tail wave must be at least 2"),
    ],
)
def test_invalid_configurations(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(text)


E4M3 = {"a": "e4m3", "b": "e4m3", "d": "bf16"}
S8 = {"a": "s8", "b": "s8", "d": "s32"}


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("tma:128x256x64:2:5", {}, "needs 279552 bytes of shared memory; H200 has 232448"),
        ("tma:128x256x64:1:2", {}, "accumulators take 256 of 208 registers"),
        ("tma:192x256x64:3:2", {}, "accumulators take 128 of 96 registers"),
        ("tma:128x256x128:2:2", E4M3, "accumulators take 256 of 208 registers"),
        ("tma:128x192x64:1:2", {"with_c": True}, "take 192 of 136 registers per thread for .* C"),
        ("tma:128x192x64:1:2", {"align_d": 8}, "take 192 of 136 registers"),
        ("tma:64x64x64:1:2/4x4", {}, "a cluster has at most 8 CTAs"),
        ("tma:64x64x32:1:2", {}, "tile_k must be at least 64 for bf16"),
        ("tma:64x64x64:1:2", S8, "tile_k must be at least 128 for s8"),
        ("tma:64x64x256:1:2", E4M3, "tile_k must be 128 for e4m3 without fast_accum"),
        ("tma:64x40x128:1:2", S8, "tile_n of integers must be 8, 24 or a multiple of 16, got 40"),
        ("tma:64x40x64:1:2", {"b_major": "n"}, "tile_n must be a multiple of 16, got 40"),
        (
            "tma:64x64x64:1:2/2x1",
            {"b_major": "n"},
            "tile_n, which 2 CTAs share, must be a multiple of 128, got 64",
        ),
        (
            "tma:64x64x64:1:2/1x2",
            {"a_major": "m"},
            "tile_m, which 2 CTAs share, must be a multiple of 128, got 64",
        ),
        (
            "tma:64x24x64:1:2/2x1",
            {},
            "tile_n, which 2 CTAs share, must be a multiple of 16, got 24",
        ),
        ("tma:512x8x64:2:2~", {}, "one TMA copy loads at most 256 rows, got 512"),
        ("tma:64x64x512:1:2", {"a_major": "m"}, "one TMA copy loads at most 256 rows, got 512"),
        ("tma:64x24x64:1:2", {}, "the epilogue stores 32-byte rows of bf16"),
    ],
)
def test_configurations_that_do_not_fit(text: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(replace(PROBLEM, **more), parse(text), H200)


@pytest.mark.parametrize("name", ["A100", "RTX 4090", "B200"])
def test_tma_requires_sm_90a(name: str) -> None:
    with pytest.raises(TargetError, match=f"tma needs sm_90a; {name} is"):
        check(PROBLEM, parse("tma:64x64x64:1:2"), device_spec(name))


def test_shared_bytes_are_what_the_kernel_declares() -> None:
    """Of configurations that just fit: the barriers take less than a KB."""
    for text, more in {
        "tma:128x256x64:2:4": {}, "tma:128x192x128:2p:2": {}, "tma:192x128x64:3:4": {},
        "tma:128x128x128:2:6": E4M3, "tma:64x256x64:1:4+3": {},
    }.items():  # fmt: skip
        problem, config = replace(PROBLEM, **more), parse(text)
        check(problem, config, H200)
        need = config.shared_bytes(problem)  # type: ignore[arg-type]
        assert need - 1024 < build(problem, config, H200).dynamic_shared <= need <= 232448


# --- relayout -----------------------------------------------------------------


def test_relayout() -> None:
    """Unaligned operands, and 8- and 32-bit operands that are not K-major."""
    config = parse("tma:64x64x64:1:2")
    odd = replace(PROBLEM, a_major="m", b_major="n", align_a=2, align_b=8)
    assert relayout_problem(odd, config) == replace(odd, align_a=16, align_b=16)
    for more in (E4M3, S8, {"a": "tf32", "b": "tf32", "d": "f32"}):
        taken = relayout_problem(replace(PROBLEM, a_major="m", b_major="n", **more), config)
        assert (taken.a_major, taken.b_major) == ("k", "k")
    multistage = Config((64, 64, 64), (2, 2), 3)
    assert relayout_problem(odd, multistage) == odd


@given(st.integers(0, 99), st.sampled_from(["f16", "f32"]), st.sampled_from([16, 8, 4]))
def test_d_is_stored_by_tma_where_its_rows_are_multiples_of_16_bytes(
    n: int, d: str, align: int
) -> None:
    problem = Problem(64, n, 64, d=d, align_d=align)
    taken = relayout_problem(problem, parse("tma:64x64x64:1:2")).align_d
    assert (taken == 16) == (align == 16 and n * problem.output.bits % 128 == 0)
    assert align % taken == 0 and n * problem.output.bits // 8 % taken == 0


# --- the launch ---------------------------------------------------------------------------------


@given(configs(), st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 4))
def test_the_grid_is_the_number_of_resident_work_tiles(
    config: TmaConfig, m: int, n: int, batch: int
) -> None:
    made = launch_shape(Problem(m, n, 8, batch=batch), config, H200)
    (bm, bn, _), (cm, cn) = config.tile, config.cluster
    down, across = (n, m) if config.swap else (m, n)
    tiles = len(range(0, down, bm * cm)) * len(range(0, across, bn * cn)) * batch
    ctas, resident = config.ctas, config.resident_clusters(H200)
    if config.in_cluster:  # a cluster for each tile
        ctas, resident = 2, 66
    elif config.split > 1:
        split = tiles % resident if config.tail else tiles
        tiles += split * (config.split - 1)
    if config.stream_k and tiles % resident:  # all CTAs share k-blocks
        tiles = max(tiles, resident)
    if made.cluster and ctas == 1:  # pairs of CTAs that share rows, in one wave
        assert (
            made.cluster == (2, 1, 1)
            and config.split == 1
            and not config.dynamic
            and not config.stream_k
        )
        assert made.grid[0] == tiles + tiles % 2 <= 132
    else:
        assert made.grid[0] == min(tiles, resident) * ctas <= 132
        assert made.cluster == ((ctas, 1, 1) if ctas > 1 else None)
    assert made.block == (config.threads, 1, 1)


@pytest.mark.parametrize(
    ("text", "sizes", "cluster", "programmatic"),
    [
        ("tma:64x96x64:1:10", (256, 3072, 8192), None, False),
        ("tma:64x96x64:1:10", (256, 3072, 1024), (2, 1, 1), True),
        ("tma:128x80x64:2:8", (256, 5120, 4096), (2, 1, 1), True),
        ("tma:64x96x64:1:10/2x1", (256, 3072, 8192), (2, 1, 1), True),
        ("tma:64x16x128:1:11~", (16, 8192, 8192), None, True),
        ("tma:128x128x64:2:6", (4096, 4096, 8192), None, True),
        ("tma:64x80x64:1:12", (888, 560, 4784), None, False),
        ("tma:128x128x64:2:6*2", (256, 4096, 8192), None, True),
    ],
)
def test_ctas_that_share_rows_start_together_or_in_their_order(
    text: str, sizes: Any, cluster: Any, programmatic: bool
) -> None:
    made = launch_shape(Problem(*sizes, "bf16", "bf16", "bf16"), parse(text), H200)
    assert (made.cluster, made.programmatic) == (cluster, programmatic)


@given(configs(), st.integers(1, 3000), st.integers(1, 3000))
@example(parse("tma:64x16x32:1:2*2c"), 1, 1)
@example(parse("tma:64x16x32:1:2+2"), 3000, 3000)
def test_the_workspace_holds_every_partial_accumulator(config: TmaConfig, m: int, n: int) -> None:
    problem = Problem(m, n, 8)
    tiles = config.cluster_tiles(problem)
    tail = tiles % config.resident_clusters(H200)
    by_workspace = config.split > 1 and not config.in_cluster
    split_tiles = 0 if not by_workspace else tail if config.tail else tiles
    assert config.unsplit_tiles(problem, H200) + split_tiles == tiles
    area = config.ctas * config.tile[0] * config.tile[1]
    partial = split_tiles * config.split * area * 4
    assert workspace.split_k_bytes(problem, config, H200) == partial
    if not config.stream_k:  # whose groups exchange partial accumulators there
        assert workspace_bytes(problem, config, H200) == partial + 16 * config.dynamic


@given(configs(), st.integers(1, 3000), st.integers(1, 3000))
def test_every_sm_has_as_many_ctas_of_the_splitk_reduction(
    config: TmaConfig, m: int, n: int
) -> None:
    problem, limits = Problem(m, n, 8), H200.limits
    if not workspace.split_k_bytes(problem, config, H200):
        return
    made = splitk_reduction.launch_shape(problem, config, H200)
    together = -(-made.grid[0] // H200.sms)
    taken = made.unused + limits.shared_reserved
    if together < 4:  # so many find room on one, and no more
        assert made.unused <= limits.shared_per_block
        assert together * taken <= limits.shared_per_sm < (together + 1) * taken
    else:
        assert made.unused == 0


# --- the choice ----------------------------------------------------------------------------------

SIZES = {
    "huge": (16384, 16384, 16384), "one row": (1, 8192, 8192), "one column": (8192, 1, 8192),
    "tiny": (16, 16, 16), "no K": (128, 128, 0), "nothing": (0, 0, 0),
    "long sum": (64, 64, 1 << 20), "odd": (333, 555, 777),
}  # fmt: skip
TYPES = [
    ("f16", "f16", "f32"), ("bf16", "bf16", "bf16"), ("tf32", "tf32", "f32"),
    ("e4m3", "e5m2", "bf16"), ("e5m2", "e5m2", "f32"), ("s8", "u8", "s32"),
]  # fmt: skip


@every_row("types", TYPES, ids="-".join)
@every_row("sizes", SIZES.values(), ids=SIZES)
def test_the_chosen_one_fits(sizes: tuple[int, int, int], types: tuple[str, str, str]) -> None:
    for more in ({}, {"a_major": "m", "b_major": "n"}, {"with_c": True, "batch": 3}, {
        "align_a": 4, "align_b": 4, "align_c": 4, "align_d": 4,
    }):  # fmt: skip
        problem = Problem(*sizes, *types, **more)  # type: ignore[arg-type]
        check(problem, choose(problem, H200), H200)


def test_tma_is_chosen_for_large_problems() -> None:
    for types in TYPES:
        assert isinstance(choose(Problem(4096, 4096, 4096, *types), H200), TmaConfig)


def test_the_best_is_first() -> None:
    times = [seconds for seconds, _ in ranked(PROBLEM, H200)]
    assert times == sorted(times) and times[0] > 0
    assert choose(PROBLEM, H200) == ranked(PROBLEM, H200)[0][1]


def clusters_of_four_and_more(problem: Problem) -> list[TmaConfig]:
    found = [c for _, c in ranked(problem, H200) if isinstance(c, TmaConfig) and c.ctas > 2]
    return [c for c in found if c.cluster_tiles(problem) > c.resident_clusters(H200)]


def test_clusters_of_four_in_several_waves_where_rows_straddle_lines() -> None:
    """Rows of 128 bytes that straddle two L2 lines are two requests, so multicast is faster."""
    for size in (100, 1000):
        aligned = Problem(size, 3000, 3072, *("bf16",) * 3)
        assert not clusters_of_four_and_more(aligned)
        more = clusters_of_four_and_more(aligned.with_sizes(size, 3000, 3000))
        assert {c.ctas for c in more} == {4}
    for sizes in ((300, 3000, 3000), (1008, 4712, 2504)):
        assert choose(Problem(*sizes, *("bf16",) * 3), H200).ctas >= 4


@pytest.mark.parametrize(("m", "width"), [(72, 72), (208, 104)], ids=["one", "two"])
def test_tile_sizes_are_fitted_to_the_problem(m: int, width: int) -> None:
    configs = [c for _, c in ranked(Problem(m, 8192, 1024), H200) if isinstance(c, TmaConfig)]
    assert width in {c.tile[1] for c in configs if c.swap}
