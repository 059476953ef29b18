"""Kernel multistage on the virtual machine: its products, its order of work, and that it waits.

The law of results is the one of ``matmul``; here the kernel itself is taken apart: which CTA does
which tile, whether both evaluators agree, and what happens when a wait is missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.kernels import MAJORS, aligned, make_problem
from rows import every_row
from tilewright.dtypes import dtype
from tilewright.errors import VmFault
from tilewright.gemm import TABLE, Config, Problem, build, launch_shape
from tilewright.ptx import tree
from tilewright.target import DEFAULT_DEVICE
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]


def inputs(problem: Problem) -> tuple[Array, Array, Array]:
    """A (M×K), B (K×N), C (M×N)."""
    rng = np.random.default_rng((problem.m, problem.n, problem.k))
    t, d = dtype(problem.a).numpy, dtype(problem.d).numpy
    sizes = ((problem.m, problem.k), (problem.k, problem.n), (problem.m, problem.n))
    a, b, c = (rng.standard_normal(s, dtype=np.float32) for s in sizes)
    return a.astype(t), b.astype(t), c.astype(d)


def product(
    problem: Problem,
    config: Config,
    module: tree.Module | None = None,
    machine: Machine | None = None,
    on_step: Any = None,
    ctas: int = 0,
) -> Array:
    """D of a compact problem, launched by hand: 1.0 · A B + 0.5 · C where C is read."""
    m, traced = machine or Machine(), build(problem, config, DEFAULT_DEVICE)
    a, b, c = inputs(problem)
    a = a if problem.a_major == "k" else a.T
    b = b.T if problem.b_major == "k" else b
    m.load(module or traced.module)
    places = [m.upload(np.ascontiguousarray(x)) for x in (a, b, c, np.full_like(c, np.nan))]
    sizes = problem.m, problem.n, problem.k
    leading = a.shape[1], b.shape[1], problem.n, problem.n
    args = [*places, *sizes, *leading, 1.0, 0.5, 0, 0, 0, 0, 0, 0]
    grid = ctas or launch_shape(problem, config).grid
    how: dict[str, Any] = {"shared": traced.dynamic_shared, "on_step": on_step}
    m.launch(traced.name, grid, traced.block, args, **how)
    return m.download(places[3], like=c)


def exact(problem: Problem) -> Array:
    a, b, c = (x.astype(np.float64) for x in inputs(problem))
    return a @ b + (0.5 * c if problem.with_c else 0)


def assert_close(d: Array, problem: Problem) -> None:
    want = exact(problem)
    assert d.dtype == np.float32
    assert (np.abs(d - want) <= 2.0**-22 * (np.abs(want) + problem.k)).all()


# --- results ------------------------------------------------------------------------------------


@every_row("layout", MAJORS, parts=3)
@every_row("sizes", [(64, 64, 128), (72, 40, 88)], ids=["whole", "edges"])
def test_a_small_product(sizes: tuple[int, int, int], layout: str) -> None:
    problem = make_problem(sizes, layout, d="f32", with_c=True)
    assert_close(product(problem, Config.parse("32x32x32:1x2:3")), problem)


@every_row("config", TABLE, ids=str, parts=6)
def test_every_configuration_of_the_table(config: Config) -> None:
    bm, bn, bk = config.tile
    problem = make_problem((bm, bn, 3 * bk), "tn", "bf16", d="f32")
    assert_close(product(problem, config), problem)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_a_stack_of_products_on_an_a100(type_: str) -> None:
    """D's elements are larger than A's; a CTA takes one tile of one matrix."""
    rng = np.random.default_rng(0)
    shapes = (3, 40, 70), (3, 70, 50), (3, 40, 50)
    a, b, c = (rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes)
    given = [x.astype(dtype(type_).numpy) for x in (a, b)]
    options: dict[str, Any] = {"c": c, "beta": 2.0, "out_dtype": "f32", "device": "vm:A100"}
    for config in (None, "32x32x32:1x1:2p"):
        d = tilewright.matmul(*given, config=config, **options)
        assert np.array_equal(d, a @ b + 2 * c)


@pytest.mark.parametrize("depth", [0, 1, 31, 32, 33, 64, 200])
def test_any_depth_against_the_ring(depth: int) -> None:
    """Fewer steps than stages, as many, more."""
    problem = make_problem((32, 32, depth), "nt", d="f32", with_c=True)
    d = product(problem, Config.parse("32x32x32:1x1:4"))
    assert (np.abs(d - exact(problem)) < 1e-4).all()


@every_row(
    ("text", "sizes"),
    [
        ("16x256x32:1x1:2", (16, 256, 32)),  # a row of the result is wider than a warp's pieces
        ("16x512x32:1x32:2", (16, 512, 33)),  # more threads than A has elements to copy singly
        ("16x16x32:1x1:2", (16, 16, 40)),  # fewer pieces than lanes
        ("128x16x128:8x1:2", (120, 16, 130)),
        ("32x256x128:1x2:2", (32, 200, 140)),  # a thread's chunks, in both directions, in batches
    ],
    parts=5,
)
@every_row("narrow", [False, True], ids=["16 bytes", "elements"])
def test_uncommon_shapes_of_a_tile(text: str, sizes: tuple[int, int, int], narrow: bool) -> None:
    m, n, k = sizes
    k = k if narrow else -(-k // 8) * 8
    rest = aligned(2, 2, 4, 4) if narrow else {}
    problem = make_problem((m, n, k), "tn", d="f32", with_c=True, **rest)
    assert_close(product(problem, Config.parse(text)), problem)


# --- tiles --------------------------------------------------------------------------------------


@every_row("persistent", [False, True], ids=["", "persistent"], parts=5)
@every_row("group", [1, 3, 8, 100])
@every_row(("rows", "columns"), [(1, 1), (1, 9), (9, 1), (8, 8), (17, 5), (20, 33)])
def test_each_tile_is_done_once(rows: int, columns: int, group: int, persistent: bool) -> None:
    """D = 2 · D in place, without K: a tile done twice would be four times itself."""
    m, n = 16 * rows, 16 * columns
    d = np.arange(m * n, dtype=np.float32).reshape(m, n)
    want = 2 * d
    a, b = np.zeros((m, 0), np.float16), np.zeros((0, n), np.float16)
    config = Config((16, 16, 32), (1, 1), 2, group, persistent=persistent)
    tilewright.matmul(a, b, c=d, beta=2.0, out=d, device="vm", config=config)
    assert np.array_equal(d, want)


@pytest.mark.parametrize("ctas", [1, 2, 5, 12])
@pytest.mark.parametrize("depth", [32, 160])
def test_persistent_ctas_go_from_tile_to_tile(depth: int, ctas: int) -> None:
    """Twelve tiles, by fewer CTAs and as many."""
    problem, config = make_problem((96, 128, depth), "tt", d="f32"), Config.parse("32x32x32:2x1:3p")
    once = replace(config, persistent=False)
    d = product(problem, config, ctas=ctas)
    assert np.array_equal(d, product(problem, once))
    assert_close(d, problem)


# --- the same bits ------------------------------------------------------------------------------

ONE_TILE = make_problem((16, 64, 64), d="f32"), Config.parse("16x64x32:1x2:2")


def test_both_evaluators_give_the_same_bits() -> None:
    compiled = product(*ONE_TILE)
    stepped = product(*ONE_TILE, on_step=lambda step: None)
    assert np.array_equal(compiled.view(np.uint32), stepped.view(np.uint32))


def test_no_order_of_warps_and_copies_changes_a_bit() -> None:
    problem, config = make_problem((64, 64, 160), "tt"), Config.parse("64x64x32:2x2:3")
    results = {product(problem, config, machine=Machine(seed=s)).tobytes() for s in range(20)}
    assert len(results) == 1


# --- waits --------------------------------------------------------------------------------------


def without(module: tree.Module, opcode: str, index: int) -> tree.Module:
    """The module without the ``index``-th of the instructions with this opcode."""
    (kernel,) = module.entries
    body = list(kernel.body or ())
    places = [i for i, s in enumerate(body) if getattr(s, "opcode", "") == opcode]
    del body[places[index]]
    shorter = replace(kernel, body=tuple(body))
    return replace(module, items=tuple(shorter if i is kernel else i for i in module.items))


@pytest.mark.parametrize("index", [0, 1], ids=["before the loop", "in the loop"])
@pytest.mark.parametrize("opcode", ["cp.async.wait_group", "bar.sync"])
def test_a_missing_wait_shows(opcode: str, index: int) -> None:
    problem, config = make_problem((64, 64, 160)), Config.parse("64x64x32:2x2:3")
    module = build(problem, config, DEFAULT_DEVICE).module
    broken = without(module, opcode, index)
    right = product(problem, config)
    wrong = (product(problem, config, broken, Machine(seed=s)) for s in range(20))
    assert any(not np.array_equal(right.view(np.uint16), w.view(np.uint16)) for w in wrong)
    checked = Machine(checked=True)
    np.testing.assert_array_equal(product(problem, config, machine=checked), right)
    with pytest.raises(VmFault, match="race: "):
        product(problem, config, broken, Machine(checked=True))
