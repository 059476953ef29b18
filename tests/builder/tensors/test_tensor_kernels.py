"""Tensors in kernels: what a thread copies, computes and multiplies is what the host does, bit for
bit; and a tile finds every element through any partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from layout_strategies import compact_layouts, layouts, shapes
from rows import every_row
from tilewright.dtypes import dtype, from_numpy
from tilewright.layout import (
    Layout,
    LayoutRight,
    Swizzle,
    Tensor,
    composition,
    lazy_transform,
    local_partition,
    local_tile,
    make_fragment_like,
    make_identity_tensor,
    make_layout,
    make_predicate,
    make_tensor,
    tensor_algorithms,
    tile_to_shape,
)
from tilewright.mma import (
    CopyAtom,
    CpAsync,
    MmaAtom,
    TiledMma,
    UniversalCopy,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    matrix_product,
)
from tilewright.vm import Machine
from tracing import traced

pytestmark = pytest.mark.vm

few = examples(10)
Array = np.ndarray[Any, Any]


def run(body: Callable[..., Any], *arrays: Array, block: int = 1) -> list[Array]:
    """The arrays after ``body(k, pointer, …)`` in one CTA."""
    kernel = traced(body, *(f"ptr {from_numpy(a.dtype)} align 16" for a in arrays), block=block)
    m = Machine()
    m.load(kernel.module)
    places = [m.upload(a) for a in arrays]
    m.launch(kernel.name, 1, block, places, shared=kernel.dynamic_shared)
    return [m.download(p, like=a) for p, a in zip(places, arrays, strict=True)]


def numbers(t: str, count: int, seed: int = 0) -> Array:
    """Numbers of a format, whose products stay finite."""
    rng, given = np.random.default_rng(seed), dtype(t)
    if given.kind == "float":
        return rng.standard_normal(count).astype(np.float32).astype(given.numpy)
    return rng.integers(*given.range, count, given.numpy, endpoint=True)


def same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


# --- the law: the host's result -------------------------------------------------------------------

FORMATS = ("f16", "bf16", "f32", "f64", "s8", "u8", "s16", "s32", "u32", "s64")


@st.composite
def two_layouts(draw: Any) -> tuple[Layout, Layout]:
    """Of one size, the second without collisions."""
    first = draw(layouts())
    return first, draw(compact_layouts(st.sampled_from([1, 2]), shape=first.shape))


@few
@given(two_layouts(), st.sampled_from(FORMATS))
def test_a_copy_moves_each_element(given: tuple[Layout, Layout], t: str) -> None:
    """From memory to registers to shared memory to memory, by whatever vectors fit."""
    one, other = given

    def body(k: Any, x: Any, y: Any) -> None:
        src, dst = make_tensor(x, one), make_tensor(y, other)
        held, shared = make_fragment_like(src), k.make_smem_tensor(other, t)
        k.copy(src, held)
        k.copy(held, shared)
        k.copy(shared, dst)

    x, y = numbers(t, one.cosize()), numbers(t, other.cosize(), 1)
    want = y.copy()
    tensor_algorithms.copy(make_tensor(x, one), make_tensor(want, other))
    assert same(run(body, x, y)[1], want)


CONVERSIONS = [
    ("f32", "f16"), ("f32", "bf16"), ("f16", "f32"), ("bf16", "f32"), ("f64", "f32"),
    ("f16", "f64"), ("f32", "s32"), ("f16", "s8"), ("f32", "u8"), ("s8", "f16"), ("u8", "f32"),
    ("s32", "f32"), ("s32", "s8"), ("s8", "s32"), ("u16", "s64"), ("f16", "bf16"),
]  # fmt: skip


@every_row(("given", "expected"), CONVERSIONS, parts=3)
def test_a_copy_converts(given: str, expected: str) -> None:
    shape, strides = (4, 3, 2), (3, 1, 12)

    def body(k: Any, x: Any, y: Any) -> None:
        k.copy(make_tensor(x, shape), make_tensor(y, Layout(shape, strides)))

    x = numbers(given, 24) if given[0] != "s" else numbers(given, 24) // 3
    y = np.zeros(24, dtype(expected).numpy)
    want = y.copy()
    tensor_algorithms.copy(make_tensor(x, shape), make_tensor(want, Layout(shape, strides)))
    assert same(run(body, x, y)[1], want)


@every_row("t", ["f16", "bf16", "f32", "f64", "s32", "u16"], parts=5)
@every_row("beta", [0, 3])
def test_fill_transform_and_axpby(t: str, beta: int) -> None:
    layout = Layout((4, 5), (8, 1))
    held = Layout((4, 5), (5, 1))

    def work(on: Any, x: Tensor, y: Tensor, z: Tensor) -> None:
        on.transform(x, lambda a: a + a)
        on.transform(x, y, z, lambda a, b: a * b)
        on.axpby(2, x, beta, y)
        on.fill(x, 7)

    def body(k: Any, x: Any, y: Any, z: Any) -> None:
        given = [make_tensor(p, layout) for p in (x, y, z)]
        z_held = k.make_rmem_tensor(held, t)
        k.copy(given[2], z_held)
        work(k, given[0], given[1], z_held)
        k.copy(z_held, given[2])

    arrays = [numbers(t, 32, i) for i in range(3)]
    want = [a.copy() for a in arrays]
    work(tensor_algorithms, *(make_tensor(a, layout) for a in want))
    assert all(map(same, run(body, *arrays), want))


@few
@given(shapes, st.integers(0, 7))
def test_a_predicate_picks_elements(shape: Any, limit: int) -> None:
    layout = Layout(shape)
    bound = Layout(shape).size() * limit // 7

    def body(k: Any, x: Any, y: Any) -> None:
        pred = make_predicate(make_identity_tensor(layout.size()), bound)
        k.copy(make_tensor(x, layout), make_tensor(y, layout), pred=pred)

    x, y = numbers("f16", layout.size()), numbers("f16", layout.size(), 1)
    assert same(run(body, x, y)[1], np.concatenate([x[:bound], y[bound:]]))


# --- tiles ----------------------------------------------------------------------------------------


@few
@given(st.sampled_from([(2, 3, 3), (3, 3, 3), (1, 4, 3), (0, 0, 0)]), st.sampled_from([4, 8, 16]))
def test_a_swizzled_tile_keeps_its_elements(swizzle: tuple[int, int, int], wide: int) -> None:
    """Threads write it by one partition and read it by another."""
    rows, columns, threads = 32, 64, 64
    layout = composition(Swizzle(*swizzle), Layout((rows, columns), (columns, 1)))
    writers = Layout((16, 4), (4, 1))
    readers = Layout((8, 8))

    def body(k: Any, x: Any, y: Any) -> None:
        shared = k.make_smem_tensor(layout, "f16")
        matrix = Layout((rows, columns), (columns, 1))
        atom = CopyAtom(UniversalCopy(8 * wide), "f16")
        copy = make_tiled_copy(atom, writers, Layout((1, wide // 2))).thr_slice(k.tid.x)
        src, dst = copy.partition_S(make_tensor(x, matrix)), copy.partition_D(shared)
        k.copy(copy.tiled, src, dst)
        k.barrier()
        parts = (local_partition(t, readers, k.tid.x) for t in (shared, make_tensor(y, matrix)))
        k.copy(*parts)

    x = numbers("f16", rows * columns)
    assert same(run(body, x, np.zeros_like(x), block=threads)[1], x)


@every_row(("rows", "columns"), [(16, 32), (13, 32), (16, 29), (1, 1), (5, 7)], parts=2)
def test_edges_by_predicates(rows: int, columns: int) -> None:
    """Whole chunks and rows are skipped, a chunk that crosses the edge is filled with zeros."""
    pitch, tile = 40, (16, 32)

    def body(k: Any, x: Any, y: Any) -> None:
        copy = make_tiled_copy(CopyAtom(CpAsync(16), "f16"), Layout((8, 4), (4, 1)), Layout((1, 8)))
        thread = copy.thr_slice(k.tid.x)
        shared = k.make_smem_tensor(Layout(tile, (32, 1)), "f16")
        k.fill(local_partition(shared, Layout((8, 4), (4, 1)), k.tid.x), 7.0)
        k.barrier()
        where = thread.partition_S(make_identity_tensor(tile))[0, None, None]
        inside = make_predicate(where, (rows, columns))
        left = lazy_transform(where, lambda at: k.min(columns - at[1], 8) * 2)
        src = thread.partition_S(make_tensor(x, Layout(tile, (pitch, 1))))
        k.copy(copy, src, thread.partition_D(shared), pred=inside, valid=left)
        k.cp_async_commit()
        k.cp_async_wait()
        k.barrier()
        out = make_tensor(y, Layout(tile, (32, 1)))
        k.copy(*(local_partition(t, Layout((8, 4), (4, 1)), k.tid.x) for t in (shared, out)))

    x = numbers("f16", 16 * pitch)
    got = run(body, x, np.zeros(512, np.float16), block=32)[1].reshape(tile)
    want = np.full(tile, 7, np.float16)
    want[:rows, : -(-columns // 8) * 8] = 0
    want[:rows, :columns] = x.reshape(16, pitch)[:rows, :columns]
    assert same(got, want)


# --- products -------------------------------------------------------------------------------------

PRODUCTS = [
    ("m16n8k16", "f32.f16.f16.f32", "f16", "f32"), ("m16n8k8", "f32.f16.f16.f32", "f16", "f32"),
    ("m16n8k16", "f16.f16.f16.f16", "f16", "f16"), ("m8n8k4", "f64.f64.f64.f64", "f64", "f64"),
    ("m16n8k16", "f32.bf16.bf16.f32", "bf16", "f32"), ("m16n8k32", "s32.s8.s8.s32", "s8", "s32"),
    ("m16n8k8", "f32.tf32.tf32.f32", "f32", "f32"),
    ("m16n8k32", "f32.e4m3.e4m3.f32", "e4m3", "f32"),
]  # fmt: skip


@every_row(("shape", "names", "t", "of_c"), PRODUCTS, parts=3)
def test_a_product_of_fragments(shape: str, names: str, t: str, of_c: str) -> None:
    """Two by two warps, several atoms for each, K in steps; one thread's part by k.gemm."""
    mma = TiledMma(MmaAtom(f"mma.sync.aligned.{shape}.row.col.{names}"), (2, 2, 1))
    m, n, k_tile = mma.tile_size_mnk
    sizes = 2 * m, 3 * n, 2 * k_tile
    a_layout, b_layout = Layout((sizes[0], sizes[2]), (sizes[2], 1)), Layout((sizes[1], sizes[2]))
    c_layout = Layout(sizes[:2], (sizes[1], 1))
    layouts = a_layout, b_layout, c_layout

    def body(k: Any, a: Any, b: Any, c: Any) -> None:
        thread = mma.thr_slice(k.tid.x)
        given = [make_tensor(p, layout) for p, layout in zip((a, b, c), layouts, strict=True)]
        cut = thread.partition_A, thread.partition_B, thread.partition_C
        parts = [f(x) for f, x in zip(cut, given, strict=True)]
        held = [make_fragment_like(p) for p in parts]
        for part, fragment in zip(parts, held, strict=True):
            k.copy(part, fragment)
        k.gemm(mma, *held)
        k.copy(held[2], parts[2])

    types = zip((t, t, of_c), layouts, strict=True)
    arrays = [numbers(x, layout.size(), i) for i, (x, layout) in enumerate(types)]
    want = [x.copy() for x in arrays]
    matrix_product.gemm(mma, *map(make_tensor, want, layouts))
    assert same(run(body, *arrays, block=mma.size)[2], want[2])


