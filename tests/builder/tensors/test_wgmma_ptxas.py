"""Products that k.gemm starts stay asynchronous: the assembler has no reason to wait for each
(its remarks C7500 … C7519).
"""

from __future__ import annotations

import re
from runpy import run_path

import pytest

from pages import ROOT
from ptxas import assemble, ptxas
from tilewright import mma
from tilewright.builder import Traced, ptr, trace
from tilewright.layout import make_fragment_like

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

SERIALIZED = re.compile(r"C75[01]\d")
MMA = mma.make_tiled_mma(
    mma.MmaAtom("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "rmem"), (1, 1, 1)
)


def from_registers(early: bool) -> Traced:
    """A in registers; ``early``: the sums are read before they are there."""

    def body(k, d):
        tiles = [k.make_smem_tensor(mma.make_smem_layout("bf16", "K", (64, 64)), "bf16")] * 2
        thread = MMA.thr_slice(k.tid.x)
        part = thread.partition_A(tiles[0])
        left, acc = make_fragment_like(part), k.make_rmem_tensor((32, 1, 1), "f32")
        k.copy(part, left)
        for step in k.range(4):
            k.wgmma_fence()
            right = k.make_fragment_B(thread.partition_B(tiles[1]))
            k.gemm(MMA, left, right, acc, accumulate=step != 0)
            k.wgmma_commit()
            if early:
                d[step] = acc[0]
            k.wgmma_wait()
        d[k.tid.x] = acc[0]

    return trace(body, params={"d": ptr("f32")}, block=128, name="f")


def test_the_example() -> None:
    kernel = run_path(str(ROOT / "examples" / "hopper_gemm.py"))["hopper_gemm"]
    made = assemble(kernel.trace(shape=(256, 256, 448)).ptx, "sm_90a")
    assert made.spills == 0 and not SERIALIZED.search(made.log)


@pytest.mark.parametrize("early", [False, True])
def test_a_from_registers(early: bool) -> None:
    made = assemble(from_registers(early).ptx, "sm_90a")
    assert bool(SERIALIZED.search(made.log)) is early
