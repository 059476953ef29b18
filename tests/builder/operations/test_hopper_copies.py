"""Kernels of the builder's bulk and tensor copies, run: sums over CTAs, pixels, a pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.builder import trace
from tilewright.mma import TensorMap
from tilewright.mma.tensor_maps.tma_copy import load
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

MAP = "bytes 128 align 64"
COUNT = 256


def run(kernel, params, arrays, arguments, grid=1, seed=0):
    """The arrays afterwards; ``arguments`` are made of their addresses."""
    machine = Machine(seed=seed)
    machine.load(trace(kernel, name="f", params=params, block=32).ptx)
    places = [machine.upload(x) for x in arrays]
    machine.launch("f", grid, 32, arguments(*places))
    return [machine.download(p, x) for p, x in zip(places, arrays, strict=True)]


def begun(k, dtype: str, count: int):
    """Shared memory for so many elements, and an mbarrier that one thread arrives at."""
    buf, bar = k.shared(dtype, count, align=128), k.shared("b64", 1)
    with k.when(k.tid.x == 0):
        k.mbarrier_init(bar, 1)
        k.fence_mbarrier_init()
    k.barrier()
    return buf, bar


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ctas_reduce_into_one_tile(seed):
    def kernel(k, a, c):
        buf, bar = begun(k, "f16", COUNT)
        with k.if_(k.tid.x == 0):
            k.mbarrier_arrive(bar, bytes=2 * COUNT)
            k.bulk_load(buf, a + k.ctaid.x * COUNT, 2 * COUNT, bar)
            k.mbarrier_wait(bar, 0)
            k.bulk_reduce(c, buf, 2 * COUNT)
            k.bulk_store(a + k.ctaid.x * COUNT, buf, 16)
            k.bulk_commit()
            k.bulk_wait()

    parts = np.random.default_rng(1).integers(-50, 50, (5, COUNT)).astype(np.float16)
    arrays = [parts, np.zeros(COUNT, np.float16)]
    params = {"a": "ptr f16 align 16", "c": "ptr f16 align 16"}
    a, c = run(kernel, params, arrays, lambda *at: at, 5, seed)
    np.testing.assert_array_equal(c, parts.sum(0))
    np.testing.assert_array_equal(a, parts)


def test_im2col_copies_are_reduced_into_a_matrix():
    shape, strides = (16, 6, 5, 2), (64, 384, 1920)
    pixels = TensorMap.im2col(0, "f32", shape, strides, (-1, -1), (-1, -1), 16, 24)
    matrix = TensorMap.tiled(0, "f32", (16, 24), (64,), (16, 24))

    def kernel(k, image, rows):
        buf, bar = begun(k, "f32", 16 * 24)
        with k.if_(k.tid.x == 0):
            k.tma_prefetch(rows, (0, 0))
            k.mbarrier_arrive(bar, bytes=4 * 16 * 24)
            k.tma_load(buf, image, (0, -1, -1, 0), bar, im2col=(2, 1))
            k.mbarrier_wait(bar, 0)
            k.tma_reduce(rows, (0, 0), buf)
            k.bulk_commit()
            k.bulk_wait()

    rng = np.random.default_rng(2)
    arrays = [rng.integers(0, 99, n).astype(np.float32) for n in (16 * 60, 16 * 24)]
    _, made = run(
        kernel,
        {"image": MAP, "rows": MAP},
        arrays,
        lambda x, y: [TensorMap.replace_address(m.encode(), at)
                      for m, at in ((pixels, x), (matrix, y))],
    )  # fmt: skip
    shared = np.zeros(4 * 16 * 24, np.uint8)
    load(pixels, arrays[0].view(np.uint8), shared, (0, -1, -1, 0), (2, 1))
    np.testing.assert_array_equal(made, arrays[1] + shared.view(np.float32))


def test_cp_async_completes_a_phase():
    def kernel(k, a, c):
        buf, bar = k.shared("u32", 128, align=16), k.shared("b64", 1)
        with k.when(k.tid.x == 0):
            k.mbarrier_init(bar, 32)
        k.barrier()
        k.cp_async(buf + k.tid.x * 4, a + k.tid.x * 4, 16)
        k.cp_async_mbarrier_arrive(bar, noinc=True)
        k.mbarrier_wait(bar, 0)
        c[k.tid.x] = buf[127 - k.tid.x]

    params = {"a": "ptr u32 align 16", "c": "ptr u32"}
    arrays = [np.arange(128, dtype=np.uint32), np.zeros(32, np.uint32)]
    _, made = run(kernel, params, arrays, lambda *at: at)
    np.testing.assert_array_equal(made, 127 - np.arange(32))