def test_a_product_without_an_instruction() -> None:
    """An FMA for each (m, n, k); A and B stay in memory until they are needed."""
    a_layout, b_layout, c_layout = Layout((4, 6)), Layout((3, 6), (6, 1)), Layout((4, 3))

    def body(k: Any, a: Any, b: Any, c: Any) -> None:
        acc = make_fragment_like(make_tensor(c, c_layout))
        k.clear(acc)
        k.gemm(make_tensor(a, a_layout), make_tensor(b, b_layout), acc)
        k.copy(acc, make_tensor(c, c_layout))

    arrays = [numbers("f64", n, n) for n in (24, 18, 12)]
    got = make_tensor(run(body, *arrays)[2], c_layout).to_numpy()
    a, b = (make_tensor(*x).to_numpy() for x in zip(arrays[:2], (a_layout, b_layout), strict=True))
    assert np.allclose(got, a @ b.T, rtol=1e-14)


@pytest.mark.parametrize("major", ["k", "mn"])
def test_through_shared_memory_by_tiled_copies(major: str) -> None:
    """cp.async into a swizzled tile, ldmatrix out of it into fragments, a product."""
    t = "f16"
    mma = TiledMma(
        MmaAtom("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), (2, 2, 1), (32, 32, 16)
    )
    fetch = CopyAtom(CpAsync(16), t)
    across = Layout((16, 8), (8, 1)) if major == "k" else Layout((4, 32), (1, 4))
    chunk = Layout((1, 8)) if major == "k" else Layout((8, 1))
    line = (64, 1) if major == "k" else (1, 32)
    block = composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)))
    if major == "mn":
        block = composition(Swizzle(2, 3, 3), Layout((32, 8), (1, 32)))
    matrix = "ldmatrix.sync.aligned.m8n8.x4" + (".trans" if major == "mn" else "") + ".shared.b16"
    load = CopyAtom(matrix, t)

    def fragments(k: Any, source: Any, loads: Any, partition: Any) -> Tensor:
        shared = k.make_smem_tensor(tile_to_shape(block, (32, 64)), t)
        copy = make_tiled_copy(fetch, across, chunk)
        thread = copy.thr_slice(k.tid.x)
        src = make_tensor(source, Layout((32, 64), line))
        k.copy(copy, thread.partition_S(src), thread.partition_D(shared))
        k.cp_async_commit()
        k.cp_async_wait()
        k.barrier()
        held = make_fragment_like(partition(src))
        thread = loads.thr_slice(k.tid.x)
        k.copy(loads, thread.partition_S(shared), thread.retile(held))
        return held

    def body(k: Any, a: Any, b: Any, c: Any) -> None:
        thread = mma.thr_slice(k.tid.x)
        out = thread.partition_C(make_tensor(c, Layout((32, 32), (32, 1))))
        acc = make_fragment_like(out)
        k.clear(acc)
        left = fragments(k, a, make_tiled_copy_A(load, mma), thread.partition_A)
        right = fragments(k, b, make_tiled_copy_B(load, mma), thread.partition_B)
        k.gemm(mma, left, right, acc)
        k.copy(acc, out)

    arrays = [numbers(t, 2048), numbers(t, 2048, 1), np.zeros(1024, np.float32)]
    want = np.zeros((32, 32), np.float32)
    a, b = (make_tensor(x, Layout((32, 64), line)) for x in arrays[:2])
    matrix_product.gemm(mma, a, b, make_tensor(want))
    assert same(run(body, *arrays, block=128)[2], want)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_tiles_of_a_matrix_of_any_pitch(dynamic: bool) -> None:
    """Tiles and threads cover the matrix; its size and pitch may be registers."""
    threads = make_layout((8, 4), LayoutRight)

    def body(k: Any, x: Any, y: Any, n: Any) -> None:
        rows, pitch = (n[0], n[1].to("u64")) if dynamic else (24, 40)
        layout = Layout((rows, 36), (pitch, 1))
        for i in range(3):
            tiles = (local_tile(make_tensor(p, layout), (8, 12), (i, None)) for p in (x, y))
            k.copy(*(local_partition(t, threads, k.tid.x) for t in tiles))

    x = numbers("f32", 24 * 40)
    got = run(body, x, np.zeros_like(x), np.array([24, 40], np.uint32), block=32)[1]
    assert same(got.reshape(24, 40)[:, :36], x.reshape(24, 40)[:, :36])
    assert not got.reshape(24, 40)[:, 36:].any()
