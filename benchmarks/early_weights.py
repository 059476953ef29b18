"""Probe: weights that are prefetched to the L2 before prior kernels end.

    python benchmarks/early_weights.py "16 8192x8192 u4:128 tma:64x16x256:4:12@104~"

A case is M, N×K, the weights, ``static`` if they are, ``between`` for a small kernel of torch after
each product, and configurations. The rasterization group of these, which changes nothing with one
column of tiles, has the KB of weights that a CTA prefetches; 1000 more: where grids overlap, the
next one is launched half of the stages before the last load. µs: median and quartiles.
"""

from __future__ import annotations

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import calls
from mixed_input import MixedCase

import tilewright
from tilewright.gemm.tma import tma_producer
from tilewright.gemm.tma.mixed_input import weight_prefetch
from tilewright.quantization.weight_format import WeightFormat

PRODUCER = tma_producer.TmaProducer
PLAIN_LOAD, PLAIN_STAGE = PRODUCER._load_tile, PRODUCER._load_stage


def load_stage(self: Any, block: Any, *more: Any) -> None:
    PLAIN_STAGE(self, block, *more)
    k, config = self.k, self.config
    if config.overlapped and config.group >= 1000:
        with k.if_(block == self.last - 1 - config.stages // 2):
            k.launch_dependent_grids()


def load_tile(self: Any, tile: Any, more: Any) -> None:
    self.last = self.k.max(tile.k_blocks, 1)
    PLAIN_LOAD(self, tile, more)


def patch() -> None:
    PRODUCER._load_tile, PRODUCER._load_stage = load_tile, load_stage
    weight_prefetch.prefetched_bytes = lambda config: config.group % 1000 << 10


class Measured:
    """A case and its configurations."""

    def __init__(self, text: str) -> None:
        m, nk, weights, *words = text.split()
        self.between, static = "between" in words, "static" in words
        words = [word for word in words if word not in ("between", "static")]
        self.name = text.partition(" tma")[0]
        self.m, (self.n, self.k) = int(m), map(int, nk.split("x"))
        type_, group = weights.split(":")
        form = WeightFormat(type_, "bf16", int(group), "f16", "none", 0, static, False)
        self.case, self.configs = MixedCase(form, self.m, self.n, self.k), words
        self.case.plain.clear()
        self.expected = self.case.work(None)(0).float().clone()
        self.works: dict[str, Any] = {}

    def first(self, config: str) -> None:
        """Compile a configuration, and check its result."""
        out = torch.full_like(self.case.d[0], torch.nan)
        try:
            x, w = self.case.x[0], self.case.weights[0]
            tilewright.matmul(x, w, out=out, config=config)
            torch.cuda.synchronize()
        except Exception as error:
            print(f"    {config}: {type(error).__name__}: {str(error)[:150]}", flush=True)
            return
        error = (out.float() - self.expected).abs().max() / self.expected.abs().max()
        if not float(error) < 0.02:
            print(f"    {config}: wrong by {float(error):.1e}", flush=True)
        self.works[config] = (
            self.followed(self.case.work(config)) if self.between else (self.case.work(config))
        )

    def followed(self, work: Any) -> Any:
        """A product and a small kernel."""

        def both(i: int) -> None:
            d = work(i)
            torch.add(d, 1.0, out=self.other)

        self.other = torch.empty_like(self.case.d[0])
        return both

    def report(self) -> None:
        names = [config for config in self.configs if config in self.works]
        count = max(calls(rough_seconds(self.works[names[0]]), 1e-3), len(self.case.x))
        graphs = [graph(self.works[name], count) for name in names]
        bursts(graphs, 1, pause=0.0)
        print(self.name)
        for name, seconds in zip(names, sustained(graphs, 24, 0.1), strict=True):
            quartiles = statistics.quantiles(seconds, n=4)
            shown = [f"{1e6 * x / count:7.2f}" for x in (quartiles[1], quartiles[0], quartiles[2])]
            print("   ", *shown, name, flush=True)


def main() -> None:
    patch()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for text in sys.argv[1:]:
        case = Measured(text)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(case.first, case.configs))
        case.report()
        del case
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
