"""Compare lists of products of any sizes with a loop of torch's ``matmul``, and ``_grouped_mm``.

    python benchmarks/problem_lists.py
    python benchmarks/problem_lists.py --rows uniform-64:128x4096x7168,random-256:1024x1024x1024

``uniform-COUNT:MxNxK`` has products of one size, of which torch's ``_grouped_mm`` multiplies stacks
too; ``random-COUNT:MxNxK`` has extents from 16 to M, N and K, multiples of 16, as many small ones
as large ones (log-uniform). bf16, B column-major. A line of the Markdown table has median times of
CUDA-graph replays, interleaved on a busy GPU, with random inputs that rotate past the L2; TFLOP/s
and TB/s of memory traffic; ratios to the loop and to ``_grouped_mm``; the host's microseconds of a
call with its table in place and with new addresses; and whether the products of some problems have
the bits of ``tilewright.matmul`` with the same configuration, else the largest |error| /
(|A| |B|). Needs an NVIDIA GPU of sm_90a and PyTorch.
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
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright

ROWS = (
    "uniform-64:128x4096x7168", "uniform-64:16x4096x7168", "uniform-64:1024x1024x1024",
    "uniform-512:64x64x64", "random-64:2048x2048x2048", "random-512:512x512x512",
    "random-64:4096x4096x4096",
)  # fmt: skip
Work = Callable[[int], Any]


class ListCase:
    """The operands of a row, enough sets of them to fill three L2 caches, 8 at most."""

    def __init__(self, row: str) -> None:
        torch.manual_seed(0)
        kind, _, rest = row.partition("-")
        count, _, extents = rest.partition(":")
        most = np.array([int(x) for x in extents.split("x")])
        self.uniform = kind == "uniform"
        self.sizes = np.tile(most, (int(count), 1))
        if not self.uniform:
            part = np.random.default_rng(0).random((int(count), 3))
            self.sizes = (np.ceil((most / 16) ** part) * 16).astype(np.int64)
        m, n, k = self.sizes.T
        self.flops = int(2 * (m * n * k).sum())
        self.bytes = int(2 * (m * k + n * k + m * n).sum())
        self.ends = torch.from_numpy(np.cumsum(m)).to("cuda", torch.int32)
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        sets = min(8, room // self.bytes + 1)
        self.stacks = [self._stacks() for _ in range(sets)] if self.uniform else []
        self.sets = [self._matrices(i) for i in range(sets)]

    def _stacks(self) -> tuple[Any, Any]:
        (m, n, k), count = self.sizes[0], len(self.sizes)
        return _random(count * m, k), _random(count, n, k).transpose(1, 2)

    def _matrices(self, i: int) -> tuple[list[Any], list[Any], list[Any]]:
        if self.uniform:
            a, b = self.stacks[i]
            lists = list(a.view(len(self.sizes), -1, a.shape[1])), list(b)
        else:
            lists = (
                [_random(m, k) for m, _, k in self.sizes],
                [_random(n, k).T for _, n, k in self.sizes],
            )
        d = [torch.empty((m, n), dtype=torch.bfloat16, device="cuda") for m, n, _ in self.sizes]
        return (*lists, d)

    def ours(self, i: int) -> Any:
        a, b, d = self.sets[i % len(self.sets)]
        return tilewright.grouped_matmul(a, b, out=d)

    def loop(self, i: int) -> Any:
        for a, b, d in zip(*self.sets[i % len(self.sets)], strict=True):
            torch.matmul(a, b, out=d)

    def grouped(self, i: int) -> Any:
        a, b = self.stacks[i % len(self.sets)]
        return torch._grouped_mm(a, b, offs=self.ends)

    def error(self) -> float:
        """The largest |error| / (|A| |B|) of some problems."""
        worst, (a, b, d) = 0.0, self.sets[0]
        for x in d:
            x.fill_(torch.nan)
        self.ours(0)
        for i in {0, len(d) - 1, *torch.randint(len(d), (6,)).tolist()}:
            left, right = a[i].double(), b[i].double()
            error = (d[i].double() - left @ right).abs() / (left.abs() @ right.abs())
            worst = max(worst, float(error.nan_to_num(nan=torch.inf).max()))
        return worst

    def host(self, *, out: bool) -> float:
        """Microseconds of a call on the host; without ``out`` addresses of D may be new."""
        a, b, d = self.sets[0]
        times = []
        for _ in range(12):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            tilewright.grouped_matmul(a, b, out=d if out else None)
            times.append(time.perf_counter() - begin)
        return 1e6 * statistics.median(times)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(tuple(map(int, shape)), device="cuda", dtype=torch.bfloat16)


def line(row: str) -> str:
    """The line of a row."""
    case = ListCase(row)
    works: dict[str, Work] = {"ours": case.ours, "loop": case.loop}
    if case.uniform:
        works["grouped"] = case.grouped
    for work in works.values():  # tables are uploaded before a capture
        for i in range(len(case.sets)):
            work(i)
    count = max(calls(rough_seconds(case.ours), QUICK.replay), len(case.sets))
    graphs = [graph(work, count) for work in works.values()]
    bursts(graphs, 1, pause=0.0)
    times = dict(zip(works, sustained(graphs, QUICK.pairs, QUICK.warm_up), strict=True))
    seconds = {name: statistics.median(own) / count for name, own in times.items()}
    ratios = [
        f"{1e6 * seconds[name]:.1f}: "
        f"{Ratio.of([x / y for x, y in zip(times[name], times['ours'], strict=True)]).median:.3f}"
        if name in works
        else ""
        for name in ("loop", "grouped")
    ]
    own = seconds["ours"]
    rates = f"{case.flops / own / 1e12:.0f}", f"{case.bytes / own / 1e12:.2f}"
    host = f"{case.host(out=True):.0f}, {case.host(out=False):.0f}"
    cells = [row, f"{1e6 * own:.1f}", *rates, *ratios, host, f"{case.error():.1e}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="rows, separated by commas")
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| list | µs | TFLOP/s | TB/s | loop | `_grouped_mm` | host µs | error |")
    print("|---|---|---|---|---|---|---|---|")
    for row in filter(None, given.rows.split(",")):
        print(line(row), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
