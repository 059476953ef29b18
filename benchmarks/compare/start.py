"""How long until the first result: fresh processes, with and without the cache on disk.

Run as a script, this is such a process, and prints what it measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 120  # that a process may take
NAMES = {
    "import": "import tilewright",
    "matmul": "tilewright.matmul, first named",
    "first": "the first product of a process",
    "new": "the first of a new configuration",
}


def starts(count: int = 5) -> dict[str, dict[str, float]]:
    """Medians in milliseconds of NAMES' steps, by what is on disk: nothing, or all."""
    with tempfile.TemporaryDirectory() as folder:
        none = {"TILEWRIGHT_CACHE": "off", "CUDA_CACHE_DISABLE": "1"}
        full = {"TILEWRIGHT_CACHE": "", "TILEWRIGHT_CACHE_DIR": folder}
        cold = [_process(none) for _ in range(count)]
        cached = [_process(full) for _ in range(count + 1)][1:]
    return {"no cache": _medians(cold), "from disk": _medians(cached)}


def _process(environment: dict[str, str]) -> dict[str, float]:
    ran = subprocess.run(
        [sys.executable, "-P", __file__],
        env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1])
    return json.loads(ran.stdout.splitlines()[-1])


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {step: statistics.median(one[step] for one in found) for step in found[0]}


def _measure() -> dict[str, float]:
    """Milliseconds of each step, in this process."""
    watch = Watch()
    import tilewright

    watch("import")
    matmul = tilewright.matmul
    watch("matmul")
    import torch

    a, b = (torch.randn(s, s, device="cuda") for s in (512, 4096))
    a, b = a.half(), b.bfloat16()
    torch.cuda.synchronize()
    watch("torch and its tensors")
    for step, x in (("first", a), ("new", b)):
        matmul(x, x.t())
        torch.cuda.synchronize()
        watch(step)
    return watch.laps


class Watch:
    """``watch(name)`` ends a lap."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = 1e3 * (now - self._last), now


if __name__ == "__main__":
    print(json.dumps(_measure()))
