"""Where the time of a small f32 product goes: kernel ``simt`` with clocks, and cuBLAS and an
empty kernel for comparison, all in CUDA graphs of 40 launches.

    python benchmarks/f32_phases.py [88x1067x79 9485x76x74,simt:64x96x16:8x8x2:3/3 …]

The kernel with clocks starts when the one before has ended, else its first phase would have the
time that it waits; ``matmul``, which is timed, too, may start early. Thread 0 of each CTA
stores the clock: when it begins, ahead of the first copies, behind them, when the first k-tile has
arrived, behind the main loop, behind the last store. Printed are medians over all CTAs and launches
of the cycles between, and nanoseconds from launch to launch, of the CTAs' starts (first to last),
and from the last CTA's end to the next launch's first start. With split-K these are of the GEMM
kernel alone, without the reduction.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from math import prod
from multiprocessing import get_context
from typing import Any
from unittest import mock

import tilewright
from tilewright import cuda, gemm
from tilewright.builder import Traced
from tilewright.gemm.cp_async import simt
from tilewright.gemm.cp_async.simt_config import SimtConfig
from tilewright.gemm.cp_async.simt_launch import launched_config
from tilewright.gemm.kernel_launch import MATRICES
from tilewright.run.devices import serialized_kernel
from tilewright.target import DeviceSpec

SHAPES = ["88x1067x79", "112x481x74", "818x319x72", "1054x1677x78", "4947x166x72", "9485x76x74",
          "2784x685x365", "102x70x69"]  # fmt: skip
LAUNCHES, REPLAYS, WORDS = 40, 12, 8
PHASES = ["addresses", "copies", "arrival", "loop", "epilogue"]
Built = tuple[bytes, str, int]


class Stamped(simt.SimtKernel):
    """The kernel with clocks, stored where C would be."""

    def __init__(self, *given: Any) -> None:
        self.begun = given[0].special("clock64"), given[0].special("globaltimer")
        super().__init__(*given)
        self.arrived = False

    def matrices(self, addresses: Any, strides: Any) -> tuple[Any, Any]:
        k = self.k
        place = (k.ctaid.y * k.nctaid.x + k.ctaid.x) * (8 * WORDS)
        self.stamps = k.pointer("global", "u64", k.emit("cvta.to.global.u64", addresses[2]))
        self.stamps = self.stamps.add_bytes(place).aligned(8)
        return super().matrices(addresses, strides)

    def stamp(self, index: int, what: str = "clock64") -> None:
        with self.k.when(self.k.tid.x == 0):
            self.stamps.store(self.k.special(what), index=index)

    def prologue(self, enabled: Any = True) -> None:
        with self.k.when(self.k.tid.x == 0):
            self.stamps.store(self.begun[0], index=0)
            self.stamps.store(self.begun[1], index=6)
        self.stamp(1)
        super().prologue(enabled)
        self.stamp(2)

    def _loads(self, part: int) -> Iterator[None]:
        if not self.arrived:
            self.arrived = True
            self.stamp(3)
        return super()._loads(part)

    def _free_shared(self) -> None:
        self.stamp(4)
        super()._free_shared()

    def run(self, *given: Any) -> None:
        super().run(*given)
        self.stamp(5)
        self.stamp(7, "globaltimer")


def with_clocks(problem: gemm.Problem, config: SimtConfig) -> Traced:
    """The kernel with clocks."""
    simt._build.cache_clear()
    try:
        with mock.patch.object(simt, "SimtKernel", Stamped):
            return simt.build(problem, config)
    finally:
        simt._build.cache_clear()


def buffers(problem: gemm.Problem, config: SimtConfig, device: DeviceSpec) -> dict[str, int]:
    """Bytes of the matrices, of the clocks, which are where C would be, and of the workspace."""
    m, n, k = problem.m, problem.n, problem.k
    ctas = prod(gemm.launch_shape(problem, config, device).grid)
    matrices = {"a": 4 * m * k, "b": 4 * k * n, "c": 8 * WORDS * ctas, "d": 4 * m * n}
    return matrices | {"w": gemm.workspace_bytes(problem, config, device)}


def parameters(
    problem: gemm.Problem, config: SimtConfig, device: DeviceSpec, places: Mapping[str, int]
) -> bytes:
    """The parameter block of the kernel with clocks, with these addresses."""
    strides = {"a": problem.k, "b": problem.n, "d": problem.n}
    compact = {x: gemm.MatrixStrides(stride) for x, stride in strides.items()}
    addresses = [places.get(x, 0) for x in MATRICES]
    arguments = gemm.kernel_arguments(problem, config, compact, device)
    return bytes(arguments.pack(addresses, [(1.0, 0), (0.0, 0)]))


def stamped(text: str, config: str) -> Built:
    """The machine code of the kernel with clocks."""
    plan = tilewright.plan(*sizes_of(text), dtype="f32", device="vm")
    traced = with_clocks(
        plan.problem, launched_config(SimtConfig.parse(config), plan.device.target)
    )
    cubin = serialized_kernel.rescheduled(cuda.compile(traced.ptx, "sm_90a"), traced.name)
    return bytes(cubin.code), traced.name, traced.dynamic_shared


def measured(text: str, config: str, built: Built) -> None:
    """Print a product's times, and its phases."""
    import torch

    m, n, k = sizes_of(text)
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    d, other = torch.empty(m, n, device="cuda"), torch.empty(m, n, device="cuda")
    plan = tilewright.plan(a, b)
    problem, device = plan.problem, plan.device.target
    chosen = launched_config(SimtConfig.parse(config), device)
    shape = gemm.launch_shape(problem, chosen, device)
    needed = buffers(problem, chosen, device)
    workspace = torch.empty(needed["w"], dtype=torch.uint8, device="cuda")
    ctas = prod(shape.grid)
    stamps = torch.zeros(LAUNCHES, ctas, WORDS, dtype=torch.int64, device="cuda")
    code, name, shared = built
    gpu = cuda.gpu()
    launch = gpu.prepare(gpu.load(code)[name], shape.grid, shape.block, shared=shared,
                         cluster=shape.cluster)  # fmt: skip
    held = {"a": a, "b": b, "d": d, "w": workspace}
    places = {letter: x.data_ptr() for letter, x in held.items()}

    def run(i: int) -> None:
        block = parameters(problem, chosen, device, places | {"c": stamps[i].data_ptr()})
        launch(block, torch.cuda.current_stream().cuda_stream)

    clocks = replayed(run)
    ours = replayed(lambda _: tilewright.matmul(a, b, out=d, config=config))
    cublas = replayed(lambda _: torch.mm(a, b, out=other))
    print(f"{text} {config} {ctas} CTAs: {ours:.2f} us ({clocks:.2f} with clocks), "
          f"cuBLAS {cublas:.2f}: {kernel_of(lambda: torch.mm(a, b, out=other))}")  # fmt: skip
    report(stamps.cpu())


