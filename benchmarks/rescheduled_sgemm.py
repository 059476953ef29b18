"""f32 on the GPU: kernel ``simt`` as ptxas assembles it, with its loop rewritten, and cuBLAS.

Checks that all kernels of a configuration have the same bits, then times them in turn; ratios are
cuBLAS' time over ours, medians. Variants leave out one part of the rewriting, or have lanes in
another order.

    python benchmarks/rescheduled_sgemm.py [--config simt:128x256x16:16x16:3 …] [--size 4096 …]

Times of several K tell what a k-tile costs, and what the rest: ``--size 2048x2048x512
2048x2048x4096`` of a wave of CTAs, ``128x256x512 128x256x4096`` of one CTA.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from math import prod
from unittest import mock

import torch

from tilewright import cuda
from tilewright.builder import Traced
from tilewright.errors import SassError
from tilewright.gemm import Problem
from tilewright.gemm.cp_async import simt, simt_config
from tilewright.gemm.cp_async.simt_config import SimtConfig
from tilewright.gemm.cp_async.simt_launch import raster_values
from tilewright.sass import CubinFile
from tilewright.sass.schedule.ffma_loop import loop_order, loop_registers, rewrite_loop

Size = tuple[int, int, int]
BATCH, TOTAL = 5, 100  # milliseconds of runs in a row, and of all of a kernel, about
ALTERNATING = "alternating lanes"
_PARAMETERS = "<QQQQIII4xQQQQffQQQQQQ"


def problem(m: int, n: int, k: int) -> Problem:
    """Row-major f32."""
    return Problem(m, n, k, "f32", "f32", "f32", "k", "n")


def variants(
    file: CubinFile, name: str, registers: int, wanted: Sequence[str] | None
) -> dict[str, bytes]:
    """The cubins by what was done: all, or those that are ``wanted``."""

    def plain() -> bytes:
        return rewrite_loop.rewrite_loop(file, name, registers).build()

    changes: dict[str, Callable[[], object]] = {
        "rewritten": lambda: mock.patch.object(loop_order, "_LEAD", loop_order._LEAD),
        "no reuse": lambda: mock.patch.object(rewrite_loop, "with_reuse", lambda _, x: list(x)),
        "any bank": lambda: mock.patch.object(loop_registers, "_accumulator_banks", lambda *_: {}),
        "loads at rows' ends": lambda: mock.patch.object(loop_order, "_LEAD", 16),
        "loads spread": lambda: mock.patch.object(loop_order, "_SPAN", 1.0),
        "loads at once": lambda: mock.patch.object(loop_order, "_LEAD", 0),
        "loop anywhere": lambda: mock.patch.object(rewrite_loop, "_LINE", 1),
        "barrier early": lambda: mock.patch.object(loop_order, "_AHEAD", 100),
    }
    found = {"ptxas": file.build()}
    for what, change in changes.items():
        if wanted is not None and what not in wanted:
            continue
        try:
            with change():
                found[what] = plain()
        except SassError as error:
            print(f"{what}: {error}")
    return found


def with_alternating_lanes(config: SimtConfig, registers: int) -> bytes:
    """The rewritten kernel as its lanes were once."""
    simt._build.cache_clear()
    with mock.patch.object(simt_config, "_IN_ORDER", simt_config._ALTERNATING):
        traced = simt.build(problem(4096, 4096, 4096), config)
    simt._build.cache_clear()
    file = CubinFile.parse(bytes(cuda.compile(traced.ptx, "sm_90a").code))
    return rewrite_loop.rewrite_loop(file, traced.name, registers).build()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", nargs="+", default=["simt:128x256x16:16x16:3"])
    parser.add_argument("--size", nargs="+", default=["2048", "4096", "8192"], help="or MxNxK")
    parser.add_argument("--variants", nargs="+", help="only these, after ptxas' kernel")
    parser.add_argument("--sustained", action="store_true", help="power and clock of long runs")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for text in options.config:
        config = SimtConfig.parse(text)
        traced = simt.build(problem(4096, 4096, 4096), config)
        file = CubinFile.parse(bytes(cuda.compile(traced.ptx, "sm_90a").code))
        registers = min(255, 65536 // (config.threads * config.ctas))
        cubins = variants(file, traced.name, registers, options.variants)
        if ALTERNATING in (options.variants or ()):
            cubins[ALTERNATING] = with_alternating_lanes(config, registers)
        print(f"{config}", flush=True)
        for size in options.size:
            sizes = [int(x) for x in size.split("x")]
            compare(config, traced, cubins, (*sizes, *sizes, *sizes)[:3], options.sustained)


def compare(
    config: SimtConfig, traced: Traced, cubins: dict[str, bytes], size: Size, is_sustained: bool
) -> None:
    """Check bits of one size and time all kernels."""
    gpu = cuda.gpu()
    m, n, k = size
    a, b, d = (torch.randn(*x, device="cuda") for x in ((m, k), (k, n), (m, n)))
    addresses = a.data_ptr(), b.data_ptr(), 0, d.data_ptr()
    raster = raster_values(problem(m, n, k), config).values()
    block = struct.pack(_PARAMETERS, *addresses, m, n, k, k, n, 0, n, 1.0, 0.0,
                        *[0] * 6, *raster)  # fmt: skip
    grid = config.tiles(problem(m, n, k))
    work: dict[str, Callable[[], object]] = {"cuBLAS": lambda: torch.mm(a, b, out=d)}
    bits = None
    for what, code in cubins.items():
        kernel = gpu.load(code)[traced.name]
        launch = gpu.prepare(kernel, grid, config.threads, shared=traced.dynamic_shared)
        d.zero_()
        torch.cuda.synchronize()
        launch(block)
        gpu.wait()
        bits = d.view(torch.int32).clone() if bits is None else bits
        if not bool((d.view(torch.int32) == bits).all()):
            print(f"{what}: OTHER BITS than ptxas' kernel")
        work[what] = lambda launch=launch: launch(block, torch.cuda.current_stream().cuda_stream)
    report(size, work)
    if is_sustained:
        for what in ("cuBLAS", "ptxas", "rewritten"):
            sustained(size, f"{what}, random", work[what])
        a.zero_()
        b.zero_()
        for what in ("cuBLAS", "rewritten"):
            sustained(size, f"{what}, zeros", work[what])


def shown(size: Size) -> str:
    """A size as text."""
    return "×".join(map(str, size))


def report(size: Size, work: dict[str, Callable[[], object]]) -> None:
    """Time all in turn and print microseconds, TFLOP/s and ratios."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(run: Callable[[], object], runs: int) -> float:
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / runs

    slowest = max(timed(run, 2) for run in work.values())
    runs = max(2, round(BATCH / slowest))
    rounds = min(20, max(5, round(TOTAL / slowest / runs)))
    times: dict[str, list[float]] = {what: [] for what in work}
    for _ in range(rounds):
        for what, run in work.items():
            times[what].append(timed(run, runs))
    median = {what: statistics.median(t) for what, t in times.items()}
    text = ", ".join(
        f"{what} {1e3 * t:.2f} µs {2 * prod(size) / t / 1e9:.1f} ({median['cuBLAS'] / t:.3f})"
        for what, t in median.items()
    )
    print(f"{shown(size)} time, TFLOP/s (ratio): {text}", flush=True)


def sustained(size: Size, what: str, run: Callable[[], object], seconds: float = 0.8) -> None:
    """Launch for ``seconds`` and print TFLOP/s, and what nvidia-smi says of the board meanwhile."""
    query = "--query-gpu=power.draw.instant,clocks.sm,temperature.gpu,clocks_event_reasons.active"
    command = ["nvidia-smi", query, "--format=csv,noheader", "-i", "0"]
    board: list[str] = []

    def sample() -> None:
        time.sleep(0.55 * seconds)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        board.append(done.stdout.strip())

    thread = threading.Thread(target=sample)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    thread.start()
    start, count = time.perf_counter(), 0
    begin.record()
    while time.perf_counter() - start < seconds:
        for _ in range(max(1, 64 * 1024**3 * 8 // prod(size))):
            run()
            count += 1
        torch.cuda.current_stream().synchronize()
    end.record()
    torch.cuda.synchronize()
    thread.join()
    rate = 2 * prod(size) * count / begin.elapsed_time(end) / 1e9
    print(f"{shown(size)} {what}, sustained: {rate:.2f} TFLOP/s, {board[0]}", flush=True)


if __name__ == "__main__":
    main()
