"""``matmul`` on a GPU: the virtual machine's bits, in place, on the caller's stream, in a graph."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright import cuda
from tilewright.errors import DeviceError

pytestmark = pytest.mark.gpu


def numbers(*shape: int, dtype: Any = np.float16) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@pytest.mark.sm("sm_90a")  # the virtual machine's arithmetic is this one's
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("cut", [lambda x: x, lambda x: x[1:, 1:], lambda x: x.T[::-1, ::2]])
def test_numpy_arrays_give_the_same_bits_as_on_the_virtual_machine(cut: Any, dtype: Any) -> None:
    a = cut(numbers(99, 99, dtype=dtype))
    b, c = numbers(a.shape[1], 57, dtype=dtype), numbers(a.shape[0], 57, dtype=np.float32)
    options: dict[str, Any] = {"c": c, "alpha": 0.3, "beta": 0.7, "out_dtype": "f32"}
    here = tilewright.matmul(a, b, device="cuda", **options)
    assert np.array_equal(
        here.view(np.uint32), tilewright.matmul(a, b, device="vm", **options).view(np.uint32)
    )


def test_a_plan_for_the_gpu_reports_registers() -> None:
    text = tilewright.plan(512, 512, 512, device="cuda").explain()
    assert "registers per thread" in text and "local memory" not in text


def test_arrays_on_the_gpu_need_the_gpu() -> None:
    torch = pytest.importorskip("torch")
    a = torch.zeros(8, 8, device="cuda", dtype=torch.float16)
    with pytest.raises(
        DeviceError, match="device must be 'cuda:0', where the arrays are, got 'vm'"
    ):
        tilewright.matmul(a, a, device="vm")
    with pytest.raises(DeviceError, match="b must be on cuda:0, where a is, got b on cpu"):
        tilewright.matmul(a, a.cpu())


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_torch_tensors_in_place_on_the_current_stream(name: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randint(-4, 5, s, device="cuda").to(getattr(torch, name)) for s in ((65, 200),
            (200, 90)))  # fmt: skip
    exact = a.double() @ b.double()
    with torch.cuda.stream(torch.cuda.Stream()):
        d = tilewright.matmul(a, b, out_dtype=torch.float32)
        strided = torch.full((65, 180), 7.0, device="cuda")
        tilewright.matmul(a, b, out=strided[:, ::2])
        back = tilewright.matmul(a.flip(0)[:, ::2], b[::2], out_dtype="f32")
        torch.cuda.current_stream().synchronize()
    assert d.is_cuda and torch.equal(d.double(), exact)
    assert torch.equal(strided[:, ::2].double(), exact) and bool((strided[:, 1::2] == 7).all())
    assert torch.equal(back.double(), a.double().flip(0)[:, ::2] @ b[::2].double())


def test_a_captured_call_reads_the_factors_of_each_replay() -> None:
    torch = pytest.importorskip("torch")
    a = torch.randint(-4, 5, (64, 64), device="cuda").to(torch.float16)
    alpha, out = torch.ones(1, device="cuda"), torch.empty(64, 64, device="cuda")
    tilewright.matmul(a, a, alpha=alpha, out=out)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tilewright.matmul(a, a, alpha=alpha, out=out)
    for factor in (2.0, -3.0):
        alpha.fill_(factor)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out.double(), factor * (a.double() @ a.double()))


def test_a_user_kernel(gpu: cuda.Gpu) -> None:
    @tilewright.kernel(block=32)
    def doubled(k, x: "ptr f32"):  # noqa: F722
        x[k.tid.x] = x[k.tid.x] * 2.0

    x = np.arange(32, dtype=np.float32)
    doubled[1](x, device="cuda")
    assert np.array_equal(x, 2 * np.arange(32))
