"""Products with any number of batch dimensions on a GPU: read in place, results as torch's."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SHAPES = {
    "rows fold": ((2, 3, 40, 64), (64, 48)),
    "b is broadcast": ((6, 40, 64), (1, 64, 48)),
    "a is broadcast": ((40, 64), (5, 64, 48)),
    "a loop": ((2, 1, 40, 64), (3, 64, 48)),
    "vector by matrices": ((64,), (3, 64, 48)),
    "matrices by vector": ((3, 40, 64), (64,)),
    "dot product": ((64,), (64,)),
}


@pytest.mark.parametrize("config", [None, "tma:64x64x64:1:4", "64x64x32:2x2:3"])
@pytest.mark.parametrize("name", SHAPES)
def test_batch_dimensions(name: str, config: Any) -> None:
    a, b = (torch.randn(shape, device="cuda").half() for shape in SHAPES[name])
    if config and config.startswith("tma") and 1 in (a.ndim, b.ndim):
        pytest.skip("a vector is not aligned for TMA")
    expected = (a.double() @ b.double()).float()
    for _ in range(2):  # the second call takes the fast path
        got = tilewright.matmul(a, b, config=config)
        assert got.shape == expected.shape
        torch.testing.assert_close(got.float(), expected, atol=0.02, rtol=0.01)


def test_a_broadcast_matrix_is_not_copied() -> None:
    a = torch.randn((64, 128, 64), device="cuda").half()
    b = torch.randn((1, 64, 128), device="cuda").half().expand(64, -1, -1)
    out = torch.empty((64, 128, 128), device="cuda").half().mT.contiguous().mT
    tilewright.matmul(a, b, out=out)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    tilewright.matmul(a, b, out=out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    torch.testing.assert_close(out, torch.matmul(a, b), atol=0.02, rtol=0.01)
