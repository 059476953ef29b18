"""Measure the CPU time of a process's first call, with an empty and with a filled cache.

    python benchmarks/first_call.py              what this machine can run
    python benchmarks/first_call.py --runs 5     the medians of five processes each

Each figure is from a fresh process. It imports NumPy (and torch, for the GPU) and creates the
arrays; then the CPU time of all threads is measured from ``import tilewright`` to the result. The
row also shows the number of modules of tilewright that the process has imported, and whether LLVM,
the builder and the instruction rows are among them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SGEMM = Path(__file__).parents[1] / "tests" / "data" / "ptx" / "sgemm.ptx"
HEAVY = (
    "llvmlite",
    "tilewright.builder.builder",
    "tilewright.ptx.isa",
    "tilewright.gemm.tma.tma_kernel",
)


def vm_simt() -> Callable[[], object]:
    """saxpy, a user-defined kernel, on the virtual machine."""
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)

    def call() -> None:
        import tilewright

        types = {"n": "u32", "a": "f32", "x": "ptr f32", "y": "ptr f32"}

        @tilewright.kernel(block=128, params=types)
        def saxpy(k: Any, n: Any, a: Any, x: Any, y: Any) -> None:
            i = k.ctaid.x * 128 + k.tid.x
            with k.if_(i < n):
                y[i] = k.fma(a, x[i], y[i])

        saxpy[8](1000, 2.0, x, y, device="vm")

    return call


def vm_matmul() -> Callable[[], object]:
    """A product of 64×64×64 f16 on the virtual machine."""
    a = np.ones((64, 64), np.float16)

    def call() -> object:
        import tilewright

        return tilewright.matmul(a, a, device="vm")

    return call


def vm_machine() -> Callable[[], object]:
    """PTX from nvcc, run by ``vm.Machine``."""
    text, n = SGEMM.read_text(encoding="utf-8"), 16
    a = np.ones((n, n), np.float32)

    def call() -> object:
        from tilewright import vm

        machine = vm.Machine()
        machine.load(text)
        at = [machine.upload(a) for _ in range(3)]
        machine.launch("sgemm", grid=1, block=(16, 16), args=[*at, n])
        return machine.download(at[2], like=a)

    return call


def cuda_matmul() -> Callable[[], object]:
    """A product of torch's tensors, 512×512×512 f16, on the GPU."""
    import torch

    a = torch.randn(512, 512, device="cuda").half()
    torch.mm(a, a)
    torch.cuda.synchronize()

    def call() -> None:
        import tilewright

        tilewright.matmul(a, a.t())
        torch.cuda.synchronize()

    return call


CALLS = {f.__name__: f for f in (vm_simt, vm_matmul, vm_machine, cuda_matmul)}


def measured(name: str) -> None:
    """Print the cost of the first call in this process."""
    call = CALLS[name]()
    time.sleep(0.5)  # threads that NumPy's BLAS has started spin for a while
    start, wall = time.process_time(), time.perf_counter()
    call()
    used, wall = time.process_time() - start, time.perf_counter() - wall
    ours = sum(module.startswith("tilewright") for module in sys.modules)
    heavy = [module for module in HEAVY if module in sys.modules]
    print(json.dumps({"cpu": used, "wall": wall, "modules": ours, "heavy": heavy}))


def process(name: str, folder: str) -> dict[str, object]:
    env = os.environ | {"TILEWRIGHT_CACHE": "", "TILEWRIGHT_CACHE_DIR": folder}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as on anyone's machine: modules are compiled once
    command = [sys.executable, __file__, "--measure", name]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip())
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def row(name: str, runs: int) -> None:
    empty, warm = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            empty.append(process(name, folder))
            warm.append(process(name, folder))
    for kind, processes in (("empty cache", empty), ("from disk", warm)):
        cpu, wall = (
            statistics.median(float(str(f[x])) for f in processes) for x in ("cpu", "wall")
        )
        last = processes[-1]
        heavy = ", ".join(map(str, last["heavy"])) or "none"  # type: ignore[call-overload]
        print(
            f"{name:12} {kind:12} {cpu:6.2f} s CPU {wall:6.2f} s   {last['modules']:4} modules, "
            f"heavy: {heavy}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="processes per figure")
    parser.add_argument("--measure", choices=CALLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measured(options.measure)
        return 0
    from tilewright import cuda

    for name in CALLS:
        if not name.startswith("cuda") or cuda.available():
            row(name, options.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
