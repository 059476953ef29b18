"""Stream-K: every k-block is multiplied once, by CTAs that have equally many in each group; the
exchange of partial accumulators gives the same bits in every order, and epilogues run once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import GemmCase, check
from gemm_cases.resident import registered
from gemm_cases.tma_cases import BF16, FEW, HALF, layouts
from rows import every_row
from tilewright.builder import trace
from tilewright.errors import ConfigError, VmFault
from tilewright.gemm import (
    MatrixStrides,
    Problem,
    TmaConfig,
    kernels,
    launches,
    parse,
    workspace_bytes,
)
from tilewright.gemm.tma.stream_k.stream_k_tile_scheduler import (
    FIRST_K_BLOCKS,
    StreamKTileScheduler,
)
from tilewright.ptx import parse as ptx_parse
from tilewright.run import VmDevice
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]
NONE = 2**32 - 1
MOST = 24  # work tiles of a CTA, and numbers in the record of one


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


# --- the tile scheduler -------------------------------------------------------------------------


class Part(NamedTuple):
    """A work tile: k-blocks from ``first`` to ``end`` of a tile, for CTA ``cta`` its ``index``-th.
    ``partial``: where its accumulators go; ``added``: those that its CTA adds.
    """

    cta: int
    index: int
    tile: int
    first: int
    end: int
    partial: int
    added: tuple[int, ...]


def record_work_tiles(k: Any, scheduler: StreamKTileScheduler, out: Any) -> None:
    """Store the fields of a ``Part`` for each work tile of the CTA."""
    index = k.var("u32", 0)

    def process(tile: Any, _: Any) -> None:
        record, others = out + (k.ctaid.x * MOST + index) * MOST, k.var("u32", 0)
        column, partial = tile.column // 16, tile.partial.view("u32")
        for i, value in enumerate((column, tile.first_k_block, tile.k_blocks, partial)):
            record.store(value, index=i)

        def add(partial: Any) -> None:
            (record + (others + 5)).store(partial)
            others.set(others + 1)

        with k.if_(tile.partial < 0):
            scheduler.for_each_partial(tile, add)
        record.store(others, index=4)
        index.set(index + 1)

    scheduler.for_each_tile(process)


@cache
def recording_kernel(group: int) -> Any:
    """A kernel that records the work tiles of all CTAs, with groups of this number of clusters."""
    config = parse(f"tma:64x16x64:1:2+sk{group}")
    assert isinstance(config, TmaConfig)

    def kernel(k: Any, n: Any, k_blocks: Any, full_tiles: Any, out: Any) -> None:
        m = k.mov(k.const("u32", 64))
        scheduler = StreamKTileScheduler(k, config, m, n, k_blocks, None, full_tiles)
        record_work_tiles(k, scheduler, out)

    sizes = dict.fromkeys(("n", "k_blocks", "full_tiles"), "u32")
    return trace(kernel, params=sizes | {"out": "ptr u32"}, name="of_ctas", block=1)


@cache
def parts(tiles: int, k_blocks: int, clusters: int, group: int) -> list[Part]:
    """The work tiles of all CTAs."""
    made, whole = recording_kernel(group), tiles // clusters * clusters
    m, empty = Machine(), np.full((clusters, MOST, MOST), NONE, np.uint32)
    m.load(made.module)
    there = m.upload(empty)
    numbers = [16 * tiles, k_blocks, whole, there]
    m.launch("of_ctas", clusters, 1, numbers, shared=made.dynamic_shared)
    return [
        Part(cta, i, tile, first, first + blocks, partial, tuple(more[1 : 1 + more[0]]))
        for cta, own in enumerate(m.download(there, like=empty).tolist())
        for i, (tile, first, blocks, partial, *more) in enumerate(own)
        if tile != NONE
    ]


SCHEDULES = [
    (8, 12, 6, 3), (15, 33, 6, 2), (11, 16, 6, 6), (3, 40, 6, 3), (1, 100, 7, 7), (2, 17, 8, 5),
    (133, 16, 66, 32), (88, 16, 132, 3), (200, 64, 132, 4), (2, 3, 5, 5), (12, 16, 6, 2),
    (9, 1, 4, 3), (10, 4, 6, 5), (5, 2, 9, 4), (16, 65, 7, 3),
]  # fmt: skip


@every_row(("tiles", "k_blocks", "clusters", "group"), SCHEDULES)
def test_each_k_block_is_multiplied_once(
    tiles: int, k_blocks: int, clusters: int, group: int
) -> None:
    made = parts(tiles, k_blocks, clusters, group)
    first = tiles % clusters <= clusters // group and k_blocks <= FIRST_K_BLOCKS
    before_parts = 0 if first else tiles // clusters
    for tile in range(tiles):
        own = sorted((part for part in made if part.tile == tile), key=lambda part: part.first)
        assert [own[0].first, own[-1].end] == [0, k_blocks]
        assert all(part.end == after.first for part, after in pairwise(own))
        assert [part.partial for part in own] == [NONE, *(part.cta for part in own[1:])]
        assert own[0].added == tuple(part.cta for part in own[1:])
        assert all(part.cta < before.cta for before, part in pairwise(own))
        assert all(part.index == before_parts and not part.added for part in own[1:])


@every_row(("tiles", "k_blocks", "clusters", "group"), SCHEDULES)
def test_the_clusters_of_a_group_have_equally_many_k_blocks(
    tiles: int, k_blocks: int, clusters: int, group: int
) -> None:
    """As many as its tiles have, one more where these do not divide."""
    blocks = [0] * clusters
    for part in parts(tiles, k_blocks, clusters, group):
        blocks[part.cta] += part.end - part.first
    each = -(-(tiles % clusters) // (clusters // group))
    whole = tiles // clusters * k_blocks
    assert max(blocks) == whole + -(-each * k_blocks // group)
    assert min(blocks) >= whole


# --- products -----------------------------------------------------------------------------------

E4M3, S8 = ("e4m3", "e4m3", "bf16"), ("s8", "s8", "s32")
CASES = [
    ("tma:64x64x64:1:3+sk4", GemmCase((150, 200, 900), HALF, layouts("tntt"))),
    ("tma:64x64x64:2p:4+sk5", GemmCase((250, 200, 700), BF16, layouts("tttt"), 0.5, 2.0)),
    ("tma:128x64x64:2:3+sk3~", GemmCase((100, 800, 900), BF16, layouts("nttn"), beta=1.0)),
    ("tma:128x64x64:2:3/1x2+sk2", GemmCase((250, 400, 1100), HALF, layouts("nttt"), 2.0)),
    ("tma:64x64x128:1:3+sk5", GemmCase((130, 140, 1500), E4M3, layouts("tntt", pad=16))),
    ("tma:128x64x128:2:2+sk2", GemmCase((300, 200, 2000), S8, layouts("tntt"), beta=1.0)),
    ("tma:64x64x64:1:3+sk3", GemmCase((60, 62, 900), BF16, layouts("tntt", gap=8), batch=7)),
    ("tma:64x64x64:2p:3+sk3", GemmCase((150, 200, 900), HALF, layouts("tntt"), alpha=0.0)),
    ("tma:64x64x64:1:3+sk3", GemmCase((64, 64 * 10, 300), HALF, layouts("tntt"))),
]


@every_row(("config", "gemm_case"), CASES, parts=2)
def test_d_is_exact_and_nothing_else_is_written(config: str, gemm_case: GemmCase) -> None:
    check(gemm_case, VmDevice(FEW, checked=True), config)


WHOLE = "tma:64x64x64:1:3"


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def product(a: Array, b: Array, config: str, device: Any, **options: Any) -> Array:
    made: Array = tilewright.matmul(a, b, config=config, device=device, **options)
    return made


def test_parts_are_added_in_the_order_of_k() -> None:
    """The last two of seven tiles, of 20 k-blocks, in five ranges of 8."""
    a, b, on = normal(64, 1280), normal(1280, 64 * 7), VmDevice(FEW)
    found = product(a, b, "tma:64x64x64:1:3+sk5", on, out_dtype="f32")
    for tile, inside in (*((i, ()) for i in range(5)), (5, (8, 16)), (6, (4, 12))):
        columns = slice(64 * tile, 64 * tile + 64)
        own = [
            product(a[:, 64 * i : 64 * j], b[64 * i : 64 * j, columns], WHOLE, on, out_dtype="f32")
            for i, j in pairwise((0, *inside, 20))
        ]
        assert np.array_equal(found[:, columns], sum(own[1:], own[0])), tile


def test_no_order_of_warps_and_copies_changes_a_bit() -> None:
    a, b = normal(140, 1500), normal(72, 1500).T
    of_seeds = {
        product(a, b, "tma:64x64x64:2p:3+sk5", VmDevice(FEW, seed=seed)).tobytes()
        for seed in range(8)
    }
    assert len(of_seeds) == 1


@every_row("config", ["tma:64x64x64:2p:3{}", "tma:128x64x64:2:3{}"], parts=2)
def test_an_epilogue_runs_once(config: str) -> None:
    """Its operands are loaded, and its reductions have one partial result, for each tile once."""
    rng = np.random.default_rng(0)
    a, b, c, bias = (
        rng.integers(-2, 3, shape).astype(np.float16)
        for shape in ((300, 1100), (1100, 200), (300, 200), (1, 200))
    )

    def epilogue(acc: Any, c: Any, bias: Any) -> dict[str, Any]:
        d = acc + c + bias
        return {"d": d, "total": tilewright.sum(d, axis=-2), "most": tilewright.amax(d)}

    def run(text: str) -> Any:
        on = VmDevice(FEW, checked=True)
        return tilewright.matmul(a, b, device=on, config=text, epilogue=epilogue, c=c, bias=bias)

    found, want = run(config.format("+sk5")), run(config.format(""))
    assert all(np.array_equal(found[name], want[name]) for name in want)


def exchanged(seed: int, change: Callable[[str], str] = str) -> bool:
    """Whether D is right, of a product in three tiles over five CTAs, by kernels of other text."""
    config, problem = parse("tma:64x64x64:1:3+sk5"), Problem(64, 64 * 3, 1280, d="f32")
    m, ones = Machine(seed=seed, step_limit=2_000_000), np.ones((192, 1280), np.float16)
    d = np.zeros((64, 192), np.float32)
    places = [m.upload(ones[:64]), m.upload(ones), 0, m.upload(d)]
    places += [m.alloc(workspace_bytes(problem, config, FEW)), *[0] * 32]
    strides = {name: MatrixStrides(n) for name, n in (("a", 1280), ("b", 1280), ("d", 192))}
    for launch in launches(problem, config, strides, FEW):
        made, shape = launch.kernel.trace(), launch.shape
        m.load(ptx_parse(change(made.ptx)))
        block = bytes(launch.arguments.pack(places, ((1.0, 0), (0.0, 0))))
        m.launch(
            made.name, shape.grid, shape.block, block, shared=made.dynamic_shared,
            programmatic=shape.programmatic,
        )  # fmt: skip
    return bool((m.download(places[3], d) == 1280).all())


def test_an_owner_waits_for_the_flags_of_the_others() -> None:
    """It ends never where no flag is set, and is wrong in some order where all are set before."""
    assert all(map(exchanged, range(4)))
    release, reset = r"(st\.release\.gpu\.global\.u32\s+\[\S+\]), 1;", r"(st\.global\.u32\s.*), 0;"
    with pytest.raises(VmFault, match="step"):
        exchanged(0, lambda ptx: re.sub(release, r"\1, 0;", ptx))
    assert not all(exchanged(s, lambda ptx: re.sub(reset, r"\1, 1;", ptx)) for s in range(4))


# --- configurations -----------------------------------------------------------------------------


def test_the_workspace_has_a_flag_and_an_accumulator_for_each_warpgroup() -> None:
    config, problem = parse("tma:128x64x64:2:3+sk3"), Problem(128, 64 * 6, 640)
    assert workspace_bytes(problem, config, FEW) == 128 + 5 * 128 * 64 * 4
    assert len(kernels(problem, config, FEW)) == 2
    whole = Problem(128, 64 * 5, 640)
    assert workspace_bytes(whole, config, FEW) == 0 and len(kernels(whole, config, FEW)) == 1


@every_row(
    "text",
    [
        "tma:64x64x64:1:3d+sk3",
        "tma:64x64x64:1:3*2+sk3",
        "tma:64x64x64:1:3+sk3+2",
        "tma:64x64x64:1:3+sk1",
        "tma:64x64x64:1:3+sk0",
        "tma:64x64x64+sk0",
    ],
)
def test_invalid_configurations(text: str) -> None:
    with pytest.raises(ConfigError, match=r"stream-K (excludes|must)|expected a configuration"):
        parse(text)
