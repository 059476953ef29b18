"""``moe`` on a GPU: the virtual machine's bits; tensors and CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from references.moe_layers import layer

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


def test_the_bits_are_a_virtual_machine_s() -> None:
    arguments = layer(tokens=20, hidden=64, intermediate=64, experts=5, choices=2)
    found, expected = (tilewright.moe(*arguments, device=device) for device in ("cuda", "vm"))
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("block", ["row", (128, 128)], ids=str)
def test_scaled_weights_have_the_bits_of_a_virtual_machine(block: Any) -> None:
    torch = pytest.importorskip("torch")
    x, *matrices, indices, weights = layer(20, hidden=256, intermediate=128, experts=5, choices=2)
    scaled = [tilewright.quantize(w.astype(np.float32), "e4m3", block) for w in matrices]
    expected = tilewright.moe(x, *scaled, indices, weights, device="vm")
    tensors = [torch.from_numpy(w.astype(np.float32)).cuda() for w in matrices]
    there = [tilewright.quantize(w, "e4m3", block) for w in tensors]
    rows = torch.from_numpy(x.view(np.int16)).cuda().view(getattr(torch, x.dtype.name))
    given = (torch.from_numpy(array).cuda() for array in (indices, weights))
    found = tilewright.moe(rows, *there, *given)
    assert np.array_equal(found.view(torch.int16).cpu().numpy(), expected.view(np.int16))


def test_a_graph_routes_the_tokens_of_each_replay() -> None:
    torch = pytest.importorskip("torch")
    arguments = layer(tokens=300, hidden=256, intermediate=128, experts=16, choices=4)

    def tensor(array: Any) -> Any:
        wide = array if array.dtype.kind in "if" else array.astype(np.float32)
        made = torch.from_numpy(wide).cuda()
        return made if array is wide else made.bfloat16()

    x, *matrices, indices, weights = map(tensor, arguments)
    tilewright.moe(x, *matrices, indices, weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = tilewright.moe(x, *matrices, indices, weights)
    for shift in (1, 5):
        indices.copy_((indices + shift) % 16)
        graph.replay()
        want = torch.zeros_like(x, dtype=torch.float32)
        up, gate, down = (m.float() for m in matrices)
        for j in range(indices.shape[1]):
            e = indices[:, j].long()
            inner = torch.einsum("tih,th->ti", gate[e], x.float())
            inner = torch.nn.functional.silu(inner) * torch.einsum("tih,th->ti", up[e], x.float())
            want += weights[:, j : j + 1] * torch.einsum("thi,ti->th", down[e], inner)
        assert (y.float() - want).abs().max() < 2**-6 * want.abs().max()


@pytest.mark.parametrize("form", ["s4", "e4m3", "sparse"])
def test_stored_weights_have_the_bits_of_a_virtual_machine(form: str) -> None:
    x, *weights, indices, router = layer(20, hidden=128, intermediate=128, experts=3, choices=2)
    if form == "sparse":
        stored = [tilewright.compress_24(w, prune="magnitude") for w in weights]
    else:
        stored = [tilewright.quantize_weight(w.astype("f4"), form, group=64) for w in weights]
    found, expected = (
        tilewright.moe(x, *stored, indices, router, device=device) for device in ("cuda", "vm")
    )
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))
