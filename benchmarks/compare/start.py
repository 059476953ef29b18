"""Time to the first result in fresh processes, with and without the compile cache on disk.

Run as a script, this is such a process: it prints its times as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 120  # time limit of a process
NAMES = {
    "import": "import tilewright",
    "matmul": "import of tilewright.matmul",
    "first": "first product of a process",
    "new": "first product of another kernel",
}


def starts(count: int = 5) -> dict[str, dict[str, float]]:
    """Medians in milliseconds of the steps in NAMES, without a cache and with a filled one."""
    with tempfile.TemporaryDirectory() as folder:
        off = {"TILEWRIGHT_CACHE": "off", "CUDA_CACHE_DISABLE": "1"}
        filled = {"TILEWRIGHT_CACHE": "", "TILEWRIGHT_CACHE_DIR": folder}
        cold = [_process(off) for _ in range(count)]
        cached = [_process(filled) for _ in range(count + 1)][1:]
    return {"no cache": _medians(cold), "from disk": _medians(cached)}


def _process(environment: dict[str, str]) -> dict[str, float]:
    ran = subprocess.run(
        [sys.executable, "-P", __file__],
        env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1])
    return json.loads(ran.stdout.splitlines()[-1])


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {step: statistics.median(run[step] for run in runs) for step in runs[0]}


def _measure() -> dict[str, float]:
    """Milliseconds of each step, in this process."""
    stopwatch = Stopwatch()
    import tilewright

    stopwatch("import")
    matmul = tilewright.matmul
    stopwatch("matmul")
    import torch

    a, b = (torch.randn(s, s, device="cuda") for s in (512, 4096))
    a, b = a.half(), b.bfloat16()
    torch.cuda.synchronize()
    stopwatch("torch and its tensors")
    for step, x in (("first", a), ("new", b)):
        matmul(x, x.t())
        torch.cuda.synchronize()
        stopwatch(step)
    return stopwatch.laps


class Stopwatch:
    """``stopwatch(name)`` ends a lap; ``laps`` are in milliseconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = 1e3 * (now - self._last), now


if __name__ == "__main__":
    print(json.dumps(_measure()))
