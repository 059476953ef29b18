"""Compare products of stacks of matrices with torch's ``bmm`` and ``matmul``.

    python benchmarks/batched_products.py
    python benchmarks/batched_products.py --rows 1024:64x64x64 --configs tma:64x64x64:1:12,…

A row is BATCH:MxNxK, bf16, B column-major; ``BATCH:MxNxK:nt`` says the layouts of A and B by BLAS'
names. ``a*`` or ``b*`` before the row: one matrix A or B for the whole batch, a stride of 0 that
torch broadcasts, too. A line of the Markdown table has median times of CUDA-graph replays,
interleaved on a busy GPU, with random inputs that rotate past the L2; memory traffic, each matrix
counted once; the ratio to torch (for torch itself, the time of a copy that moves as many bytes);
and whether the bits of some products are those of
``tilewright.matmul`` of two matrices with the same configuration, else the largest
|error| / (|A| |B|). Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright

ROWS = ("64:1024x1024x1024", "1024:64x64x64", "512:16x128x128")
CHECKED = 8  # matrices of the batch, the first and the last among them
MAX_SETS = 64
Work = Callable[[int], Any]


class BatchedCase:
    """The operands of a row, enough sets of them to fill three L2 caches."""

    def __init__(self, row: str) -> None:
        torch.manual_seed(0)
        shared, _, rest = row.rpartition("*")
        batch, sizes, *layout = rest.split(":")
        m, n, k = map(int, sizes.split("x"))
        a_letter, b_letter = layout[0] if layout else "tn"
        a_batch, b_batch = (1 if shared == name else int(batch) for name in "ab")
        self.batch = int(batch)
        self.bytes = 2 * (a_batch * m * k + b_batch * n * k + self.batch * m * n)
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        count = min(MAX_SETS, room // self.bytes + 1)
        self.a = [self._random(a_batch, m, k, a_letter) for _ in range(count)]
        self.b = [self._random(b_batch, k, n, b_letter) for _ in range(count)]
        shape = self.batch, m, n
        self.d = [torch.empty(shape, dtype=torch.bfloat16, device="cuda") for _ in range(count)]
        halves = (2, self.bytes // 4)
        self.copied = [torch.zeros(halves, dtype=torch.int16, device="cuda") for _ in range(count)]

    @staticmethod
    def _random(batch: int, rows: int, columns: int, letter: str) -> torch.Tensor:
        """A stack of matrices, row-major for ``t``; of one matrix just that."""
        shape = (batch, rows, columns) if letter == "t" else (batch, columns, rows)
        made = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        made = made if letter == "t" else made.transpose(1, 2)
        return made if batch > 1 else made[0]

    def ours(self, i: int, config: str | None = None) -> Any:
        i %= len(self.a)
        return tilewright.matmul(self.a[i], self.b[i], out=self.d[i], config=config)

    def torch(self, i: int) -> Any:
        i %= len(self.a)
        return torch.matmul(self.a[i], self.b[i], out=self.d[i])

    def copy(self, i: int) -> Any:
        """A copy that reads half of the bytes of a product, and writes the other half."""
        target, source = self.copied[i % len(self.copied)]
        return target.copy_(source)

    def check(self, work: Work, config: str | None) -> str:
        """Whether some products have the bits of a product of two matrices, else their error."""
        self.d[0].fill_(torch.nan)
        found = work(0)
        same, worst = True, 0.0
        for i in {0, self.batch - 1, *torch.randint(self.batch, (CHECKED - 2,)).tolist()}:
            a, b = (x if x.dim() == 2 else x[i] for x in (self.a[0], self.b[0]))
            if config:
                same &= torch.equal(found[i], tilewright.matmul(a, b, config=config))
            left, right = a.double(), b.double()
            error = (found[i].double() - left @ right).abs() / (left.abs() @ right.abs())
            worst = max(worst, float(error.nan_to_num(nan=torch.inf).max()))
        return f"{worst:.1e}" if same else f"{worst:.1e}, other bits than a product alone"


def usable(case: BatchedCase, configs: list[str | None]) -> dict[str | None, Work]:
    """The calls by configuration, those that do not run left out with a message."""
    works: dict[str | None, Work] = {}
    for config in configs:
        work: Work = lambda i, config=config: case.ours(i, config)  # noqa: E731
        try:
            work(0)
            torch.cuda.synchronize()
        except tilewright.TilewrightError as error:
            print(f"{config}: {str(error)[:120]}")
            continue
        works[config] = work
    return works


def lines(row: str, configs: list[str | None]) -> list[str]:
    """The lines of a row, one for each configuration."""
    case = BatchedCase(row)
    works = usable(case, configs)
    count = max(calls(rough_seconds(case.torch), QUICK.replay), len(case.a))
    graphs = [graph(work, count) for work in (case.torch, case.copy, *works.values())]
    bursts(graphs, 1, pause=0.0)
    torch_times, copy_times, *times = sustained(graphs, QUICK.pairs, QUICK.warm_up)
    microseconds = [1e6 * statistics.median(own) / count for own in (torch_times, copy_times)]
    made = [f"| {row} torch | {microseconds[0]:.2f} | | copy {microseconds[1]:.2f} µs | |"]
    for (config, work), own in zip(works.items(), times, strict=True):
        seconds = statistics.median(own) / count
        ratio = Ratio.of([theirs / ours for theirs, ours in zip(torch_times, own, strict=True)])
        chosen = f"chosen {tilewright.plan(case.a[0], case.b[0], out=case.d[0]).config}"
        cells = [
            f"{row} {config or chosen}", f"{1e6 * seconds:.2f}",
            f"{case.bytes / seconds / 1e12:.2f}",
            f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", case.check(work, config),
        ]  # fmt: skip
        made.append(f"| {' | '.join(cells)} |")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="rows, separated by commas")
    parser.add_argument("--configs", default="", help="configurations, separated by commas, too")
    given = parser.parse_args()
    configs: list[str | None] = [None, *filter(None, given.configs.split(","))]
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| batch: M × N × K | µs | TB/s | torch / ours | error |\n|---|---|---|---|---|")
    for row in filter(None, given.rows.split(",")):
        print("\n".join(lines(row, configs)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
