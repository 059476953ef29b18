"""Tensor maps and clusters at a launch: kernels get maps of arrays, wherever those are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from ptx_kernels.cluster_neighbours import neighbours
from tilewright import mma, tensor_map
from tilewright.builder import ptr
from tilewright.builder import tensor_map as map_
from tilewright.errors import (
    DeviceError,
    DtypeError,
    KernelError,
    LaunchError,
    LayoutError,
    ProblemError,
)
from tilewright.layout import Layout
from tilewright.ptx.rules.requirements import module_requirements

pytestmark = pytest.mark.vm

BOX = 16, 64
X = np.arange(48 * 64, dtype=np.int16).reshape(48, 64)


@tilewright.kernel(block=32)
def moved(k: Any, source: map_, target: "tensor_map", x: ptr("s16")) -> None:
    """A box from (8, 0) on comes in, and goes out to (0, 0); one element is written besides."""
    place = k.shared("s16", BOX[0] * BOX[1], align=1024)
    bar = k.shared("b64", 1)
    with k.if_(k.tid.x == 0):
        k.mbarrier_init(bar, 1)
        k.fence_mbarrier_init()
        k.mbarrier_arrive(bar, bytes=BOX[0] * BOX[1] * 2)
        k.tma_load(place, source, (0, 8), bar)
        k.mbarrier_wait(bar, 0)
        k.tma_store(target, (0, 0), place)
        k.bulk_commit()
        k.bulk_wait()
        x[47 * 64] = -1


@pytest.mark.parametrize("swizzle", [0, 128])
def test_an_array_in_several_arguments_is_uploaded_once(swizzle: int) -> None:
    x, y = X.copy(), np.zeros_like(X)
    here = tensor_map(x, BOX, swizzle)
    moved[1](here, here, x, device="vm")
    np.testing.assert_array_equal(x[:16], X[8:24])
    np.testing.assert_array_equal(x[16:47], X[16:47])
    assert x[47, 0] == -1
    moved[1](tensor_map(X, BOX, swizzle), tensor_map(y, BOX, swizzle), x, device="vm")
    np.testing.assert_array_equal(y, np.concatenate([X[8:24], np.zeros_like(X[16:])]))


@pytest.mark.parametrize("major", ["K", "MN"])
def test_a_shared_memory_layout_determines_box_and_swizzle(major: str) -> None:
    shared = mma.make_smem_layout("bf16", major, (64, 32))
    x = np.zeros((128, 256), np.float16)
    given = x if major == "K" else x.T  # contiguous along K, along M
    found = tensor_map(given, shared)
    assert found.map.box == ((32, 64) if major == "K" else (64, 32))
    assert found.map.swizzle == (64 if major == "K" else 128)
    assert found.map.shape == (256, 128)


def test_a_read_only_array_may_be_read_but_not_written() -> None:
    x, y = X.copy(), np.zeros_like(X)
    x.flags.writeable = False
    fixed, free = tensor_map(x, BOX), tensor_map(y, BOX)
    moved[1](fixed, free, X.copy(), device="vm")
    assert y.any()
    with pytest.raises(LaunchError, match=r"target: .* moved writes it, got a read-only array"):
        moved[1](free, fixed, X.copy(), device="vm")
    np.testing.assert_array_equal(x, X)


ORDER = {"K": (0, 1), "MN": (1, 0)}
TILES = [
    mma.make_smem_layout("u16", major, (64, 32), swizzle, order)
    for major in ("K", "MN")
    for swizzle in (0, 32, 64)
    for order in (ORDER[major], (0, 1))
]


@pytest.mark.parametrize("shared", TILES, ids=str)
def test_a_tensor_is_filled_by_several_boxes(shared: Any) -> None:
    """A tile at (64, 32) of an array that is contiguous as the tile is: each element where the
    layout says, and back.
    """
    along_k = getattr(shared, "inner", shared)((0, 1)) == 1
    x = np.arange(128 * 96, dtype=np.uint16).reshape((128, 96) if along_k else (96, 128))
    x, y = (x, np.zeros_like(x)) if along_k else (x.T, np.zeros_like(x).T)
    at = (32, 64) if along_k else (64, 32)

    def body(k: Any, source: Any, target: Any, out: Any) -> None:
        tile, bar = k.make_smem_tensor(shared, "u16", align=1024), k.shared("b64", 1)
        with k.if_(k.tid.x == 0):
            k.mbarrier_init(bar, 1)
            k.fence_mbarrier_init()
            k.mbarrier_arrive(bar, bytes=64 * 32 * 2)
            k.tma_load(tile, source, at, bar)
            k.mbarrier_wait(bar, 0)
            k.tma_store(target, at, tile)
            k.bulk_commit()
            k.bulk_wait()
        k.barrier()
        for i in k.range(k.tid.x, 64 * 32, 32):
            out[i] = tile[i // 32, i % 32]

    params = {"source": "tensor_map", "target": "tensor_map", "out": "ptr u16"}
    kernel, out = tilewright.kernel(body, params=params, block=32), np.zeros((64, 32), np.uint16)
    kernel[1](tensor_map(x, shared), tensor_map(y, shared), out, device="vm")
    np.testing.assert_array_equal(out, x[64:, 32:64])
    np.testing.assert_array_equal(y[64:, 32:64], x[64:, 32:64])
    assert not y[:64].any() and not y[:, :32].any() and not y[:, 64:].any()


def test_arrays_on_a_device_are_mapped_in_place() -> None:
    with registered():
        x, y = Resident.of(X), Resident.of(np.zeros_like(X))
        maps = [tensor_map(a, BOX, 128) for a in (x, y)]
        moved[1](*maps, x)
        np.testing.assert_array_equal(y.numpy()[:16], X[8:24])
        assert x.numpy()[47, 0] == -1
        assert maps[0].map.address == x.memory.address
        with pytest.raises(DeviceError, match="one device, got source on vm and x on cpu"):
            moved[1](*maps, X.copy())
        with pytest.raises(LayoutError, match="address must be a multiple of 16"):
            tensor_map(x.cut((16, 64), (64, 1), offset=4), BOX)


F16 = np.zeros((32, 64), np.float16)
NO_MAPS = [
    (lambda: tensor_map(F16, (16,)), LayoutError, "box must have one extent for each"),
    (lambda: tensor_map(F16, 16), LayoutError, "box must have one extent for each"),
    (
        lambda: tensor_map(F16.T, (16, 8)),
        LayoutError,
        "last dimension must be contiguous.*\n.*array.T",
    ),
    (lambda: tensor_map(F16[:, :60], (512, 64)), LayoutError, "box extent 1"),
    (lambda: tensor_map(np.zeros((8, 9), np.float32), (4, 8)), LayoutError, "multiple of 16"),
    (lambda: tensor_map(F16, (16, 128), 128), LayoutError, "128"),
    (lambda: tensor_map(F16, BOX, 16), LayoutError, "swizzle"),
    (
        lambda: tensor_map(F16, Layout((16, 64), (64, 1)), 128),
        LayoutError,
        "swizzle must not be given with a layout",
    ),
    (lambda: tensor_map(F16, Layout((16, 64))), LayoutError, "no box"),
    (lambda: tensor_map([1, 2], (2,)), ProblemError, "expected an array, got list"),
    (lambda: tensor_map(F16, BOX, dtype="s4"), DtypeError, "1, 2, 4 or 8 bytes, got 4 bits"),
]


@pytest.mark.parametrize(("make", "error", "message"), NO_MAPS)
def test_invalid_tensor_maps(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_invalid_arguments() -> None:
    here, x = tensor_map(X, BOX), X.copy()
    for given, message in (
        ((X, here, x), "source: bytes 128 align 64 must be a tensor map, got an array"),
        ((here, here, here), "x: ptr s16 is not a tensor map, got tensor_map"),
        ((here, 7, x), "param_target"),
        ((here, None, x), "target: bytes 128 align 64 must be a tensor map, got None"),
    ):
        with pytest.raises(LaunchError, match=message):
            moved[1](*given, device="vm")
    padded = np.zeros((48, 72), np.int16)[:, :64]
    with pytest.raises(LaunchError, match="must be a contiguous array, got shape"):
        moved[1](tensor_map(padded, BOX), here, x, device="vm")
    numbers = tilewright.kernel(lambda k, n: None, params={"n": "u32"}, name="f")
    with pytest.raises(LaunchError, match="n: u32 must be a number, got None"):
        numbers[1, 1](None, device="vm")


# --- clusters ---


def test_the_cluster_of_a_kernel() -> None:
    x = np.zeros(4, np.uint32)
    neighbours[4](x, device="vm")
    assert x.tolist() == [1, 0, 3, 2]
    traced = neighbours.trace()
    assert ".reqnctapercluster 2, 1, 1\n" in traced.ptx and traced.cluster == (2, 1, 1)
    assert ("7.8", "sm_90") in {(str(v), str(t)) for v, t in module_requirements(traced.module)}
    with pytest.raises(LaunchError, match=r"grid .*cluster.* \(2, 1, 1\)"):
        neighbours[3](x, device="vm")
    with pytest.raises(KernelError, match="positive integers"):
        tilewright.kernel(lambda k: None, name="f", cluster=0).trace()


def test_an_im2col_map() -> None:
    image = np.arange(2 * 5 * 6 * 16, dtype=np.float32).reshape(2, 5, 6, 16)
    out = np.zeros((8, 16), np.float32)

    @tilewright.kernel(block=32)
    def pixels(k: Any, source: map_, target: "tensor_map") -> None:
        place, bar = k.shared("f32", 8 * 16, align=128), k.shared("b64", 1)
        with k.if_(k.tid.x == 0):
            k.mbarrier_init(bar, 1)
            k.fence_mbarrier_init()
            k.mbarrier_arrive(bar, bytes=out.nbytes)
            k.tma_load(place, source, (0, -1, 0, 1), bar, im2col=(2, 1))
            k.mbarrier_wait(bar, 0)
            k.tma_store(target, (0, 0), place)
            k.bulk_commit()
            k.bulk_wait()

    box = mma.Im2col((-1, -1), (-1, -1), 16, 8)  # of a 3×3 filter with a border of 1
    pixels[1](tensor_map(image, box), tensor_map(out, out.shape), device="vm")
    padded = np.pad(image[1], ((1, 1), (1, 1), (0, 0)))
    bases = [(y, x) for y in range(1, 3) for x in range(6)][:8]  # of the filter, in the padded one
    np.testing.assert_array_equal(out, [padded[y + 1, x + 2] for y, x in bases])
    with pytest.raises(LayoutError, match=r"im2col"):
        tensor_map(image[0, 0], box)
    with pytest.raises(LayoutError, match=r"tile=\(4,\)"):
        tensor_map(image, box, tile=(4,))
