"""Conversions and ``prmt`` on a GPU: the bits that the virtual machine gives.

Every form of ``cvt`` that the GPU's target has, on 2^20 operands each: random bits, and what lies
on or beside a tie of every narrower format. The virtual machine is itself held to exact fractions
by ``tests/vm/test_cvt_forms.py``.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from conversion_kernels import batches, planes, text
from tilewright import cuda
from tilewright.vm import Machine

COUNT, BLOCK = 1 << 20, 256
VERSION = "8.6"


def on_gpu(ptx: str, inputs: np.ndarray, results: np.ndarray) -> np.ndarray:
    gpu = cuda.gpu()
    made = results.copy()
    source, target = gpu.alloc(inputs.nbytes), gpu.alloc(made.nbytes)
    try:
        gpu.upload(source, inputs)
        gpu.upload(target, made)
        with gpu.load(cuda.compile(ptx, gpu.arch)) as module:
            count = inputs.shape[1]
            params = struct.pack("<QQI", source, target, count)
            gpu.launch(module["k"], count // BLOCK, BLOCK, params)
            gpu.wait()
            gpu.download(made, target)
    finally:
        gpu.free(source)
        gpu.free(target)
    return made


def on_vm(ptx: str, inputs: np.ndarray, results: np.ndarray, arch: str) -> np.ndarray:
    machine = Machine(arch)
    machine.load(ptx)
    places = machine.upload(inputs), machine.upload(results)
    count = inputs.shape[1]
    machine.launch("k", count // BLOCK, BLOCK, [*places, count])
    return machine.download(places[1], results)


def differences(opcodes: list[str], target: str, count: int = COUNT, seed: int = 0) -> list[str]:
    """A line for each form whose bits differ: how many, and the first operands and results."""
    inputs = planes(opcodes, count, seed)
    results = np.zeros((len(opcodes), count), np.uint64)
    ptx = text(opcodes, target, VERSION)
    ours, theirs = on_vm(ptx, inputs, results, target), on_gpu(ptx, inputs, results)
    found = []
    for opcode, one, other in zip(opcodes, ours, theirs, strict=True):
        wrong = np.flatnonzero(one != other)
        if len(wrong):
            i = wrong[0]
            operands = " ".join(f"{int(x):#x}" for x in inputs[:, i])
            how = f"GPU {int(other[i]):#x}, here {int(one[i]):#x}"
            found.append(f"{opcode}: {len(wrong)} differ; {operands}: {how}")
    return found


@pytest.mark.sm("sm_90a")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", batches("sm_90a"), ids=lambda b: b[0])
def test_every_conversion(batch):
    assert not differences(batch, "sm_90a")


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
