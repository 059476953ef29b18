"""f32 products on the virtual machine: each element's bits are a chain's of FMAs, k ascending, or
with split-K and slices the sum of several chains, in order.

The reference is those chains in exact arithmetic, so it holds whatever the inputs are: NaNs,
infinities, subnormals, zeros of both signs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

import tilewright
from epilogue_calls import reductions
from gemm_cases.kernels import MAJORS
from references.hostile import Source
from rows import every_row
from tilewright import exact
from tilewright.builder import Builder
from tilewright.dtypes import dtype
from tilewright.errors import VmFault
from tilewright.gemm import Problem, SimtConfig, build
from tilewright.gemm.cp_async import simt
from tilewright.gemm.cp_async.simt_config import TABLE as SIMT
from tilewright.gemm.cp_async.simt_launch import raster_values
from tilewright.run import VmDevice
from tilewright.run.call.prepared_call import Addresses, PreparedCall
from tilewright.target import device_spec
from tilewright.vm import Machine
from tilewright.vm.step.numpy_floats import quiet

pytestmark = pytest.mark.vm

F32 = dtype("f32")
Array = np.ndarray[Any, Any]
SMALL = "simt:16x32x8:4x8:3"
WARPS = SimtConfig((64, 64, 8), (8, 16), 3)  # CTAs of four warps
H200 = device_spec("H200")


def accumulated(a: Array, b: Array, ks: Iterable[int]) -> Array:
    """The bits of a chain over these k."""
    one, two = (np.ascontiguousarray(x).view(np.uint32) for x in (a, b))
    sums = np.zeros((a.shape[0], b.shape[1]), np.uint32)
    for k in ks:
        left, right = (np.broadcast_to(x, sums.shape) for x in (one[:, k, None], two[None, k]))
        sums = exact.fma("f32", left, right, sums)
    return sums


def added(chains: list[Array]) -> Array:
    """The bits of a sum, in order."""
    with quiet():
        return reduce(np.add, [x.view(np.float32) for x in chains]).view(np.uint32)


def chain(
    a: Array, b: Array, alpha: float = 1.0, beta: float = 0.0, c: Any = None,
    config: SimtConfig | None = None,
) -> Array:  # fmt: skip
    """The bits of D, by one chain, or by those of a configuration."""
    depth, shape = a.shape[1] if alpha else 0, (a.shape[0], b.shape[1])
    parts = [[range(depth)]] if config is None else k_of_chains(depth, config)
    sums = added([added([accumulated(a, b, ks) for ks in slices]) for slices in parts])
    with quiet():
        scaled = exact.canonical("f32", (np.float32(alpha) * sums.view(np.float32)).view(np.uint32))
    if not beta:
        return scaled
    factor = np.broadcast_to(np.float32(beta).view(np.uint32), shape)
    return exact.fma("f32", factor, np.ascontiguousarray(c).view(np.uint32), scaled)


def k_of_chains(depth: int, config: SimtConfig) -> list[list[list[int]]]:
    """The k of each part of split-K and each slice; k-tiles are counted from the end of K."""
    bk, split, slices = config.tile[2], config.split, config.slices
    tiles, width = -(-depth // bk), bk // slices
    lead = tiles * bk - depth
    first = [tiles // split * i + min(i, tiles % split) for i in range(split + 1)]
    return [
        [
            [
                k - lead
                for tile in range(first[part], first[part + 1])
                for k in range(tile * bk + s * width, tile * bk + (s + 1) * width)
                if k >= lead
            ]
            for s in range(slices)
        ]
        for part in range(split)
    ]


def numbers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng((*shape, seed)).standard_normal(shape, np.float32)


def laid(x: Array, letter: str) -> Array:
    """The same matrix, row- or column-major."""
    return np.ascontiguousarray(x) if letter == "t" else np.asfortranarray(x)


def product(a: Array, b: Array, **options: Any) -> Array:
    d = tilewright.matmul(a, b, **{"device": "vm", "config": SMALL} | options)
    assert d.dtype == np.float32
    return np.ascontiguousarray(d).view(np.uint32)


# --- all that a kernel can have to do -----------------------------------------------------------


@every_row("layout", MAJORS, parts=5)
@every_row("sizes", [(32, 64, 24), (21, 39, 19), (1, 33, 8), (17, 1, 9)])
def test_the_bits_of_every_layout_and_edge(sizes: tuple[int, int, int], layout: str) -> None:
    m, n, k = sizes
    a, b, c = numbers((m, k)), numbers((k, n)), numbers((m, n))
    options = {"c": c, "alpha": 0.75, "beta": -1.25}
    want = chain(a, b, **options)
    assert np.array_equal(product(laid(a, layout[0]), laid(b, layout[1]), **options), want)


@pytest.mark.parametrize("pad", [1, 2, 4])
@pytest.mark.parametrize("letter", "tn")
def test_views_of_any_alignment(letter: str, pad: int) -> None:
    """Lines 4, 8 and 16 bytes apart, of A, B, C and D."""

    def view(x: Array) -> Array:
        lines = x if letter == "t" else x.T
        room = np.zeros((lines.shape[0], lines.shape[1] + pad), np.float32)
        room[:, pad:] = lines
        return room[:, pad:] if letter == "t" else room[:, pad:].T

    a, b, c = numbers((20, 24)), numbers((24, 36)), numbers((20, 36))
    d = view(np.full_like(c, np.nan))
    options = {"c": view(c), "beta": 0.5}
    tilewright.matmul(view(a), view(b), out=d, device="vm", config=SMALL, **options)
    assert np.array_equal(np.ascontiguousarray(d).view(np.uint32), chain(a, b, **options))


def in_place(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    """Let calls read C, or else their operand, where they write D, as a GPU's arrays may be."""
    launch = PreparedCall.launch

    def launched_in_place(self: PreparedCall, at: Addresses, *more: Any) -> None:
        held, pitch = np.empty(shape, np.float32), self.layouts["d"].leading_dim
        assert at.c or pitch == shape[1]
        self.device.download(held, at.c or at.operands[0], pitch)
        self.device.upload(at.d, held, pitch)
        launch(self, at._replace(**({"c": at.d} if at.c else {"operands": (at.d,)})), *more)

    monkeypatch.setattr(PreparedCall, "launch", launched_in_place)


