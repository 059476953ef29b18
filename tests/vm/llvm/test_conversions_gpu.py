"""Conversions and ``prmt`` on a GPU: the bits that the virtual machine gives.

Every form of ``cvt`` that the GPU's target has, on 2^20 operands each: random bits, and what lies
on or beside a tie of every narrower format. The virtual machine is itself held to exact fractions
by ``tests/vm/llvm/test_conversions.py``.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.conversion_kernels import batches, differences, on_gpu, on_vm, planes, text
from references.hostile import Stream
from rows import every_row

pytestmark = pytest.mark.gpu

COUNT = 1 << 20


@pytest.mark.sm("sm_90a")
@pytest.mark.timeout(600)
@every_row("batch", lambda: batches("sm_90a"), ids=lambda b: b[0])
def test_every_conversion(batch):
    inputs, results = planes(batch, COUNT, Stream(*batch)), np.zeros((len(batch), COUNT), np.uint64)
    ptx = text(batch)
    ours, theirs = on_vm(ptx, inputs, results, "sm_90a"), on_gpu(ptx, inputs, results)
    assert not differences(batch, inputs, theirs, ours)


PRMT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 inputs, .param .u64 results, .param .u32 count)
{
  .reg .b64 %i, %o; .reg .b32 %g, %x, %y, %a, %b, %d;
  ld.param.u64 %i, [inputs]; ld.param.u64 %o, [results];
  mov.u32 %x, %ctaid.x; mov.u32 %y, %ntid.x; mov.u32 %g, %tid.x; mad.lo.u32 %g, %x, %y, %g;
  mad.wide.u32 %i, %g, 8, %i; mad.wide.u32 %o, %g, 56, %o;
  ld.global.b32 %a, [%i]; ld.global.b32 %b, [%i+4];
"""
MODES = ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")


def test_prmt():
    """Every 16-bit selector in every mode."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 1 << 64, (1, 1 << 16), np.uint64)
    results = np.zeros((len(MODES), 1 << 16), np.uint64)
    body = [
        f"  prmt.b32{mode} %d, %a, %b, %g; st.global.b32 [%o+{8 * i}], %d;"
        for i, mode in enumerate(MODES)
    ]
    ptx = "\n".join([PRMT, *body, "  ret;", "}", ""])
    ours, theirs = on_vm(ptx, inputs, results, "sm_90a"), on_gpu(ptx, inputs, results)
    np.testing.assert_array_equal(ours, theirs)
