"""Tries sorts of kernel ``simt`` on a ragged product, each in a process of its own.

An error of a GPU ends the process. ``python benchmarks/compare/simt_probe.py CONFIG [plain]`` is
such a process.
"""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from subprocess import TimeoutExpired, run
from tempfile import TemporaryDirectory

import numpy as np

import tilewright
from tilewright.run.devices import cuda_device

TOLERANCE = 1e-5  # of an error, in units of the products' magnitudes
PROBE = 135, 1031, 421  # rows at multiples of 4 bytes
PROBED = [
    f"simt:{kernel}{parts}"
    for kernel in ("48x128x16:4x16x2:3/2", "64x64x16:8x8:3/8", "160x128x16:8x16:3/2",
                   "32x64x32:4x8x4:3/4")
    for parts in ("", "*4", "*4c", "*2c")
]  # fmt: skip


def sort(config: str) -> str:
    """What of a configuration decides the kernel's form: slices, parts of K, a cluster."""
    kernel, _, parts = config.partition("@")[0].partition("*")
    slices = kernel.split(":")[2].count("x") > 1 if kernel.count(":") > 2 else False
    return f"{'slices' * slices}{' parts' * bool(parts)}{' cluster' * parts.endswith('c')}"


def leave_out(broken: set[str], config: str) -> None:
    """Add a configuration, and from its sort's third one on the sort."""
    broken.add(config)
    if sum(x.startswith("simt") and sort(x) == sort(config) for x in broken) > 2:
        broken.add(sort(config))


def probe() -> set[str]:
    """The configurations of ``PROBED`` that end their process, or are wrong, on a ragged product,
    and the sorts that have several; prints whether ptxas' code does as well. Each has a process.
    """
    broken = set[str]()
    results = dict(zip(PROBED, probed(PROBED, False), strict=True))
    bad = [x for x, result in results.items() if result != "right"]
    for config, plain in zip(bad, probed(bad, True), strict=True):
        print(f"probe: {config}: {results[config]}; with ptxas' loop: {plain}", flush=True)
        leave_out(broken, config)
    if bad:
        located(bad[0])
    print(f"probe: {len(PROBED) - len(bad)} of {len(PROBED)} sorts are right", flush=True)
    return broken


def located(config: str) -> None:
    """Print where the memory checker finds an error, if it runs here."""
    checker = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    call = [checker, "--print-limit", "2", sys.executable, __file__, config]
    try:
        done = run(call, capture_output=True, text=True, check=False, timeout=15)
        print("\n".join(done.stdout.splitlines()[:16]), flush=True)
    except (OSError, TimeoutExpired) as error:
        print(f"compute-sanitizer: {error}"[:200], flush=True)


def probed(configs: list[str], plain: bool) -> list[str]:
    """What each configuration does."""
    with ThreadPoolExecutor(max(1, min(len(configs), len(os.sched_getaffinity(0))))) as pool:
        return list(pool.map(partial(_probed, plain=plain), configs))


def _probed(config: str, plain: bool) -> str:
    call = [sys.executable, __file__, config, *["plain"] * plain]
    with TemporaryDirectory() as cache:
        environment = os.environ | {"TILEWRIGHT_CACHE_DIR": cache}
        try:
            done = run(
                call, env=environment, capture_output=True, text=True, check=False, timeout=40
            )
        except TimeoutExpired:
            return "no end"
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    shown = [x for x in lines if "hint:" not in x]
    return shown[-1][:160] if shown else f"ended with {done.returncode}"


def one(config: str, plain: bool) -> None:
    """Compute a ragged product; print whether it is right. ``plain``: by ptxas' code."""
    if plain:
        cuda_device.rescheduled = lambda cubin, _: cubin
    m, n, k = PROBE
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
    d = np.full((m, n), np.nan, np.float32)
    tilewright.matmul(a, b, out=d, config=config, device="cuda")
    error = np.abs(d - a.astype(float) @ b) / (np.abs(a).astype(float) @ np.abs(b))
    print("right" if error.max() < TOLERANCE else f"wrong: error {error.max():.1e}")


if __name__ == "__main__":
    one(sys.argv[1], "plain" in sys.argv)
