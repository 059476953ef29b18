"""Our GEMM beside ``torch.mm`` (cuBLAS) in one process: ratios of CUDA-graph replays on random
data, inputs rotated past the L2.

    python benchmarks/gemm.py [--shapes 4096x4096x4096,8192x8192x8192] [--types bf16]
                              [--layouts tn] [--configs table|CONFIG,…]

Prints a row for each shape and configuration: our time, torch's, TFLOP/s, their ratio (above 1: we
are faster), registers, spills, and the largest error against float64 relative to the sum of
magnitudes.
"""

from __future__ import annotations

import argparse
from itertools import product

import torch

from tilewright import cuda, gemm, target
from tilewright.gemm import Config, Problem
from tilewright.ptx import abi

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
L2 = 64 << 20


class Case:
    """A problem with its inputs on the GPU, several sets of them."""

    def __init__(self, m: int, n: int, k: int, type_: str, layout: str) -> None:
        majors = ("k" if layout[0] == "t" else "m"), ("k" if layout[1] == "n" else "n")
        lines = (k if majors[0] == "k" else m, k if majors[1] == "k" else n, n, n)
        aligns = [(2 * line | 16) & -(2 * line | 16) for line in lines]
        self.problem = Problem(m, n, k, type_, type_, type_, *majors, False, *aligns)
        bytes_ = self.problem.bytes
        self.sets = [self._inputs() for _ in range(min(8, 3 * L2 // bytes_ + 1))]

    def _inputs(self):
        p, t = self.problem, TYPES[self.problem.a]
        a = torch.randn((p.m, p.k) if p.a_major == "k" else (p.k, p.m), device="cuda").to(t)
        b = torch.randn((p.n, p.k) if p.b_major == "k" else (p.k, p.n), device="cuda").to(t)
        d = torch.full((p.m, p.n), float("nan"), device="cuda", dtype=t)
        return (a if p.a_major == "k" else a.t()), (b.t() if p.b_major == "k" else b), d

    def torch(self, index: int) -> None:
        a, b, d = self.sets[index % len(self.sets)]
        torch.mm(a, b, out=d)

    def error(self) -> float:
        """Of the first set's D, on 64 rows: largest |error| / (|A| |B|)."""
        a, b, d = self.sets[0]
        rows = torch.randperm(a.shape[0], device="cuda")[:64]
        exact = a[rows].double() @ b.double()
        size = a[rows].double().abs() @ b.double().abs()
        return float(((d[rows].double() - exact).abs() / size).max())


class Ours:
    """A kernel ready to launch on a case."""

    def __init__(self, case: Case, config: Config) -> None:
        gpu, p = cuda.gpu(), case.problem
        traced = gemm.build(p, config)
        cubin = cuda.compile(traced.ptx, gpu.arch)
        self.registers, self.spills = cubin.registers, cubin.spills
        self.loaded = gpu.load(cubin)
        function, grid = self.loaded[traced.name], gemm.grid(p, config)
        self.launch = gpu.prepare(function, grid, traced.block, shared=traced.dynamic_shared)
        self.params = [self._params(traced, p, s) for s in case.sets]

    def _params(self, traced, p: Problem, tensors) -> bytes:
        a, b, d = (x.data_ptr() for x in tensors)
        lda, ldb = (max(x.stride()) for x in tensors[:2])
        values = [a, b, 0, d, p.m, p.n, p.k, lda, ldb, 0, p.n, 1.0, 0.0, 0, 0]
        return abi.pack(traced.entry, values)

    def __call__(self, index: int) -> None:
        self.launch(self.params[index % len(self.params)], torch.cuda.current_stream().cuda_stream)


def graph(call, count: int) -> torch.cuda.CUDAGraph:
    for i in range(3):
        call(i)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for i in range(count):
            call(i)
    return made


def timed(made: torch.cuda.CUDAGraph, count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    made.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / count


def compare(case: Case, config: Config, pairs: int) -> str:
    ours = Ours(case, config)
    for s in case.sets:
        s[2].fill_(float("nan"))
    ours(0)
    torch.cuda.synchronize()
    error = case.error()
    count = max(2, min(20, int(4e13 // max(1, case.problem.flops))))
    graphs = graph(ours, count), graph(case.torch, count)
    times = [[timed(g, count) for g in graphs] for _ in range(pairs)]
    ratio = sorted(t / o for o, t in times)[pairs // 2]
    mine, theirs = (sorted(x)[pairs // 2] for x in zip(*times, strict=True))
    rate = case.problem.flops / mine / 1e12
    ours.loaded.close()
    return (
        f"{case.problem!s:38s} {config!s:26s} {mine * 1e6:9.1f} µs {rate:6.0f} TFLOP/s   "
        f"torch {theirs * 1e6:9.1f} µs   ratio {ratio:5.3f}   "
        f"regs {ours.registers} spills {ours.spills}   error {error:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="4096x4096x4096,8192x8192x8192")
    parser.add_argument("--types", default="bf16")
    parser.add_argument("--layouts", default="tn")
    parser.add_argument("--configs", default="")
    parser.add_argument("--pairs", type=int, default=7)
    o = parser.parse_args()
    for type_, layout, shape in product(*(x.split(",") for x in (o.types, o.layouts, o.shapes))):
        case = Case(*(int(x) for x in shape.split("x")), type_, layout)
        for config in asked(o.configs, case.problem):
            try:
                print(compare(case, config, o.pairs), flush=True)
            except Exception as error:  # a sweep goes on
                print(f"{case.problem} {config}: {type(error).__name__}: {error}", flush=True)
        del case  # before the next one takes its memory


def asked(configs: str, problem: Problem) -> list[Config]:
    """The configurations that ``--configs`` names; without it, the chosen one."""
    if configs == "table":
        return list(gemm.TABLE)
    if not configs:
        return [gemm.choose(problem, target.DEFAULT_DEVICE)]
    return [Config.parse(c) for c in configs.split(",")]


if __name__ == "__main__":
    main()
