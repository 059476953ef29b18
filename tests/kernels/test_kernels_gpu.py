"""The shelf's kernels on a GPU: the bits of the virtual machine, and arrays of torch in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import kernels

pytestmark = pytest.mark.gpu

BF16 = ml_dtypes.bfloat16
RANDOM = np.random.default_rng(0)
CALLS: dict[str, Callable[..., Any]] = {
    "softmax": kernels.softmax,
    "rms_norm": lambda x, **on: kernels.rms_norm(x, x[0], **on),
    "layer_norm": lambda x, **on: kernels.layer_norm(x, x[0], x[1], **on),
    "sum": kernels.reduce,
    "max of columns": lambda x, **on: kernels.reduce(x, "max", 0, **on),
    "top": lambda x, **on: np.concatenate([y.astype("f8") for y in kernels.top_k(x, 3, **on)]),
    "rotary": lambda x, **on: kernels.rotary_embedding(
        x.reshape(-1, 1, 8), *np.ones((2, x.size // 8, 4), "f4"), **on
    ),
    "transpose": kernels.transpose,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("columns", "type_"), [(8192, BF16), (776, np.float16), (65536, np.float32)]
)
def test_bits_of_the_virtual_machine(name: str, columns: int, type_: Any) -> None:
    x = RANDOM.standard_normal((5, columns)).astype(type_)
    one, other = (np.asarray(CALLS[name](x, device=device)) for device in ("vm", "cuda"))
    assert one.tobytes() == other.tobytes()


def test_torch_tensors_of_any_strides() -> None:
    torch = pytest.importorskip("torch")
    base = torch.randn(64, 1001, device="cuda")
    for x in (base[:, 1:], base[::2, ::3], base.T, base[:, :1000].view(4, 16, 1000)[:, 0]):
        torch.testing.assert_close(kernels.softmax(x), x.softmax(-1), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(kernels.reduce(x), x.sum(-1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(kernels.transpose(x), x.T.contiguous())


@pytest.mark.parametrize("shape", [(4000, 8192), (16, 8192), (70000, 128), (300, 40000)])
@pytest.mark.parametrize("captured", [False, True], ids=["stream", "graph"])
def test_kernels_that_overlap_wait_for_each_other(shape: tuple[int, int], captured: bool) -> None:
    """Each kernel reads what the one before writes, and overwrites what that one reads: the bits
    are those of launches that are waited for.
    """
    torch = pytest.importorskip("torch")
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    a, b, y = x.clone(), torch.empty_like(x), torch.empty(shape[0], device="cuda")

    def chain(finish: Callable[[], Any]) -> Any:
        steps: list[Callable[[], Any]] = [
            lambda: a.copy_(x),
            lambda: kernels.softmax(a, out=b),
            lambda: kernels.layer_norm(b, out=a),
            lambda: kernels.reduce(a, "max", out=y),
            lambda: a.mul_(0.5),
            lambda: kernels.rms_norm(a, a[0].clone(), out=b),
            lambda: kernels.rms_norm(b, out=b),
            lambda: kernels.softmax(b, out=a),
        ]  # fmt: skip
        for step in steps * 3:
            step()
            finish()
        return kernels.reduce(a, "sum", 0)

    expected = chain(torch.cuda.synchronize), a.clone(), b.clone(), y.clone()
    run = lambda: chain(lambda: None)  # noqa: E731
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total = run()
        run = lambda: graph.replay() or total  # noqa: E731
    for _ in range(5):
        for t in (a, b, y):
            t.fill_(float("nan"))
        for got, want in zip((run(), a, b, y), expected, strict=True):
            assert torch.equal(got, want)
