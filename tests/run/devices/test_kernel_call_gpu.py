"""Kernels on tensors, with maps of arrays and clusters, launched on the GPU: the machine's bits."""

from __future__ import annotations

from runpy import run_path
from typing import Any

import numpy as np
import pytest

import tilewright
from pages import ROOT
from ptx_kernels.cluster_neighbours import neighbours
from ptx_kernels.hopper_gemm import random_matrices
from ptx_kernels.wgmma_products import CASES, check
from tilewright.builder import ptr, tensor_map, u32
from tilewright.errors import LaunchError

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("size", [(256, 256, 448), (512, 384, 4096)])
def test_the_example_has_the_bits_of_the_virtual_machine(size: tuple[int, int, int]) -> None:
    multiply = run_path(str(ROOT / "examples" / "hopper_gemm.py"))["multiply"]
    made = []
    for device in ("vm", "cuda", "cuda"):
        a, b, d = random_matrices(*size)
        multiply(a, b, d, device)
        made.append(d.tobytes())
    assert made[0] == made[1] == made[2]


def test_torch_tensors_are_passed_in_place() -> None:
    torch = pytest.importorskip("torch")
    multiply = run_path(str(ROOT / "examples" / "hopper_gemm.py"))["multiply"]
    bits = (torch.from_numpy(x.view(np.int16)) for x in random_matrices(256, 256, 448))
    a, b, d = (x.cuda().view(torch.bfloat16) for x in bits)
    multiply(a, b, d)
    torch.testing.assert_close(d.double(), a.double() @ b.double().T, rtol=2**-7, atol=1e-2)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_product_of_every_canonical_layout(case: Any) -> None:
    check(case, "cuda")


def test_the_cluster_of_a_kernel() -> None:
    x = np.zeros(4, np.uint32)
    neighbours[4](x, device="cuda")
    assert x.tolist() == [1, 0, 3, 2]
    with pytest.raises(LaunchError, match=r"grid .*cluster"):
        neighbours[3](x, device="cuda")


@tilewright.kernel(block=32)
def filled(k: Any, value: u32, target: tensor_map, last: u32, x: ptr("u32")) -> None:
    """Boxes of ``value``, and ``last`` in x: numbers stand around a map."""
    place = k.shared("u32", 32, align=128)
    place[k.tid.x] = value
    k.fence_async()
    k.barrier()
    with k.if_(k.tid.x == 0):
        k.tma_store(target, (0, 0), place)
        k.bulk_commit()
        k.bulk_wait()
        x[0] = last


@pytest.mark.parametrize("device", ["vm", "cuda"])
def test_a_number_may_come_before_a_map(device: str) -> None:
    y, x = np.zeros((8, 4), np.uint32), np.zeros(1, np.uint32)
    filled[1](7, tilewright.tensor_map(y, (8, 4)), 9, x, device=device)
    assert (y == 7).all() and x[0] == 9
