"""Configurations of kernel multistage: their text, what fits, and which is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows import every_row
from tilewright.errors import ConfigError, TargetError
from tilewright.gemm import (
    TABLE,
    Config,
    LaunchShape,
    Problem,
    SimtConfig,
    TmaConfig,
    check,
    choose,
    launch_shape,
    parse,
    ranked,
)
from tilewright.gemm.cp_async.multistage_config import (
    F64_TABLE,
    MMA_SHAPES,
    accumulator_registers,
)
from tilewright.target import DEVICES, DeviceSpec, device_spec

PROBLEM = Problem(4096, 4096, 4096)


@st.composite
def configs(draw: Any) -> Config:
    def power(low: int, high: int) -> int:
        return int(2 ** draw(st.integers(low, high)))

    wm, wn = power(0, 2), power(0, 3)
    tile = wm * power(4, 7), wn * power(4, 7), power(5, 7)
    number = st.integers(1, 40)
    stages, persistent = draw(st.integers(1, 16)), draw(st.booleans())
    split = 1 if persistent else draw(st.integers(1, 64))
    shape = draw(st.sampled_from([*MMA_SHAPES["f64"], None]))
    return Config(tile, (wm, wn), stages, draw(number), draw(number), persistent, shape, split)


@given(configs())
def test_text_and_back(config: Config) -> None:
    assert Config.parse(str(config)) == config


def test_the_widest_instruction_is_the_default() -> None:
    config = Config.parse("128x128x64:2x2:4")
    shapes = {type_: config.mma_shape(type_)[2] for type_ in ("f16", "tf32", "s8", "f64")}
    assert shapes == {"f16": 16, "tf32": 8, "s8": 32, "f64": 16}
    assert Config.parse("128x128x64:2x2:4:m16n8k16").mma_shape("s8") == (16, 8, 16)


def test_what_the_text_may_leave_out() -> None:
    assert Config.parse("128x64x32:2x1:4") == Config((128, 64, 32), (2, 1), 4, group=8, ctas=1)
    assert Config.parse("128x64x32:2x1:4@3").group == 3
    assert Config.parse("128x64x32:2x1:4/2").ctas == 2
    assert Config.parse("128x64x32:2x1:4*3").split == 3
    assert Config.parse("128x64x32:2x1:4p/2").persistent
    assert Config.parse("128x64x16:2x1:4:m8n8k4").mma == (8, 8, 4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("large", "expected a configuration"),
        ("128x64x32:2x1:4/2@", "expected a configuration"),
        ("8x64x32:1x1:4", "tile M must be a power of two, at least 16, got 8"),
        ("64x96x32:1x1:4", "tile N must be a power of two, at least 16, got 96"),
        ("64x64x8:1x1:4", "tile K must be a power of two, at least 16, got 8"),
        ("64x64x16:1x1:4:m16n8k16", "tile K must be a power of two, at least 32, got 16"),
        ("64x64x32:0x1:4", "64 rows must divide among 0 warps"),
        ("64x64x32:1x8:4", "64 columns must divide among 8 warps"),
        ("64x64x32:3x1:4", "64 rows must divide among 3 warps"),
        ("64x64x32:1x1:0", "stages must be 1 to 16"),
        ("64x64x32:1x1:17", "stages must be 1 to 16"),
        ("1024x1024x32:8x8:2", "at most 1024 threads"),
        ("64x64x32:1x1:2@0", "group must be from 1 to"),
        ("64x64x32:1x1:2@4294967296", "group must be from 1 to 2.31 - 1"),
        ("64x64x32:1x1:2/0", "at least 1 CTA"),
        ("64x64x8:1x1:2:m8n8k4", "tile K must be a power of two, at least 16, got 8"),
        ("64x64x32:1x1:2:m16n8", "expected a configuration"),
        ("64x64x32:1x1:2:m16n8k512", "no supported type has an mma.sync of this shape"),
    ],
)
def test_what_is_no_configuration(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config.parse(text)


def test_a_warp_s_share() -> None:
    config = Config.parse("128x64x32:4x1:3")
    assert (config.threads, config.warp_tile, accumulator_registers(PROBLEM, config)) == (
        128,
        (32, 64),
        64,
    )
    assert config.shared_bytes(16) == 3 * (128 + 64) * 32 * 2


def test_the_staged_result_fits_where_the_ring_is_small() -> None:
    """Each warp stages 16 rows of f32, padded by 8."""
    config = Config.parse("16x256x32:1x1:2")
    assert config.shared_bytes(16) == max(2 * (16 + 256) * 32 * 2, 16 * (256 + 8) * 4)
    config = Config.parse("128x128x32:4x2:2")
    assert config.shared_bytes(16) == max(2 * 256 * 32 * 2, 8 * 16 * (64 + 8) * 4) == 36864


def test_a_persistent_cta_needs_room_for_both() -> None:
    """The next tile's copies are under way while the result is staged."""
    once, often = (Config.parse(f"128x128x32:4x2:2{p}").shared_bytes(16) for p in ("", "p"))
    assert (once, often) == (36864, 2 * 256 * 32 * 2 + 36864)


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("256x128x64:4x2:3", "RTX 4090", "needs 147456 bytes of shared memory; RTX 4090 has 10137"),
        ("128x128x64:2x2:8", "H200", "needs 262144 bytes"),
        ("128x128x32:1x1:2", "H200", "take 512 of 255 registers"),
        ("128x128x32:2x2:2/4", "H200", "take 128 of 128 registers"),
        ("64x64x16:2x2:4", "A100", "tile K must be at least 32 for f16, two instructions of m16n8"),
        ("64x64x32:2x2:4:m16n8k8", "A100", "the mma shape for f16 must be one of m16n8k16"),
    ],
)
def test_what_does_not_fit(text: str, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(PROBLEM, Config.parse(text), device_spec(name))


def test_what_fits_exactly() -> None:
    room = device_spec("H200").limits.shared_per_block
    check(PROBLEM, Config.parse("128x128x64:2x2:7"), device_spec("H200"))
    assert Config.parse("128x128x64:2x2:7").shared_bytes(16) <= room


def test_f64_takes_twice_the_registers_and_is_not_staged() -> None:
    config = Config.parse("128x64x16:4x1:3:m16n8k4")
    assert accumulator_registers(Problem(8, 8, 8, "f64", "f64", "f64"), config) == 128
    assert config.shared_bytes(64) == 3 * (128 + 64) * 16 * 8


# --- which one ----------------------------------------------------------------------------------

SIZES = {
    "huge": (16384, 16384, 16384),
    "large": (8192, 8192, 8192),
    "one row": (1, 8192, 8192),
    "sixteen rows": (16, 4096, 4096),
    "one column": (8192, 1, 8192),
    "tiny": (16, 16, 16),
    "no K": (128, 128, 0),
    "nothing": (0, 0, 0),
    "long sum": (64, 64, 1 << 20),
}


ABLE = {name: gpu for name, gpu in DEVICES.items() if gpu.target.runs("sm_80")}


@every_row("gpu", ABLE.values(), ids=ABLE)
@every_row("sizes", SIZES.values(), ids=SIZES)
def test_the_chosen_one_fits(sizes: tuple[int, int, int], gpu: DeviceSpec) -> None:
    problem = Problem(*sizes)
    check(problem, choose(problem, gpu), gpu)


@every_row("gpu", ABLE.values(), ids=ABLE)
@every_row("sizes", SIZES.values(), ids=SIZES)
def test_f64_s_fits_and_has_the_gpu_s_instruction(
    sizes: tuple[int, int, int], gpu: DeviceSpec
) -> None:
    problem = Problem(*sizes, "f64", "f64", "f64", align_a=8, batch=3)
    chosen = choose(problem, gpu)
    check(problem, chosen, gpu)
    assert isinstance(chosen, Config)
    assert chosen.mma == ((16, 8, 4) if gpu.target.runs("sm_90") else (8, 8, 4))


def test_large_f64_takes_the_large_tile_skinny_a_small_one() -> None:
    h200 = device_spec("H200")
    for sizes in ((2048,) * 3, (4096,) * 3, (8192,) * 3):
        assert choose(Problem(*sizes, "f64", "f64", "f64"), h200) == F64_TABLE[0]
    assert best(Problem(16, 8192, 8192, "f64", "f64", "f64"), h200).tile[0] == 16


@pytest.mark.parametrize("gpu", [g for n, g in DEVICES.items() if n not in ABLE], ids=str)
def test_an_old_device_has_none(gpu: DeviceSpec) -> None:
    for ask in (choose, lambda p, g: check(p, TABLE[-1], g)):
        with pytest.raises(TargetError, match=f"multistage needs sm_80 or later; {gpu.name}"):
            ask(PROBLEM, gpu)


def best(problem: Problem, gpu: DeviceSpec) -> Config:
    """The first of this kernel's, where another kernel's may be before it."""
    return next(c for _, c in ranked(problem, gpu) if isinstance(c, Config))


@pytest.mark.parametrize("name", ["H200", "A100", "RTX 4090"])
def test_the_chosen_one_suits_the_shape(name: str) -> None:
    def tile(key: str) -> tuple[int, int, int]:
        return best(Problem(*SIZES[key]), device_spec(name)).tile

    assert tile("huge")[0] * tile("huge")[1] >= 128 * 128
    assert tile("one row")[0] <= 64 and tile("one column")[1] <= 64
    assert tile("tiny")[0] * tile("tiny")[1] <= 16 * 64


def test_an_h200_wastes_little_of_a_skinny_product() -> None:
    for key, axis in (("one row", 0), ("sixteen rows", 0), ("one column", 1)):
        assert best(Problem(*SIZES[key]), device_spec("H200")).tile[axis] == 16


def test_a_larger_problem_never_takes_a_smaller_tile() -> None:
    chosen = [
        best(Problem(n, n, n), device_spec("H200")).tile for n in (64, 256, 1024, 4096, 16384)
    ]
    areas = [m * n for m, n, _ in chosen]
    assert areas == sorted(areas)


def test_ctas_count_as_far_as_their_shared_memory_goes() -> None:
    config = Config.parse("128x128x64:2x2:3/2")  # 96 KB
    room = {n: config.resident(16, device_spec(n).limits) for n in ("H200", "A100", "RTX 4090")}
    assert room == {"H200": 2, "A100": 1, "RTX 4090": 1}
    assert all(1 <= c.resident(16, g.limits) <= c.ctas for c in TABLE for g in DEVICES.values())


# --- the launch -----------------------------------------------------------------------------------


@given(configs(), st.integers(0, 5000), st.integers(0, 5000))
def test_the_grid_covers_d(config: Config, m: int, n: int) -> None:
    bm, bn, _ = config.tile
    rows, columns = len(range(0, m, bm)), len(range(0, n, bn))
    once = replace(config, persistent=False)
    made = launch_shape(Problem(m, n, 8), once)
    assert made == LaunchShape((rows * columns, config.split, 1), (config.threads, 1, 1))


@given(configs(), st.integers(0, 99), st.integers(0, 99))
def test_persistent_ctas_are_as_many_as_there_is_room_for(config: Config, i: int, j: int) -> None:
    config, h200 = replace(config, persistent=True, split=1), device_spec("H200")
    problem = Problem(i * config.tile[0], j * config.tile[1], 8)
    places = h200.sms * config.resident(16, h200.limits)
    assert launch_shape(problem, config, h200).grid == (min(i * j, places), 1, 1)
    more = problem.with_sizes(problem.m + 1, problem.n, 8)
    assert launch_shape(more, config).grid == ((i + 1) * j, 1, 1)


SIMT, TMA = ((64, 64, 8), (8, 8), 3), ((64, 64, 64), 2, 4, (1, 1))
JOINED = False, 2, False, 8, True, False, 0  # by two, swapped


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        (Config, ("a", (2, 2), 3), "tile of Config must be a tuple of 3 whole numbers, got 'a'"),
        (Config, ((64, 64, 32), 4, 3), "warps of Config must be a tuple of 2 whole numbers, got 4"),
        (
            SimtConfig,
            ((64, 64, 8), (8, 8), 3.0),
            r"stages of SimtConfig must be a whole number, got 3\.0",
        ),
        (TmaConfig, ((64, 64), 1), r"tile of TmaConfig must be a tuple of 3 .* got \(64, 64\)"),
        (TmaConfig, ((64.0, 64, 64), 1), r"tile of TmaConfig must be .* got \(64\.0, 64, 64\)"),
        (TmaConfig, ((64, 64, 64), 1, 4, 2), "cluster of TmaConfig must be a tuple of 2 .* got 2"),
        (Config, ((64, 64, 32), (2, 2), 3, 8, 1, "p"), "persistent of Config must be True or F"),
        (SimtConfig, (*SIMT, 8, 1, 2, 1, 2), "in_cluster of SimtConfig must be True or .* got 2"),
        (TmaConfig, (*TMA, 2), "pingpong of TmaConfig must be True or False, got 2"),
        (TmaConfig, (*TMA, False, 2, 1), "tail of TmaConfig must be True or False, got 1"),
        (TmaConfig, (*TMA, False, 2, False, 8, "~"), "swap of TmaConfig must be .* got '~'"),
        (TmaConfig, (*TMA, False, 1, False, 8, True, 3), "dynamic of TmaConfig must .* got 3"),
        (TmaConfig, (*TMA, *JOINED, 2), "in_cluster of TmaConfig must be True or False, got 2"),
    ],
)
def test_what_is_not_made_of_numbers(kind: Any, fields: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(*fields)


@pytest.mark.parametrize("text", [None, 3, b"tma:64x64x64:1:4"])
def test_what_is_no_text(text: Any) -> None:
    with pytest.raises(ConfigError, match="a configuration must be text"):
        parse(text)
