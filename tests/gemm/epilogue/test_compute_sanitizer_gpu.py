"""Epilogues of every kernel under compute-sanitizer: no access outside of an allocation, no
race in shared memory.

The tool runs this file as a program, in which each tensor is an allocation of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.gemm.epilogue.functions import amax, dropout, gelu, silu
from tilewright.gemm.epilogue.tracing import cast

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a"), pytest.mark.slow]

TOOLS = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
ERRORS = 17  # the exit status where the tool reports errors


def residual(acc: Any, bias: Any, row: Any, c: Any) -> Any:
    return silu(acc * row + bias) * c


def statistics(acc: Any, bias: Any) -> Any:
    y = acc + bias
    return {
        "d": cast(gelu(y), "e4m3"), "y": cast(y, "f32"), "amax": amax(y),
        "rows": tilewright.sum(y, axis=-1), "columns": tilewright.max(y, axis=-2),
        "mask": tilewright.bitmask(y > 0),
    }  # fmt: skip


def dropped(acc: Any, c: Any) -> Any:
    return dropout(acc + c, 0.25, seed=5)


def gated(gate: Any, up: Any, bias: Any) -> Any:
    return silu(gate + bias) * up


#: A function, a configuration, and M, N and K.
CASES: dict[str, tuple[Callable[..., Any], str, tuple[int, int, int]]] = {
    "cooperative": (residual, "tma:128x128x64:2:3", (300, 200, 128)),
    "pingpong": (residual, "tma:128x192x64:2p:3", (3000, 1544, 128)),
    "swapped": (residual, "tma:64x16x64:1:4~", (12, 776, 192)),
    "not aligned": (residual, "tma:64x64x64:1:3", (67, 49, 72)),
    "cluster": (statistics, "tma:128x128x64:2:3/2x1", (520, 264, 128)),
    "split-K": (statistics, "tma:64x64x64:1:3*2", (72, 80, 256)),
    "tail split": (statistics, "tma:64x64x64:1:3+2", (700, 750, 128)),
    "dynamic": (dropped, "tma:64x64x64:2p:3d", (200, 200, 64)),
    "pair": (gated, "tma:128x128x64:2:3", (136, 72, 64)),
    "pair, swapped": (gated, "tma:128x40x64:1:3~", (40, 200, 64)),
    "multistage": (statistics, "64x64x32:2x2:3", (67, 49, 72)),
    "multistage, split-K": (residual, "64x64x32:2x2:3*2", (67, 49, 256)),
    "simt": (statistics, "simt:64x64x8:8x8:3", (67, 49, 72)),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_reports_nothing(tool: str) -> None:
    pytest.importorskip("torch")
    program = next(filter(None, map(shutil.which, TOOLS)), None)
    if program is None:
        pytest.skip("no compute-sanitizer")
    command = [program, "--tool", tool, "--error-exitcode", str(ERRORS)]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # torch asks the driver for functions it lacks
    variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [*command, sys.executable, __file__], env=os.environ | variables, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]
    assert ran.stdout.count("done") == len(CASES)


def run(name: str) -> None:
    """A call; its results are finite."""
    import torch

    function, config, (m, n, k) = CASES[name]
    type_ = torch.float32 if "simt" in config else torch.bfloat16

    def normal(*shape: int, dtype: Any = type_) -> Any:
        return torch.randn(shape, device="cuda").to(dtype)

    a, b = normal(m, k), normal(k, n)
    given = {
        "bias": normal(n, dtype=torch.float32), "row": normal(m, 1, dtype=torch.float32),
        "c": normal(m, n),
    }  # fmt: skip
    names = function.__code__.co_varnames[1:]
    right = (b, normal(k, n)) if function is gated else b
    operands = {key: x for key, x in given.items() if key in names}
    got = tilewright.matmul(a, right, epilogue=function, config=config, **operands)
    results = got if isinstance(got, dict) else {"d": got}
    torch.cuda.synchronize()
    assert all(bool(torch.isfinite(x.float()).all()) for x in results.values()), name


if __name__ == "__main__":
    for case in CASES:
        run(case)
        sys.stdout.write(f"done {case}\n")