def sizes_of(text: str) -> tuple[int, int, int]:
    """M, N and K of their text."""
    m, n, k = map(int, text.split("x"))
    return m, n, k


def report(stamps: Any) -> None:
    """Print the phases."""
    steps = (stamps[:, :, 1:6] - stamps[:, :, :5]).double().flatten(0, 1)
    found = [f"{what} {x:.0f}" for what, x in zip(PHASES, steps.median(0).values, strict=True)]
    worst = [f"{x:.0f}" for x in steps.quantile(0.95, dim=0)]
    begin, end = stamps[:, :, 6], stamps[:, :, 7]
    first, last, done = begin.amin(1), begin.amax(1), end.amax(1)
    period = (first[1:] - first[:-1]).double().median()
    gaps = (first[1:] - done[:-1]).double().median()
    starts, lasts = (last - first).double().median(), (done - first).double().median()
    print(f"   cycles: {', '.join(found)} (95 %: {' '.join(worst)}); ns: launch to launch "
          f"{period:.0f}, starts within {starts:.0f}, all {lasts:.0f}, gap {gaps:.0f}",
          flush=True)  # fmt: skip


def replayed(call: Callable[[int], Any]) -> float:
    """Microseconds of a call, in a graph of many."""
    from compare.peers import bursts, graph

    (times,) = bursts([graph(call, LAUNCHES)], REPLAYS, pause=0.0)
    return statistics.median(times) * 1e6 / LAUNCHES


def kernel_of(call: Callable[[], Any]) -> str:
    """What the profiler calls the kernel."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    names = (event.key for event in profiler.key_averages())
    return "; ".join(x[:110] for x in names if not x.startswith(("cuda", "Activity", "Mem")))


def empty_launch() -> None:
    """Print what a launch of nothing takes."""
    import torch

    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n"
    gpu = cuda.gpu()
    code = cuda.compile(text, "sm_90a")
    for grid, block in ((1, 32), (132, 128), (528, 128), (891, 64)):
        launch = gpu.prepare(gpu.load(code)["empty"], grid, block)
        took = replayed(lambda _, x=launch: x(b"", torch.cuda.current_stream().cuda_stream))
        print(f"empty kernel, {grid} CTAs of {block}: {took:.2f} us", flush=True)


def main() -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    texts = sys.argv[1:] or SHAPES
    jobs = []
    for text in texts:
        shape, _, config = text.partition(",")
        plan = tilewright.plan(*sizes_of(shape), dtype="f32", device="vm")
        jobs.append((shape, config or str(plan.config)))
    with ProcessPoolExecutor(8, get_context("spawn")) as pool:
        built = [pool.submit(stamped, *job) for job in jobs]
        empty_launch()
        for job, each in zip(jobs, built, strict=True):
            try:
                measured(*job, each.result())
            except (tilewright.TilewrightError, RuntimeError, ValueError, AttributeError) as error:
                print(f"FAILED {job}: {error!r}"[:300], flush=True)


if __name__ == "__main__":
    main()
