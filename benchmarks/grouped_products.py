"""Compare grouped products with torch's ``_grouped_mm``.

    python benchmarks/grouped_products.py
    python benchmarks/grouped_products.py --rows 64:128x4096x7168 --configs tma:128x128x64:2p:6,…
    python benchmarks/grouped_products.py --zipf 30
    python benchmarks/grouped_products.py --host

A row is GROUPS:ROWSxNxK, of groups with ROWS rows each, bf16, weights K-major. With ``--zipf`` 64
groups share 8,192 rows by Zipf's law (4096×7168), one row of the table for each seed. A line of the
Markdown table has median times of CUDA-graph replays, interleaved on a busy GPU, with random inputs
that rotate past the L2; memory traffic, each matrix counted once; the ratio to torch; and
the largest |error| / (|A| |B|) against f64 in some rows. With ``--host``, only microseconds of the
host for each repeated call, of a product so small that the GPU is never behind. Needs an NVIDIA GPU
of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from compare.peers import CHECKED_ROWS, bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls, geomean

import tilewright

ROWS = ("64:128x4096x7168", "64:16x4096x7168", "8:512x4096x4096", "128:8x1536x2048")
ZIPF_GROUPS, ZIPF_ROWS, ZIPF_NK = 64, 8192, (4096, 7168)
HOST_CALLS, HOST_REPEATS = 200, 15
Work = Callable[[int], object]


def zipf_sizes(seed: int) -> list[int]:
    """The rows of each group, by Zipf's law with exponent 1, in random order."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, ZIPF_GROUPS + 1)
    return list(map(int, rng.permutation(rng.multinomial(ZIPF_ROWS, weights / weights.sum()))))


class GroupedCase:
    """The operands of a row, enough sets of them to fill three L2 caches."""

    def __init__(self, sizes: list[int], n: int, k: int) -> None:
        torch.manual_seed(0)
        rows, groups = sum(sizes), len(sizes)
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        self.matrices, self.rows = 2 * n * k, 2 * rows * (k + n)  # bytes
        count = min(64, room // (self.rows + groups * self.matrices) + 1)
        self.a = [self._random(rows, k) for _ in range(count)]
        self.b = [self._random(groups, n, k).transpose(1, 2) for _ in range(count)]
        self.d = [torch.empty((rows, n), dtype=torch.bfloat16, device="cuda") for _ in range(count)]
        self.resize(sizes)

    def resize(self, sizes: list[int]) -> None:
        """Divide the same rows into other groups."""
        self.bytes = self.rows + sum(size > 0 for size in sizes) * self.matrices
        self.offsets = torch.from_numpy(np.cumsum(sizes)).to("cuda", torch.int32)
        self.group = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).cuda()

    @staticmethod
    def _random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def ours(self, i: int, config: str | None = None) -> Any:
        i %= len(self.a)
        return tilewright.grouped_matmul(
            self.a[i], self.b[i], offsets=self.offsets, out=self.d[i], config=config
        )

    def torch(self, i: int) -> Any:
        i %= len(self.a)
        return torch._grouped_mm(self.a[i], self.b[i], offs=self.offsets)

    def error(self, work: Work) -> float:
        """The largest |error| / (|A| |B|) in some rows."""
        self.d[0].fill_(torch.nan)
        found, worst = work(0), 0.0
        for row in torch.randint(len(self.group), (CHECKED_ROWS,)).tolist():
            left, right = self.a[0][row].double(), self.b[0][self.group[row]].double()
            error = (found[row].double() - left @ right).abs() / (left.abs() @ right.abs())
            worst = max(worst, float(error.nan_to_num(nan=torch.inf).max()))
        return worst


def lines(name: str, case: GroupedCase, configs: list[str | None]) -> tuple[list[str], float]:
    """The lines of a row, one for each configuration, and the ratio of the first."""
    works: dict[str, Work] = {"torch": case.torch}
    for config in configs:
        works[str(config)] = lambda i, config=config: case.ours(i, config)
    count = max(calls(rough_seconds(case.torch), QUICK.replay), 2)
    graphs = [graph(work, count) for work in works.values()]
    bursts(graphs, 1, pause=0.0)
    times = dict(zip(works, sustained(graphs, QUICK.pairs, QUICK.warm_up), strict=True))
    made, first = [], 0.0
    for config, work in works.items():
        seconds = statistics.median(times[config]) / count
        pairs = zip(times["torch"], times[config], strict=True)
        ratio = Ratio.of([theirs / ours for theirs, ours in pairs])
        if config == str(configs[0]):
            first = ratio.median
        cells = [
            f"{name} {config}", f"{1e6 * seconds:.1f}", f"{case.bytes / seconds / 1e12:.2f}",
            f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", f"{case.error(work):.1e}",
        ]  # fmt: skip
        made.append(f"| {' | '.join(cells)} |")
    return made, first


def host_lines() -> list[str]:
    """Microseconds of the host for a repeated call: ours, ours with gathered rows, torch's."""
    case = GroupedCase([2] * 4, 64, 64)
    gather = torch.arange(8, device="cuda", dtype=torch.int32)
    a, b, d, offsets = case.a[0], case.b[0], case.d[0], case.offsets
    works: dict[str, Callable[[], Any]] = {
        "ours": lambda: tilewright.grouped_matmul(a, b, offsets=offsets, out=d),
        "ours, gathered": lambda: tilewright.grouped_matmul(
            a, b, offsets=offsets, gather=gather, out=d
        ),
        "torch": lambda: torch._grouped_mm(a, b, offs=offsets),
    }
    found = {name: host_microseconds(work) for name, work in works.items()}
    return [
        f"{name}: {statistics.median(us):.1f} µs of the host a call, least {min(us):.1f}"
        for name, us in found.items()
    ]


def host_microseconds(work: Callable[[], Any]) -> list[float]:
    """A call's time, in some repeats of calls that follow each other."""
    found = []
    for _ in range(HOST_REPEATS):
        work()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            work()
        found.append(1e6 * (time.perf_counter() - start) / HOST_CALLS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="GROUPS:ROWSxNxK, comma-separated")
    parser.add_argument("--configs", default="", help="configurations, separated by commas")
    parser.add_argument("--zipf", type=int, default=0, help="number of seeds of Zipf's law, too")
    parser.add_argument("--host", action="store_true", help="only the host's time of a call")
    given = parser.parse_args()
    if given.host:
        print("\n".join(host_lines()))
        return
    configs: list[str | None] = [c or None for c in given.configs.split(",")]
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| groups: rows × N × K | µs | TB/s | torch / ours | error |\n|---|---|---|---|---|")
    cases = []
    for row in filter(None, given.rows.split(",")):
        groups, _, sizes = row.partition(":")
        rows, n, k = map(int, sizes.split("x"))
        cases.append((row, [rows] * int(groups), n, k))
    for name, sizes, n, k in cases:
        print("\n".join(lines(name, GroupedCase(sizes, n, k), configs)[0]), flush=True)
        torch.cuda.empty_cache()
    ratios, case = [], None
    for seed in range(given.zipf):
        case = case or GroupedCase(zipf_sizes(seed), *ZIPF_NK)
        case.resize(zipf_sizes(seed))
        made, ratio = lines(f"Zipf {seed}", case, configs)
        print("\n".join(made), flush=True)
        ratios.append(ratio)
    if ratios:
        print(f"Zipf: geometric mean {geomean(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    sys.exit(main())
