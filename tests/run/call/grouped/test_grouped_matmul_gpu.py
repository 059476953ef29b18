"""``grouped_matmul`` on a GPU: the virtual machine's bits, sizes in device memory, CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from references.grouped_products import (
    CASES,
    CASES_ALONG_K,
    CASES_WITH_INDICES,
    EIGHT_BITS_ALONG_K,
    SCALE_BLOCKS,
    UNWRITTEN,
    WEIGHTS,
    GroupedCase,
    eight_bits_along_k,
    indexed_product,
    operands,
    product,
    product_along_k,
    scaled_product,
    weights_product,
)

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_a_virtual_machine_s(case: GroupedCase) -> None:
    (*_, found), (*_, expected) = (product(case, device) for device in ("cuda", "vm"))
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("case", CASES_ALONG_K, ids=str)
def test_along_k_the_bits_are_a_virtual_machine_s(case: Any) -> None:
    found, expected = (product_along_k(*case, device)[2] for device in ("cuda", "vm"))
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("case", EIGHT_BITS_ALONG_K, ids=str)
def test_along_k_8_bits_have_the_bits_of_a_virtual_machine(case: Any) -> None:
    found, expected = (eight_bits_along_k(*case, device)[2] for device in ("cuda", "vm"))
    assert np.array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("blocks", SCALE_BLOCKS, ids=str)
@pytest.mark.parametrize("gathered", [False, True])
def test_scaled_matrices_have_the_bits_of_a_virtual_machine(blocks: Any, gathered: bool) -> None:
    found, expected = (
        scaled_product(blocks, device, gathered=gathered)[2] for device in ("cuda", "vm")
    )
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("form", WEIGHTS)
def test_packed_and_sparse_weights_have_the_bits_of_a_virtual_machine(form: str) -> None:
    found, expected = (weights_product(form, device)[2] for device in ("cuda", "vm"))
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("case", CASES_WITH_INDICES, ids=str)
def test_gathered_and_scattered_rows_have_the_bits_of_a_virtual_machine(case: Any) -> None:
    found, expected = (indexed_product(*case, device)[0] for device in ("cuda", "vm"))
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


def tensors(case: GroupedCase) -> tuple[Any, Any, Any, Any]:
    torch = pytest.importorskip("torch")
    a, b, sizes, out = operands(case)
    a, b, out = (torch.from_numpy(x.astype(np.float32)).cuda().bfloat16() for x in (a, b, out))
    (values,) = sizes.values()
    return a, b.mT.contiguous().mT, torch.from_numpy(values).cuda(), out


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([50, 20, 74, 74], [50, 0, 24, 0]),
        ([-5, 90, 10, 10], [0, 74, 0, 0]),
        ([3, 3, 3, 9], [3, 0, 0, 6]),
    ],
)  # fmt: skip
def test_impossible_offsets_write_no_other_row(values: list[int], rows: list[int]) -> None:
    case = GroupedCase((3, 0, 70, 1), 64, 64)
    a, b, offsets, out = tensors(case)
    offsets.copy_(offsets.new_tensor(values))
    found = tilewright.grouped_matmul(a, b, offsets=offsets, out=out)
    begin = 0
    for g, count in enumerate(rows):
        expected = a[begin : begin + count].float() @ b[g].float()
        assert (
            (found[begin : begin + count].float() - expected).abs().max().item() < 0.5
            if count
            else True
        )
        begin += count
    assert (found[begin:] == UNWRITTEN).all()


def test_a_graph_reads_the_sizes_of_each_replay() -> None:
    import torch

    case = GroupedCase((3, 0, 70, 1), 64, 64)
    a, b, offsets, out = tensors(case)

    def call() -> Any:
        return tilewright.grouped_matmul(a, b, offsets=offsets, out=out)

    call()
    call()  # the fast path
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for values in ([10, 20, 30, 40], [0, 0, 74, 74], [1, 74, 74, 74]):
        offsets.copy_(offsets.new_tensor(values))
        out.fill_(UNWRITTEN)
        graph.replay()
        expected = torch.full_like(out, UNWRITTEN)
        for g, (begin, end) in enumerate(zip([0, *values], values, strict=False)):
            expected[begin:end] = (a[begin:end].float() @ b[g].float()).bfloat16()
        assert torch.allclose(out.float(), expected.float(), rtol=2e-2, atol=2e-2)
