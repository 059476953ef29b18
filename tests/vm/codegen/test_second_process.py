"""Processes that share a store: two fill an empty one at once, and later ones make nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright
from ptx_kernels import simt
from tilewright import compile_cache
from tilewright.errors import VmFault
from tilewright.run.devices.device_protocol import KernelSource
from tilewright.run.devices.vm_device import VmDevice

pytestmark = pytest.mark.vm

SRC = Path(__file__).parents[3] / "src"
MAKERS = (
    "tilewright.native.translator", "tilewright.ptx.isa", "tilewright.ptx.rules.checker",
    "tilewright.mma.instruction_table", "tilewright.builder.builder",
    "tilewright.gemm.tma.tma_kernel",
    *(f"tilewright.vm.{name}" for name in (
        "engine.engine_parts", "codegen.module_codegen", "codegen.region", "llvm.llvm_primitives",
        "matrix.mma_function", "engine.scheduler", "engine.bulk_copies", "engine.gather_scatter",
        "program.program", "program.flatten", "program.program_analysis", "check.race_detector",
        "launch.fault_report", "step.stepper", "launch.host_functions",
    )),
)  # fmt: skip
ADD_ONE = simt.kernel(f"{simt.load('%r1')} add.u32 %r1, %r1, 1; {simt.store('%r1')}")
MACHINE = f"""
import sys
import numpy as np
from tilewright.vm import Machine
machine, x, y = Machine(), np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
machine.load({ADD_ONE!r})
machine.launch("k", 2, 32, [y, x, *[0] * 8])
assert y.tolist() == list(range(1, 65))
print(*sys.modules)
"""
MATMUL = """
import sys
import numpy as np
import tilewright
a = np.ones((64, 64), np.float16)
assert (tilewright.matmul(a, a, device="vm") == 64).all()
print(*sys.modules)
"""


def started(script: str, folder: Path | None = None) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(SRC)}
    if folder is not None:
        env["TILEWRIGHT_CACHE_DIR"] = str(folder)
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def modules(process: subprocess.Popen[str]) -> set[str]:
    """Those that it imported, once it has ended well."""
    with process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return set(out.split())


def test_two_processes_fill_a_store_and_a_third_compiles_nothing(tmp_path):
    both = [started(MACHINE, tmp_path) for _ in range(2)]
    imported = [modules(process) for process in both]
    codegen = "tilewright.vm.codegen.module_codegen"
    assert any(codegen in found for found in imported)  # one may have been late
    found = modules(started(MACHINE, tmp_path))
    assert "tilewright.ptx.syntax.parser" in found
    assert found.isdisjoint(MAKERS)


@pytest.mark.skipif(not compile_cache.store().enabled, reason="nothing is kept")
def test_matmul_with_stored_kernel_compiles_nothing():
    modules(started(MATMUL))
    found = modules(started(MATMUL))
    assert "tilewright.vm.launch.launcher" in found
    assert found.isdisjoint([*MAKERS, "tilewright.ptx.tree"])


@tilewright.kernel(block=32, params={"x": "ptr u32"})
def mark(k, x):
    x[k.tid.x] = k.tid.x + 1


@pytest.mark.skipif(not compile_cache.store().enabled, reason="nothing is kept")
def test_stored_kernel_is_traced_only_for_faults():
    traced, made = mark.trace(), []
    ref = KernelSource(f"mark {time.time_ns()}", lambda: made.append(traced) or traced)
    for _ in range(2):  # devices
        device = VmDevice()
        (machine, entry), _ = device.kernel(ref)
        address = device.alloc(128)
        device.prepare((machine, entry), (1, 1, 1), (32, 1, 1))(address.to_bytes(8, "little"), 0)
        assert machine.download(address, np.zeros(32, np.uint32)).tolist() == list(range(1, 33))
        assert device.kernel(ref) == ((machine, entry), 0) and len(made) == 1
    with pytest.raises(VmFault, match=r"st\.global\.u32 of 4 bytes at 0x0: no allocation is near"):
        device.prepare((machine, entry), (1, 1, 1), (32, 1, 1))(bytes(8), 0)
    assert len(made) == 2
