"""Array adapters on a GPU: torch and CuPy arrays lead to their memory and their stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import cuda
from tilewright.run.arrays import array_view
from tilewright.run.arrays.memory_overlap import overlap


def torch_bf16() -> Any:
    torch = pytest.importorskip("torch")
    return torch.arange(24, device="cuda").reshape(4, 6).to(torch.bfloat16)


def cupy_f16() -> Any:
    cupy = pytest.importorskip("cupy")
    return cupy.arange(24).reshape(4, 6).astype(cupy.float16)


pytestmark = pytest.mark.gpu


class Foreign:
    """An array seen only by the named protocols."""

    def __init__(self, array: Any, *protocols: str) -> None:
        for name in protocols:
            setattr(self, name, getattr(array, name))


@pytest.mark.parametrize("make", [torch_bf16, cupy_f16])
def test_a_view_and_its_cuts(make: Any, gpu: cuda.Gpu) -> None:
    a = make()
    seen, cut = array_view.view(a), array_view.view(a[1:, ::2].T)
    assert seen[1:6] == ((4, 6), (6, 1), seen.dtype, "cuda:0", False)
    assert cut.address == seen.address + 12
    assert (cut.shape, cut.strides) == ((3, 3), (2, 6))
    gpu.wait()
    host = np.empty((4, 6), np.uint16)
    gpu.download(host, seen.address)
    assert host.view(np.uint16).any()
    assert overlap(seen, cut)


@pytest.mark.parametrize("make", [torch_bf16, cupy_f16])
def test_a_new_array_of_the_same_kind(make: Any) -> None:
    a = make()
    made = array_view.empty_like_kind(a, (3, 5), "f32")
    assert type(made) is type(a)
    assert array_view.view(made)[1:6] == ((3, 5), (5, 1), "f32", "cuda:0", False)


def test_protocols_agree_with_the_library() -> None:
    cupy = pytest.importorskip("cupy")
    a = cupy_f16()[1:, ::2]
    expected = array_view.view(a)[:6]
    assert array_view.view(Foreign(a, "__cuda_array_interface__"))[:6] == expected
    assert array_view.view(Foreign(a, "__dlpack__", "__dlpack_device__"))[:6] == expected
    cupy.cuda.get_current_stream().synchronize()


def test_dlpack_of_a_torch_tensor() -> None:
    a = torch_bf16().t()
    expected = array_view.view(a)[:6]
    assert array_view.view(Foreign(a, "__dlpack__", "__dlpack_device__"))[:6] == expected


def test_the_current_stream() -> None:
    torch = pytest.importorskip("torch")
    a = torch_bf16()
    assert array_view.stream_of(a) == torch.cuda.current_stream().cuda_stream
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        assert array_view.stream_of(a) == torch.cuda.current_stream().cuda_stream != 0


def test_the_current_cupy_stream() -> None:
    cupy = pytest.importorskip("cupy")
    a = cupy_f16()
    with cupy.cuda.Stream() as side:
        assert array_view.stream_of(a) == side.ptr != 0
