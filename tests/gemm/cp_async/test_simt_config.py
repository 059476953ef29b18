"""Kernel simt: its configurations, who computes what, and accesses without bank conflicts."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from epilogue_calls import reductions
from gemm_cases.kernels import MAJORS, make_problem
from rows import every_row
from tilewright import ptx
from tilewright.builder import Traced
from tilewright.errors import ConfigError, TargetError
from tilewright.gemm import (
    Config,
    SimtConfig,
    TmaConfig,
    build,
    check,
    choose,
    launch_shape,
    launches,
    parse,
)
from tilewright.gemm.cp_async import simt as kernel
from tilewright.gemm.cp_async import simt_config, simt_correction, simt_cost, simt_edges
from tilewright.gemm.cp_async.simt_config import TABLE as SIMT
from tilewright.gemm.cp_async.simt_config import VECTOR
from tilewright.gemm.cp_async.simt_launch import launched_config
from tilewright.layout import Layout
from tilewright.layout.memory.banks import bank_conflicts
from tilewright.target import DEVICES, device_spec

H200 = device_spec("H200")


@st.composite
def configs(draw: Any) -> SimtConfig:
    def power(low: int, high: int) -> int:
        return int(2 ** draw(st.integers(low, high)))

    block = power(2, 4), power(3, 4)
    tile = tuple(4 * count * draw(st.integers(1, 5)) for count in block)
    slices, number = power(0, 2), st.integers(1, 40)
    if slices > 1:
        tile = tuple(4 * count * power(1, 2) for count in block)
    if draw(st.booleans()):  # 8 lanes along M
        block, slices = (power(3, 4), 4), power(0, 1)
        tile = 8 * block[0], 16 * draw(st.sampled_from([1, 3, 5]))
    lines = prod(tile) // prod(block) // 4
    clusters = [split for split in (2, 4, 8) if lines % (split * slices) == 0]
    in_cluster = bool(clusters) and draw(st.booleans())
    split = draw(st.sampled_from(clusters) if in_cluster else number)
    stages = draw(st.integers(2, 16))
    return SimtConfig(
        (*tile, power(3, 6)), block, stages, draw(number), draw(number), split, slices, in_cluster
    )


@given(configs())
def test_text_and_back(config: SimtConfig) -> None:
    assert parse(str(config)) == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("simt", "expected a configuration"),
        ("simt:128x256:16x16:4", "expected a configuration"),
        ("simt:8x32x8:4x8:4", "tile M must be a multiple of 16, got 8"),
        (
            "simt:64x72x8:8x8:4",
            "tile N must be a multiple of 16 where N is no multiple of 32, got 72",
        ),
        (
            "simt:48x80x8:8x4:4",
            "tile M must be a multiple of 32 where N is no multiple of 32, got 48",
        ),
        ("simt:64x80x8:8x8:4", "80 of N must divide among 8 threads"),
        ("simt:64x64x4:8x8:4", "tile K must be a power of two, at least 8, got 4"),
        ("simt:64x64x8:2x8:4", "threads along M must be a power of two from 4 on, got 2"),
        ("simt:64x64x8:8x12:4", "threads along N must be a power of two from 8 on, got 12"),
        ("simt:64x64x8:32x8:4", "64 of M must divide among 32 threads"),
        ("simt:96x64x8:16x8:4", "96 of M must divide among 16 threads"),
        ("simt:64x64x8:8x8x3:4", "slices must be a power of two"),
        ("simt:64x64x8:8x8x8:4", "slices must be at most half of tile K"),
        ("simt:16x32x16:4x8x8:4", "divide a thread's 4 lines"),
        ("simt:64x64x8:8x8:4*0", "split-K must be from 1 to 64, got 0"),
        ("simt:64x64x8:8x8:4*3c", "split-K must be 2, 4 or 8 in a cluster, got 3"),
        ("simt:64x64x8:8x8:0", "stages must be 1 to 16"),
        ("simt:256x256x8:64x64:2", "at most 1024 threads"),
        ("simt:64x64x8:8x8:2@0", "group must be from 1 to"),
        ("simt:64x64x8:8x8:2@4294967296", "group must be from 1 to 2.31 - 1"),
    ],
)
def test_what_is_no_configuration(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(text)


@pytest.mark.parametrize("name", ["in_cluster", "programmatic"])
def test_a_flag_is_true_or_false(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} of SimtConfig must be True or False, got 1"):
        replace(SIMT[0], split=2, **{name: 1})


# --- who computes what --------------------------------------------------------------------------


@given(configs())
def test_each_element_has_one_thread_of_each_slice(config: SimtConfig) -> None:
    rows, columns = (config.share(side).indices() for side in range(2))
    for share, size in ((rows, config.tile[0]), (columns, config.tile[1])):
        assert np.array_equal(np.unique(share), np.arange(size))
    rows, columns = (x.reshape(config.threads, -1, order="F") for x in (rows, columns))
    elements = rows[:, :, None] * config.tile[1] + columns[:, None, :]
    wanted = np.repeat(np.arange(np.prod(config.tile[:2])), config.slices)
    assert np.array_equal(np.sort(elements, axis=None), wanted)


@every_row("layout", ["tn", "nt"])
@every_row("tiles", [1, 0], ids=["whole tiles", "less"])
@every_row("config", SIMT, ids=str)
def test_accesses_to_shared_memory_meet_in_no_bank(
    config: SimtConfig, tiles: int, layout: str
) -> None:
    """A load of 16 bytes takes two wavefronts, the least, or one of B four where this leaves a
    third of the wavefronts idle, or 8 lanes are along M; a copy of 4 bytes, turned, takes one.
    """
    sizes = [size if tiles else VECTOR for size in config.tile[:2]]
    problem = make_problem((*sizes, 1), layout, "f32")
    rows, columns = config.thread_tile
    in_order = (rows / 2 + columns) / (rows * columns / 4) <= 2 / 3 or config.lanes != (4, 8)
    for side, operand in enumerate(kernel.operands(problem, config)):
        loads = bank_conflicts(operand.thread_layout(config.share(side)), 32, 16)
        assert (loads.wavefronts == (4 if side and in_order else 2)).all()
        assert not loads.conflicts
        copies = bank_conflicts(operand.copy.tidfrg_D(operand.layout), 32, operand.align, "st")
        assert copies.conflicts == 0
        assert copies.access.width == (4 if layout == "tn" else 16)


def test_the_cost_model_has_rates_and_corrections_of_each_tile() -> None:
    tiles = {simt_cost.tile_and_threads(config) for config in SIMT}
    assert set(simt_cost.RATES) == tiles
    assert set(simt_correction._table()) == {*tiles, simt_correction.OTHER}
    known, other = simt_correction.coefficients_of([min(tiles), "7x7x7:7x7"])
    assert not np.array_equal(known, other)
    assert other.tolist() == simt_correction._table()[simt_correction.OTHER]


def test_corrections_are_limited_and_count_less_for_long_products() -> None:
    short, long = simt_correction.LONG / 3, simt_correction.LONG * 4
    found = simt_correction.correction(np.array([short, short, long]), np.array([0.1, -9.0, -9.0]))
    assert found == pytest.approx([0.1, -simt_correction.LIMIT, -simt_correction.LIMIT / 4])
    problem, device = make_problem((300, 500, 200), "tt", "f32"), device_spec("H200")
    pair = [SIMT[0], replace(SIMT[0], split=2)]
    costs = simt_cost.simt_costs(problem, pair, device)
    costs = costs._replace(corrections=np.zeros_like(costs.corrections))
    grid = simt_cost.launch_grid(problem, costs, device)
    plain = simt_cost.uncorrected(problem, costs, device, grid)
    split = np.array([1, np.exp(simt_correction.SPLIT)])
    assert simt_cost.estimates(problem, costs, device) == pytest.approx(plain * split)


@every_row("layout, expected", [("tt", (0, 0, 0)), ("nt", (1, 0, 1)), ("tn", (0, 1, 0))])
def test_what_other_layouts_add_is_zero_for_row_major_products(
    layout: str, expected: tuple[int, int, int]
) -> None:
    problem, device = make_problem((512, 512, 512), layout, "f32"), device_spec("H200")
    grid = simt_cost.launch_grid(problem, simt_cost.simt_costs(problem, SIMT, device), device)
    found = simt_correction.features(problem, grid)
    assert found.shape == (len(SIMT), len(simt_correction.FEATURES))
    assert simt_correction.FEATURES[-3:] == simt_correction.LAYOUT
    assert (found[:, -3:] == expected).all()


@every_row("size, bytes_of_copy", [(49, 16), (64, 16), (129, 4), (130, 8), (132, 16)])
def test_copies_are_narrow_only_where_a_tile_ends_with_the_matrix(
    size: int, bytes_of_copy: int
) -> None:
    """Of rows that are multiples of 16 bytes apart; others are filled with zeros at the edge."""
    config = SimtConfig.parse("simt:64x64x16:8x8x2:3")
    problem = make_problem((size, size, 8), "nt", "f32")
    assert [simt_edges.copy_bytes(problem, config, side) for side in (0, 1)] == [bytes_of_copy] * 2


@pytest.mark.parametrize("config", SIMT, ids=str)
def test_lines_without_room_between_them_would_meet(config: SimtConfig) -> None:
    operand, _ = kernel.operands(make_problem((1, 1, 1), "tn", "f32"), config)
    packed = Layout((operand.extent, operand.depth))
    assert bank_conflicts(operand.copy.tidfrg_D(packed), 32, 4, "st").conflicts


# --- what fits, and what is chosen --------------------------------------------------------------


def test_f32_is_simt_s_and_nothing_else_is() -> None:
    f32, f16 = make_problem((64, 64, 64), "tn", "f32"), make_problem((64, 64, 64))
    for config in (Config((64, 64, 64), (2, 2), 3), TmaConfig((64, 64, 64), 1)):
        with pytest.raises(TargetError, match="tensor cores do not multiply f32"):
            check(f32, config, H200)
    with pytest.raises(TargetError, match="simt supports f32, not f16"):
        check(f16, SIMT[0], H200)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("simt:128x256x64:16x16:4", "bytes of shared memory"),
        ("simt:256x256x8:16x16:3", "registers per thread"),
        ("simt:128x128x8:16x16:3/4", "fewer CTAs on an SM"),
    ],
)
def test_what_does_not_fit(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(make_problem((64, 64, 64), "tn", "f32"), parse(text), H200)
    assert says in str(error.value)


def test_clusters_need_a_device_that_has_them() -> None:
    config, problem = parse("simt:64x128x16:8x16:2*2c"), make_problem((64, 64, 64), "tn", "f32")
    check(problem, config, H200)
    with pytest.raises(ConfigError, match="clusters need sm_90; RTX 4090 has none"):
        check(problem, config, device_spec("RTX 4090"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("simt:32x64x16:4x8x2:3*2c", "with reductions excludes split-K in a cluster"),
        (
            "simt:16x64x16:4x8x4:3",
            "needs slices that divide a thread's 2 blocks of 4×4 elements, got 4",
        ),
        ("simt:16x64x16:4x8x4:3*2", ""),
        ("simt:16x64x16:4x8x2:3", ""),
    ],
)
def test_slices_and_clusters_that_reductions_exclude(text: str, says: str) -> None:
    a, bias = np.zeros((64, 64), np.float32), np.zeros(64, np.float32)
    call: dict[str, Any] = {"epilogue": reductions, "bias": bias, "device": "vm", "config": text}
    if not says:
        assert str(tilewright.plan(a, a, **call).config).startswith(text.partition("*")[0])
        return
    with pytest.raises(ConfigError, match=says):
        tilewright.plan(a, a, **call)


def test_few_tiles_with_a_long_k_are_split() -> None:
    chosen = choose(make_problem((125, 405, 3497), "tt", "f32"), H200)
    assert isinstance(chosen, SimtConfig) and chosen.split > 1
    older = choose(make_problem((125, 405, 3497), "tt", "f32"), device_spec("A100"))
    assert isinstance(older, SimtConfig) and older.has_partials
    assert choose(make_problem((4096,) * 3, "tt", "f32"), H200).split == 1


@every_row("name", DEVICES)
@every_row("size", [1, 100, 1000, 4096])
def test_a_configuration_for_every_device_that_can(name: str, size: int) -> None:
    problem, on = make_problem((size,) * 3, "tt", "f32"), device_spec(name)
    if on.target.runs("sm_80"):
        check(problem, choose(problem, on), on)
    else:
        with pytest.raises(TargetError, match="simt needs sm_80"):
            choose(problem, on)


def test_large_products_get_large_tiles_and_small_ones_many() -> None:
    large, small = (choose(make_problem((n,) * 3, "tt", "f32"), H200) for n in (4096, 512))
    assert large.tile[0] * large.tile[1] == 128 * 256
    assert launch_shape(make_problem((512,) * 3, "tt", "f32"), small).grid[0] >= 128


# --- the kernel as text -------------------------------------------------------------------------

ODD = {"with_c": True, "align_a": 4, "align_b": 8, "align_c": 4, "align_d": 8, "batch": 3}


@pytest.mark.parametrize("layout", MAJORS)
@pytest.mark.parametrize("odd", [False, True], ids=["whole", "odd"])
def test_it_reads_back_and_needs_no_more_than_sm_80(layout: str, odd: bool) -> None:
    sizes = (500, 510, 499) if odd else (512, 512, 512)
    problem = make_problem(sizes, layout, "f32", **(ODD if odd else {}))
    traced = build(problem, SIMT[-1], device_spec("A100"))
    module = ptx.parse(traced.ptx)
    assert module == traced.module
    ptx.check(module)
    assert traced.target == "sm_80"


def test_one_kernel_serves_all_sizes_of_a_kind() -> None:
    def kernel(*sizes: int, batch: int = 1, device: str = "H200") -> Traced:
        problem = make_problem(sizes, "tn", "f32", batch=batch)
        return build(problem, SIMT[0], device_spec(device))

    one = kernel(128, 256, 64, batch=2)
    assert one is kernel(512, 1024, 4096, batch=7)
    assert one is kernel(512, 1024, 4096, batch=7, device="B200")
    assert one is not kernel(512, 1024, 4096, batch=7, device="A100")
    assert one is not kernel(512, 1024, 4096)
    assert one is not kernel(512, 1000, 4096, batch=7)


def test_every_product_is_an_fma_that_rounds_and_keeps_subnormals() -> None:
    config = replace(SIMT[-1], tile=(16, 32, 8))
    text = build(make_problem((16, 32, 8), "tn", "f32"), config, H200).ptx
    assert text.count("fma.rn.f32") == 8 * config.accumulator_registers
    assert "ftz" not in text


@pytest.mark.parametrize(
    ("device", "size", "text", "limit"),
    [
        ("H200", 512, "simt:64x64x16:8x8x2:3/4", None),  # 64 CTAs
        ("H200", 1024, "simt:64x64x16:8x8x2:3/4", None),  # 2 on an SM: two grids fit
        ("H200", 1152, "simt:64x64x16:8x8x2:3/4", 3),  # the next one would find room for 1 of 3
        ("H200", 512, "simt:64x64x16:8x8x2:3/4*6", 3),
        ("H200", 1408, "simt:64x64x16:8x8x2:3/4", None),  # 4, as many as fit
        ("H200", 2048, "simt:64x64x16:8x8x2:3/4", None),  # two waves
        ("H200", 512, "simt:64x64x16:8x8x2:3/4*4c", None),
        ("A100", 1152, "simt:64x64x16:8x8x2:3/4", None),
    ],
)
def test_grids_start_early_and_are_spread_evenly(
    device: str, size: int, text: str, limit: int | None
) -> None:
    """Where the next grid would find room for some CTAs of an SM, ``limit`` are on one at most."""
    problem = make_problem((size, size, 512), "tt", "f32")
    config, spec = parse(text), device_spec(device)
    shape, own = launch_shape(problem, config, spec), config.shared_bytes
    assert shape.programmatic == (device == "H200")
    if limit is None:
        assert not shape.unused
    else:
        fit = spec.limits.shared_per_sm // (own + shape.unused + spec.limits.shared_reserved)
        assert (shape.unused > 0, fit) == (True, limit)
    of_gemm = launches(problem, config, {}, spec)[0]
    assert of_gemm.shape == shape
    waits = "griddepcontrol.wait" in of_gemm.kernel.trace().ptx
    assert waits == (device == "H200")


@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
@pytest.mark.parametrize("given", [False, True])
def test_the_device_decides_whether_launches_are_programmatic(device: str, given: bool) -> None:
    """Of the GEMM kernel and of the reduction, whose text in caches then tells so."""
    problem, spec = make_problem((512, 512, 512), "tt", "f32"), device_spec(device)
    config = parse("simt:64x64x16:8x8x2:3/4*2")
    assert str(replace(config, programmatic=True)) == str(config)
    config = replace(config, programmatic=given)
    assert launched_config(config, spec).programmatic == (device != "A100")
    assert config.for_reduction().programmatic == given
    gemm, reduction = launches(problem, config, {}, spec)
    assert gemm.shape.programmatic == reduction.shape.programmatic == (device != "A100")
    for made in (gemm.kernel, reduction.kernel):
        assert f"programmatic={device != 'A100'}" in str(made)
        assert ("griddepcontrol.wait" in made.trace().ptx) == (device != "A100")


def test_slices_of_a_cluster_add_up_whole_lines() -> None:
    """A thread of simt:16x32x16:4x8 has 4 lines of 4 elements, which 8 CTAs cannot share."""
    with pytest.raises(ConfigError, match=r"must divide a thread's 4 lines of 4 elements, got 8·1"):
        SimtConfig.parse("simt:16x32x16:4x8:4*8c")
    clusters = [c for c in simt_config.candidates() if c.in_cluster]
    assert clusters
    for c in clusters:
        rows, columns = c.tile[0] // c.block[0], c.tile[1] // c.block[1]
        assert rows * columns // 4 % (c.slices * c.split) == 0
