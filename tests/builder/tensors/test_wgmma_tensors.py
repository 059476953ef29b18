"""k.gemm by wgmma: the product of what stands in shared memory, by descriptors derived from layouts
of every kind that wgmma reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from ptx_kernels.wgmma_products import CASES, atom_of, check
from rows import every_row
from tilewright import mma
from tilewright.builder import fragment_registers
from tilewright.errors import VmFault
from tilewright.layout import (
    LayoutRight,
    make_fragment_like,
    make_tensor,
)
from tilewright.vm import Machine

pytestmark = pytest.mark.vm


@every_row("case", CASES, ids=str, parts=7)
def test_the_product_of_every_canonical_layout(case: Any) -> None:
    check(case, "vm")


COPIES = {
    "A, overwritten": (lambda k, a, sums: a[0].set(0), False),
    "A, overwritten with A": (lambda k, a, sums: a[0].set(a[1]), False),
    "A, read": (lambda k, a, sums: k.var("b32", a[0]), True),
    "sums, overwritten": (lambda k, a, sums: sums[0].set(0.0), False),
    "sums, read": (lambda k, a, sums: k.var("f32", sums[0]), False),
}


@pytest.mark.parametrize(("use", "right"), COPIES.values(), ids=COPIES)
def test_copies_of_a_product_s_registers_wait_for_it(use: Any, right: bool) -> None:
    """In a kernel that was traced each ``mov`` is its author's; in a text it may be a compiler's,
    of a value that is handed on to the next turn of a loop.
    """
    tiled = mma.make_tiled_mma(atom_of("f16", "f32", "rmem"))

    def body(k: Any, d: Any) -> None:
        a, b = (
            k.make_smem_tensor(mma.make_smem_layout("f16", "K", (rows, 32), 32), "f16")
            for rows in (64, 8)
        )
        thread = tiled.thr_slice(k.tid.x)
        part, out = thread.partition_A(a), thread.partition_C(make_tensor(d, (64, 8), LayoutRight))
        left, acc = make_fragment_like(part), make_fragment_like(out)
        k.copy(part, left)
        k.wgmma_fence()
        k.gemm(tiled, left, k.make_fragment_B(thread.partition_B(b)), acc, accumulate=False)
        k.wgmma_commit()
        use(k, fragment_registers(left), fragment_registers(acc))
        k.wgmma_wait()
        k.copy(acc, out)

    kernel = tilewright.kernel(body, params={"d": "ptr f32"}, block=128)
    machine = Machine()
    machine.load(kernel.trace().ptx)
    machine.launch("body", 1, 128, [np.zeros((64, 8), np.float32)])
    if right:
        kernel[1](np.zeros((64, 8), np.float32), device="vm")
        return
    with pytest.raises(VmFault, match=r"in flight: mov\..* uses registers of the wgmma"):
        kernel[1](np.zeros((64, 8), np.float32), device="vm")
