"""Several threads at once, and Ctrl-C: neither disturbs a result or leaves anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright

pytestmark = pytest.mark.vm

TINY = "32x32x32:1x1:2"
THREADS, ROUNDS = 4, 10


def test_threads_multiply_at_once() -> None:
    """Sums of small integers are exact, so any disturbance shows."""

    def work(thread: int) -> int:
        rng = np.random.default_rng(thread)
        for round_ in range(ROUNDS):
            m, n, k = (32 * (1 + (thread + round_ + i) % 3) for i in range(3))
            a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (k, n)))
            options: dict[str, Any] = {"out_dtype": "f32", "device": "vm", "config": TINY}
            d = tilewright.matmul(a, b, **options)
            assert np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32))
        return thread

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == list(range(THREADS))


LONG = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
import numpy as np
import tilewright

def multiply(size):
    a = np.ones((size, size), np.float16)
    return tilewright.matmul(a, a, out_dtype="f32", device="vm", config="64x64x64:2x2:4")

multiply(64)  # compiles
print("ready", flush=True)
try:
    multiply(4096)
    print("finished")
except KeyboardInterrupt:
    print("stopped", flush=True)
print("again", int(multiply(64)[0, 0]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a child there")
def test_ctrl_c_stops_a_long_run_at_once() -> None:
    command = [sys.executable, "-c", LONG]
    env = os.environ | {"PYTHONPATH": str(Path(tilewright.__file__).parents[1])}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(1.0)  # into the launch
        child.send_signal(signal.SIGINT)
        start = time.perf_counter()
        assert child.stdout.readline() == "stopped\n"
        assert time.perf_counter() - start < 1.0
        assert child.stdout.readline() == "again 64\n"
        assert child.wait() == 0
