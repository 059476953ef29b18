"""Repeated calls with torch tensors: the short way sees all that makes another call."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tilewright
from tilewright import gemm
from tilewright.errors import ProblemError
from tilewright.run import CudaDevice, device
from tilewright.run.arrays.array_view import kind_of
from tilewright.run.devices.device_protocol import KernelSource

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu
SCALE = 1.0


def whole(*shape: int, dtype: Any = None) -> Any:
    """Small integers, whose sums are exact."""
    return torch.randint(-4, 5, shape, device="cuda").to(dtype or torch.float16)


def right(d: Any, a: Any, b: Any) -> bool:
    return bool(torch.equal(d.double(), a.double() @ b.double()))


def test_repeated_and_other_calls() -> None:
    for _ in range(2):
        for dtype in (torch.float16, torch.bfloat16):
            a, b = whole(96, 64, dtype=dtype), whole(64, 80, dtype=dtype)
            turned = whole(80, 64, dtype=dtype).t()
            part = whole(96, 144, dtype=dtype)[:, 8:72]
            for x, y in ((a, b), (a, turned), (part, b)):
                assert right(tilewright.matmul(x, y, out_dtype="f32"), x, y)
                out = torch.empty(96, 80, device="cuda")
                assert tilewright.matmul(x, y, out=out) is out and right(out, x, y)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch's own modules
def test_gradients_are_recorded_beside_the_fast_path() -> None:
    a, b = whole(96, 64), whole(64, 96)
    w, out = torch.nn.Parameter(a), torch.empty(96, 96, device="cuda", dtype=torch.float16)
    for _ in range(3):
        with torch.no_grad():
            assert right(tilewright.matmul(w, b), a, b)
            assert right(tilewright.matmul(w, b, out=out), a, b)
        recorded = tilewright.matmul(w, b)
        assert recorded.requires_grad and right(recorded.detach(), a, b)
        with pytest.raises(ProblemError, match="out must be None where a gradient is recorded"):
            tilewright.matmul(w, b, out=out)
    forward = torch.autograd.forward_ad
    for _ in range(2):
        tilewright.matmul(a, b)
    with forward.dual_level():
        found = forward.unpack_dual(tilewright.matmul(forward.make_dual(a, 2 * a), b))
    assert right(found.primal, a, b) and right(found.tangent, 2 * a, b)


def test_calls_with_an_epilogue_and_layers() -> None:
    w, out = torch.nn.Parameter(whole(80, 64)), torch.empty(96, 80, device="cuda")
    assert kind_of(w) is kind_of(out)
    for number in range(3):
        a, bias, r = whole(96, 64), whole(80), whole(96, 80, dtype=torch.float32)
        wanted = a.double() @ w.double().T + bias + r
        with pytest.raises(ProblemError, match="out must be None where a gradient is recorded"):
            tilewright.linear(a, w, bias, out=out)
        with torch.no_grad():
            before = out._version
            got = tilewright.linear(a, w, bias, residual=r, out=out)
            assert got is out and out._version > before and torch.equal(out.double(), wanted)
            d = tilewright.matmul(
                a, w.T, epilogue=lambda acc, x, r: (acc + x + r) * SCALE, x=bias, r=r, out=r
            )
            assert d is r and torch.equal(r.double(), wanted)
            amax = tilewright.matmul(
                a, w.T, epilogue=lambda acc, s: {"d": acc * s, "amax": tilewright.amax(acc)},
                s=torch.full((1,), float(number), device="cuda"), out_dtype="f32",
            )  # fmt: skip
        product = a.double() @ w.detach().double().T
        assert torch.equal(amax["d"].double(), number * product)
        assert float(amax["amax"]) == float(product.abs().max())


def test_torch_is_notified_of_writes() -> None:
    a, b, out = whole(96, 64), whole(64, 96), whole(96, 96)
    for _ in range(3):
        before = out._version
        tilewright.matmul(a, b, out=out)
        assert out._version > before


def test_guards_distinguish_tensors() -> None:
    """What ``fits`` of a kind is for; without it each call goes the long way."""
    a, b = whole(96, 64), whole(64, 96)
    fast_ops = kind_of(a).fast_ops([a, b])  # type: ignore[misc]
    assert (
        fast_ops is not None and fast_ops.fits(a, b) and fast_ops.fits(whole(96, 64), whole(64, 96))
    )
    others = a[:64], a.bfloat16(), a.cpu(), b.t(), torch._neg_view(a), torch.nn.Parameter(a), None
    assert not any(fast_ops.fits(x, b) for x in others)


def test_streams_and_threads() -> None:
    a, b = whole(512, 512), whole(512, 512)
    failed = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = a.clone()
            for _ in range(20):
                d = tilewright.matmul(x, b, out_dtype="f32")
                if not right(d, x, b):
                    failed.append(d)
                x = x.flip(0)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize(
    "config", ["tma:128x64x64:2:4*5", "tma:64x64x64:2p:4+2", "tma:64x64x64:1:4d"]
)
def test_concurrent_calls_and_replays(config: str) -> None:
    """What a call or a graph needs besides its operands is its own."""
    b, plans, graphs = whole(2048, 1000), [], []
    for _ in range(2):
        a, out = whole(900, 2048), torch.empty(900, 1000, device="cuda")
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        plan = tilewright.plan(a, b, out=out, config=config)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            plan.run(a, b, out=out)
            with torch.cuda.graph(graph, stream=stream):
                plan.run(a, b, out=out)
        graphs.append((graph, stream, a, out))
        plans.append((plan, torch.cuda.Stream(), whole(900, 2048), torch.empty_like(out)))
    torch.cuda.synchronize()
    for _ in range(30):
        for graph, stream, _, out in graphs:
            with torch.cuda.stream(stream):
                out.fill_(torch.nan)
                graph.replay()
        for plan, stream, a, out in plans:
            with torch.cuda.stream(stream):
                out.fill_(torch.nan)
                plan.run(a, b, out=out)
    torch.cuda.synchronize()
    assert all(right(out, a, b) for _, _, a, out in (*graphs, *plans))


def test_a_repeated_call_is_captured() -> None:
    a, b, out = whole(128, 64), whole(64, 128), torch.empty(128, 128, device="cuda")
    plan = tilewright.plan(a, b, out=out)
    for _ in range(2):
        plan.run(a, b, out=out)
        tilewright.matmul(a, b, out_dtype="f32")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run(a, b, out=out)
        d = tilewright.matmul(a, b, out_dtype="f32")
    a.copy_(whole(128, 64))
    graph.replay()
    torch.cuda.synchronize()
    assert right(out, a, b) and right(d, a, b)


def test_a_cached_kernel_is_not_traced_again() -> None:
    on = device("cuda")
    assert isinstance(on, CudaDevice)
    problem = gemm.Problem(64, 64, 64, "f16", "f16", "f16", "k", "n")
    lines = {name: gemm.MatrixStrides(64) for name in "abd"}
    step = gemm.launches(problem, gemm.choose(problem, on.target), lines, on.target)[0]
    ref = KernelSource(str(step.kernel), step.kernel.trace)
    function, shared = on.kernel(ref)

    def refuses() -> Any:
        raise AssertionError("traced")

    again = CudaDevice(on.gpu).kernel(ref._replace(trace=refuses))
    assert (again[0].name, again[1]) == (function.name, shared)
