"""Probe: weights that are requested before prior kernels end, and two CTAs on an SM.

    python benchmarks/early_weights.py --m 16 --configs "tma:64x16x256:4:12@104~"

The rasterization group of a configuration, which changes nothing with one column of tiles, selects
a variant here: ``1SS``: each CTA prefetches SS stages of its first tile's weights to the L2 before
it waits; ``2SS``: the first IDLE CTAs do so for all tiles as well; ``3SS``: only these for all;
``4SS`` (static weights): SS stages are loaded before the wait; ``5SS``, ``6SS``,
``7SS``: four stages, and ``3SS``, ``1SS``, ``2SS``. ``1xxx`` launches the dependent grid after the
last load, ``2xxx`` half of the stages before, ``3xxx`` all stages before.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from compare.bulk_read import BulkRead
from compare.peers import bursts, graph, machine, sustained
from mixed_input import MixedCase

import tilewright
from tilewright.gemm.tma import tma_producer
from tilewright.quantization.weight_format import WeightFormat

PLAIN_LOAD = tma_producer.TmaProducer._load_tile
PLAIN_STAGE = tma_producer.TmaProducer._load_stage
PLAIN_STATIC = tma_producer.TmaProducer._load_static
IDLE = 4


def prefetch(k: Any, copy: Any, source: Any, offset: Any, size: int) -> None:
    at = (source + offset).aligned(16)
    k.emit("cp.async.bulk.prefetch.L2.global", at, size)


def load_tile(self: Any, tile: Any, more: Any) -> None:
    """The producer's tile, with prefetches."""
    k, (mode, stages) = self.k, divmod(self.config.group % 1000, 100)
    self.last = k.max(tile.k_blocks, 1)
    if mode and mode != 4:
        copy = self.copies[0]
        copy.begin(tile)
        each = self.config.tile[2] // copy.unit_k
        size, parts = stages * each * copy.unit_bytes, self.config.split
        blocks = self.scheduler.count * copy.own // IDLE
        if mode in (2, 3, 5, 7):
            with k.if_(k.ctaid.x < IDLE):
                for i in k.range(0, blocks, unroll=False):
                    block = i * IDLE + k.ctaid.x
                    for part in range(parts):
                        unit = block * copy.along + self.scheduler.k_blocks * part // parts * each
                        offset = unit.to("u64") * copy.unit_bytes
                        prefetch(k, copy, copy.matrices[0], offset, size)
        if mode in (1, 2, 6, 7):
            first = tile.first_k_block * each
            offset = k.mov(k.const("u32", 0) + first).to("u64") * copy.unit_bytes
            for source in copy.sources:
                prefetch(k, copy, source, offset, size)
    PLAIN_LOAD(self, tile, more)


def load_static(self: Any, *more: Any) -> None:
    mode, stages = divmod(self.config.group % 1000, 100)
    tma_producer.STATIC_STAGES = stages if mode == 4 else 4
    PLAIN_STATIC(self, *more)


def load_stage(self: Any, block: Any, *more: Any) -> None:
    PLAIN_STAGE(self, block, *more)
    k, late = self.k, self.config.group // 1000
    if late:
        with k.if_(block == self.last - 1 - (late - 1) * self.config.stages // 2):
            k.launch_dependent_grids()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--nk", default="8192x8192")
    parser.add_argument("--configs", default="")
    parser.add_argument("--static-configs", default="")
    given = parser.parse_args()
    tma_producer.TmaProducer._load_tile = load_tile
    tma_producer.TmaProducer._load_static = load_static
    tma_producer.TmaProducer._load_stage = load_stage
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    n, k = map(int, given.nk.split("x"))
    works, cases, expected = {}, [], {}
    for static, configs in ((False, given.configs.split()), (True, given.static_configs.split())):
        if not configs:
            continue
        form = WeightFormat("u4", "bf16", 128, "f16", "none", 0, static, False)
        torch.manual_seed(0)
        case = MixedCase(form, given.m, n, k)
        cases.append(case)
        expected[static] = case.work(None)(0).clone()
        for config in configs:
            works[("static " if static else "") + config] = (case.work(config), static, case)
    running: dict[str, Any] = {}

    def first(name: str) -> str:
        work, static, case = works[name]
        out = torch.full_like(expected[static], torch.nan)
        try:
            config = name.split()[-1]
            tilewright.matmul(case.x[0], case.weights[0], out=out, config=config)
            torch.cuda.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:150]}"
        error = (out.float() - expected[static].float()).abs().max() / expected[
            static
        ].float().abs().max()
        return "" if float(error) < 0.02 else f"wrong by {float(error):.1e}"

    with ThreadPoolExecutor(8) as pool:
        for name, why in zip(works, pool.map(first, works), strict=True):
            if why:
                print(f"    {name}: {why}", flush=True)
            if not why or why.startswith("wrong"):
                running[name] = works[name][0]
    case = cases[0]
    read = BulkRead(case.weights[0].units.numel() // (16 << 10) * (16 << 10))
    running["bulk read"] = lambda i: read(case.weights[i % len(case.weights)].units.view(-1))
    running["copy"] = case.copy
    graphs = []
    for name, work in running.items():
        graphs.append(graph(work, 100))
    bursts(graphs, 1, pause=0.0)
    for label, measured in (("busy", sustained(graphs, 24, 0.1)),):
        print(label, f"M = {given.m}, {n}x{k}")
        for name, seconds in zip(running, measured, strict=True):
            middle = sorted(seconds)
            low, high = middle[len(middle) // 4], middle[3 * len(middle) // 4]
            shown = [f"{1e4 * x:7.2f}" for x in (statistics.median(seconds), low, high)]
            print("   ", *shown, name, flush=True)


if __name__ == "__main__":
    main()
