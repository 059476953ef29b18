"""DTensor: the placements of results and gradients, and this rank's part of them.

The process group is torch's fake one: two ranks, of which this process is the first. Collectives
return what this rank has, so only results that need none are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
VM = {"device": "vm"}
M, K, N = 6, 16, 16


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    pytest.importorskip("torch.distributed.tensor.experimental")
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=fake.FakeStore())
    yield torch.distributed.init_device_mesh("cpu", (2,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("activation", [None, "silu"])
def test_parallel_layers(mesh: Any, activation: str | None) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    whole, rows, columns = Replicate(), Shard(0), Shard(1)
    parts = torch.randn(M, K), torch.randn(N, K), torch.randn(N)
    options = {"activation": activation, **VM}
    alone = tilewright.linear(*parts, **options)

    def of(*placements: Any) -> list[Any]:
        tensors = [DTensor.from_local(t, mesh, [p], run_check=False)
                   for t, p in zip(parts, placements, strict=False)]  # fmt: skip
        return [t.requires_grad_() for t in tensors]

    data = of(rows, whole, whole)
    y = tilewright.linear(*data, **options)
    assert y.placements == (rows,) and y.shape == (2 * M, N)
    assert torch.equal(y.to_local(), alone)
    dx, dw, dbias = torch.autograd.grad(y, data, DTensor.from_local(alone, mesh, [rows]))
    assert dx.placements == (rows,) and dw.placements == dbias.placements == (Partial(),)

    column = of(whole, rows, rows)
    y = tilewright.linear(*column, **options)
    assert y.placements == (columns,) and torch.equal(y.to_local(), alone)
    dx, dw, dbias = torch.autograd.grad(y, column, DTensor.from_local(alone, mesh, [columns]))
    assert dx.placements == (Partial(),) and dw.placements == dbias.placements == (rows,)

    x, w = of(columns, columns)
    y = tilewright.linear(x, w, **options)  # no partial sum goes through an activation
    assert y.placements == ((Partial(),) if activation is None else (whole,))


def test_products(mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    a, b = torch.randn(2, M, K), torch.randn(2, K, N)
    cases = [
        (Shard(0), Shard(0), Shard(0)), (Shard(1), Replicate(), Shard(1)),
        (Replicate(), Shard(2), Shard(2)), (Shard(2), Shard(1), Partial()),
    ]  # fmt: skip
    for of_a, of_b, of_d in cases:
        d = tilewright.matmul(
            *(DTensor.from_local(t, mesh, [p], run_check=False) for t, p in ((a, of_a), (b, of_b))),
            **VM,
        )  # fmt: skip
        assert d.placements == (of_d,)
        assert torch.equal(d.to_local(), tilewright.matmul(a, b, **VM))