OVERLAPPING = [(35, 50, 20), (33, 160, 8), (40, 67, 8)]  # rows of any alignment
TILES = [SMALL, "simt:32x64x16:4x8x2:3*2c", "simt:32x48x8:8x4:3", "simt:16x64x8:4x8:3*2"]


@pytest.mark.slow
@every_row("text", TILES, parts=2)
@every_row("sizes", OVERLAPPING)
def test_c_may_be_d_where_tiles_overlap(
    sizes: tuple[int, int, int], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last tiles end with D: each element is read and stored by one of the two that have it."""
    m, n, k = sizes
    a, b, c = numbers((m, k)), numbers((k, n)), numbers((m, n))
    in_place(monkeypatch, (m, n))
    want = chain(a, b, c=c, beta=2.0, config=SimtConfig.parse(text))
    assert np.array_equal(product(a, b, c=c, beta=2.0, config=text), want)


@every_row("text", TILES[:3], parts=7)
@every_row("sizes", OVERLAPPING)
def test_a_residual_may_be_d_where_tiles_overlap(
    sizes: tuple[int, int, int], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tile adds the residual to what the one before it has stored."""
    m, n, k = sizes
    a, b, r = numbers((m, k)), numbers((k, n)), numbers((m, n))
    plain = product(a, b, config=text).view(np.float32)
    in_place(monkeypatch, (m, n))
    d = product(a, b, config=text, epilogue=lambda acc, r: acc + r, r=r)
    assert np.array_equal(d.view(np.float32), plain + r)


@every_row("shape", [(35, 50, 9), (70, 84, 20)], parts=2)
def test_reductions_of_tiles_with_eight_lanes_along_m(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    bias = numbers((n,))
    found = tilewright.matmul(
        numbers((m, k)), numbers((k, n)), epilogue=reductions, bias=bias, device="vm",
        config="simt:32x48x8:8x4:3",
    )  # fmt: skip
    x = product(numbers((m, k)), numbers((k, n)), config=SMALL).view(np.float32) + bias
    assert np.array_equal(np.ravel(found["row_max"]), x.max(1))
    assert np.array_equal(np.ravel(found["column_max"]), x.max(0))
    assert np.allclose(np.ravel(found["row_sum"]), x.sum(1), atol=1e-4)
    assert np.allclose(found["total"], x.sum(), atol=1e-3)


@every_row("config", SIMT, ids=str, parts=17)
def test_every_configuration_adds_in_its_order(config: SimtConfig) -> None:
    a, b = numbers((70, 40)), numbers((40, 130))
    want = chain(a, b, config=config)
    assert np.array_equal(product(a, b.T.copy().T, config=config), want)
    assert config.slices > 1 or np.array_equal(want, product(a, b))


PARTS = ("simt:16x32x8:4x8:3*3", "simt:32x64x16:4x8x4:2*2", "simt:32x32x16:4x8x2:3*4c",
         "simt:48x32x8:4x8:3*2c", "simt:32x64x16:4x8x4:1", "simt:32x64x8:4x8:2*8c",
         "simt:16x32x8:4x8:3*11")  # fmt: skip


@every_row("text", PARTS, parts=13)
@every_row("sizes", [(33, 70, 77), (16, 64, 32), (1, 65, 5), (50, 9, 0)])
def test_parts_of_k_are_added_in_order(sizes: tuple[int, int, int], text: str) -> None:
    """D, which no part must leave as it was, with C and by rows of no alignment."""
    m, n, k = sizes
    config = SimtConfig.parse(text)
    a, b, c = numbers((m, k)), numbers((k, n)), numbers((m, n))
    d = np.full_like(c, np.nan)
    options = {"c": c, "alpha": 0.75, "beta": -1.25}
    tilewright.matmul(a, b, out=d, device="vm", config=config, **options)
    assert np.array_equal(d.view(np.uint32), chain(a, b, config=config, **options))


def test_parts_of_stacked_products() -> None:
    config = SimtConfig.parse("simt:16x32x8:4x8:3*2")
    a, b = numbers((3, 18, 30)), numbers((3, 30, 40))
    for text in (config, replace(config, in_cluster=True)):
        d = product(a, b, config=text)
        assert all(np.array_equal(d[i], chain(a[i], b[i], config=config)) for i in range(3))


@pytest.mark.parametrize("depth", [0, 1, 7, 8, 9, 16, 50])
def test_any_depth_against_the_ring(depth: int) -> None:
    a, b = numbers((16, depth)), numbers((depth, 32))
    assert np.array_equal(product(a, b, config="simt:16x32x8:4x8:5"), chain(a, b))


def test_a_stack_of_products() -> None:
    a, b, c = numbers((3, 18, 10)), numbers((3, 10, 40)), numbers((3, 18, 40))
    d = product(a, b.swapaxes(1, 2).copy().swapaxes(1, 2), c=c, beta=2.0)
    for i in range(3):
        assert np.array_equal(d[i], chain(a[i], b[i], beta=2.0, c=c[i]))


def test_an_alpha_of_zero_reads_neither_a_nor_b() -> None:
    a, b, c = np.full((16, 8), np.nan, np.float32), numbers((8, 32)), numbers((16, 32))
    assert np.array_equal(product(a, b, c=c, alpha=0.0, beta=2.0), (2 * c).view(np.uint32))
    assert not product(a, b, alpha=0.0).any()


def test_without_a_configuration_f32_is_ieee_s() -> None:
    a, b = numbers((40, 30)), numbers((30, 50))
    plan = tilewright.plan(a, b, device="vm")
    assert isinstance(plan.config, SimtConfig) and plan.problem.a == "f32"
    assert np.array_equal(product(a, b, config=None), chain(a, b, config=plan.config))


# --- hostile numbers ----------------------------------------------------------------------------


@every_row("sort", ["uniform", "special", "subnormal", "zero", "largest"])
def test_hostile_numbers(sort: str) -> None:
    rng = np.random.default_rng(7)
    source = Source(rng, F32)

    def matrix(*shape: int) -> Array:
        odd = np.asarray(getattr(source, sort)(shape), np.uint32)
        ordinary = np.asarray(source.normal(shape), np.uint32)
        return np.where(rng.random(shape) < 0.15, odd, ordinary).view(np.float32)

    a, b, c = matrix(16, 12), matrix(12, 32), matrix(16, 32)
    options = {"c": c, "alpha": -1.5, "beta": 1.0}
    assert np.array_equal(product(a, b, **options), chain(a, b, **options))


def test_subnormals_stay() -> None:
    a, b = np.full((16, 8), 2.0**-75, np.float32), np.full((8, 32), 2.0**-70, np.float32)
    assert (product(a, b) == 8 * 2**4).all()


# --- order --------------------------------------------------------------------------------------


def test_no_order_of_warps_and_copies_changes_a_bit_and_nothing_races() -> None:
    a, b = numbers((64, 40)), numbers((40, 64))
    results = set()
    for machine in (*(Machine(seed=s) for s in range(5)), Machine(checked=True)):
        results.add(launched(machine, a, b))
    assert results == {chain(a, b).tobytes()}


def test_tiles_that_overlap_do_not_race() -> None:
    a, b = numbers((70, 9)), numbers((9, 101))
    assert launched(Machine(checked=True), a, b) == chain(a, b).tobytes()


def launched(
    machine: Machine, a: Array, b: Array, config: SimtConfig = WARPS, *,
    scalars: tuple[float, float, int, int] = (1.0, 0.0, 0, 0), programmatic: bool = False,
) -> bytes:  # fmt: skip
    """D's bytes. ``scalars``: α, β and their addresses."""
    (m, k), n = a.shape, b.shape[1]
    aligns = {f"align_{x}": 16 if size % 4 == 0 else 4 for x, size in (("b", n), ("d", n))}
    problem = Problem(m, n, k, "f32", "f32", "f32", "k", "n", **aligns)
    traced = build(problem, config, H200)
    machine.load(traced.module)
    d = np.full((m, n), np.nan, np.float32)
    places = [machine.upload(x) for x in (a, b, d, d)]
    args = [*places, m, n, k, k, n, n, n, *scalars, 0, 0, 0, 0]
    args += raster_values(problem, config).values()
    machine.launch(traced.name, config.tiles(problem), traced.block, args,
                   shared=traced.dynamic_shared, programmatic=programmatic)  # fmt: skip
    return machine.download(places[3], like=d).tobytes()


# --- grids that start early -----------------------------------------------------------------------


@every_row("config", ["32x32x32:4x8x4:3/4", "16x32x32:4x8x4:3*2", "16x32x16:4x8:4/8*2c"])
def test_no_access_comes_before_the_wait(config: str) -> None:
    a, b, c = numbers((40, 70)), numbers((70, 33)), numbers((40, 33))
    given: dict[str, Any] = {"c": c, "beta": 0.5, "config": f"simt:{config}"}
    found, expected = (
        tilewright.matmul(a, b, device=device, **given)
        for device in (VmDevice(checked=True), "vm" if config.endswith("c") else "vm:A100")
    )
    np.testing.assert_array_equal(found, expected)


def early(by_address: bool) -> tuple[bytes, bytes]:
    """D's bytes of a programmatic launch, and what they should be. α, here 2, and β are numbers, or
    read from memory that the preceding grid may write.
    """
    a, b, machine = numbers((40, 24)), numbers((24, 64)), Machine(checked=True)
    scalars = 2.0, 0.0, 0, 0
    if by_address:
        alpha, beta = (machine.upload(np.array([x], np.float32)) for x in scalars[:2])
        scalars = 1.0, 1.0, alpha, beta
    config = SimtConfig.parse("simt:32x32x32:4x8x4:3/4")
    want = chain(a, b, alpha=2.0, config=config)
    return launched(machine, a, b, config, scalars=scalars, programmatic=True), want.tobytes()


@pytest.mark.parametrize("by_address", [False, True], ids=["numbers", "addresses"])
def test_a_programmatic_launch_waits_before_its_first_access(by_address: bool) -> None:
    found, want = early(by_address)
    assert found == want


@pytest.mark.parametrize(
    ("by_address", "access"),
    [(False, r"cp\.async\.c[ag]\.shared\.global"), (True, r"ld\.global\.f32")],
    ids=["numbers", "addresses"],
)
def test_a_kernel_that_does_not_wait_is_found(
    by_address: bool, access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the machine alone: a call would leave the kernel in the compile cache."""
    monkeypatch.setattr(Builder, "wait_for_prior_grids", lambda _: None)
    simt._build.cache_clear()
    try:
        with pytest.raises(VmFault, match=f"{access}.* no griddepcontrol.wait comes before the"):
            early(by_address)
    finally:
        simt._build.cache_clear()
