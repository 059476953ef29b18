"""Compare products of scaled 8-bit floats with our unscaled product and with torch.

    python benchmarks/scaled_products.py
    python benchmarks/scaled_products.py --shapes 4096x7168x2048 --kinds blocks

Kinds: ``rows`` (a scale per row of A and per column of B, in the epilogue, fast accumulation),
``blocks`` (1×128 of A and 128×128 of B, as DeepSeek-V3 multiplies) and ``lines`` (1×128 of both).
A line of the Markdown table has median times of CUDA-graph replays, interleaved on a busy GPU, with
random inputs that rotate past the L2, and the largest |error| / (|A| |B|) against f64 in 64 rows. A
peer that fails is marked. Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from compare.peers import CHECKED_ROWS, bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright
from tilewright import Scaled

SHAPES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096), (4096, 7168, 2048),
    (4096, 2112, 7168), (64, 7168, 2048), (128, 24576, 1536), (16, 14336, 4096),
)  # fmt: skip
KINDS = {"rows": ("row", "column"), "blocks": ((1, 128), (128, 128)), "lines": ((1, 128), (128, 1))}
E4M3, BF16 = torch.float8_e4m3fn, torch.bfloat16
Work = Callable[[int], object]


def scales_of(rows: int, columns: int, block: Any) -> torch.Tensor:
    """Random scales of a matrix. Those of blocks along K are contiguous along the other side, in
    rows of multiples of 16 bytes, as cuBLAS requires.
    """
    if block in ("row", "column"):
        return torch.rand((rows, 1) if block == "row" else (1, columns), device="cuda") + 0.5
    down, across = -(-rows // block[0]), -(-columns // block[1])
    if block == (128, 128):
        whole = torch.rand((across, -(-down // 4) * 4), device="cuda") + 0.5
        return whole[:, :down].t()
    if block == (128, 1):
        return torch.rand((down, across), device="cuda") + 0.5
    return (torch.rand((across, down), device="cuda") + 0.5).t()


class ScaledCase:
    """The operands of a row, enough sets of them to fill three L2 caches."""

    def __init__(self, kind: str, m: int, n: int, k: int) -> None:
        torch.manual_seed(0)
        self.kind, self.one = kind, torch.ones((), device="cuda")
        self.left, self.right = KINDS[kind]
        self.fast = kind == "rows"
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        self.sets = [
            self._set(m, n, k) for _ in range(min(256, room // ((m + n) * k + 2 * m * n) + 1))
        ]

    def _set(self, m: int, n: int, k: int) -> tuple[Any, ...]:
        a = torch.randn((m, k), device="cuda").to(E4M3)
        b = torch.randn((n, k), device="cuda").to(E4M3).t()
        scales = scales_of(m, k, self.left), scales_of(k, n, self.right)
        return a, b, *scales, torch.empty((m, n), dtype=BF16, device="cuda")

    def scaled(self, i: int) -> Any:
        a, b, sa, sb, d = self.sets[i % len(self.sets)]
        left, right = Scaled(a, sa, self.left), Scaled(b, sb, self.right)
        return tilewright.matmul(left, right, out=d, fast_accum=self.fast)

    def plain(self, i: int) -> Any:
        a, b, _, _, d = self.sets[i % len(self.sets)]
        return tilewright.matmul(a, b, out=d, fast_accum=self.fast)

    def by_torch(self, i: int) -> Any:
        a, b, sa, sb, d = self.sets[i % len(self.sets)]
        return torch._scaled_mm(a, b, sa, sb, out_dtype=BF16, use_fast_accum=self.fast, out=d)

    def torch_plain(self, i: int) -> Any:
        a, b, _, _, d = self.sets[i % len(self.sets)]
        return torch._scaled_mm(
            a, b, self.one, self.one, out_dtype=BF16, use_fast_accum=self.fast, out=d
        )

    def error(self) -> float:
        """The largest |error| / (|A| |B|) of the scaled product in some rows."""
        a, b, sa, sb, d = self.sets[0]
        d.fill_(torch.nan)
        self.scaled(0)
        rows = torch.randint(a.shape[0], (CHECKED_ROWS,), device="cuda")
        left = (a.double() * expanded(sa, a.shape))[rows]
        right = b.double() * expanded(sb, b.shape)
        error = (d[rows].double() - left @ right).abs() / (left.abs() @ right.abs())
        return float(error.nan_to_num(nan=torch.inf).max())


def expanded(scales: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The scale of each element in f64."""
    for axis, size in enumerate(shape):
        each = -(-size // scales.shape[axis])
        block = each if scales.shape[axis] in (1, size) else 128
        scales = scales.repeat_interleave(block, axis).narrow(axis, 0, size)
    return scales.double()


def line(kind: str, shape: tuple[int, int, int]) -> str:
    """A row of the table."""
    case = ScaledCase(kind, *shape)
    works: dict[str, Work] = {"scaled": case.scaled, "plain": case.plain}
    failed = {}
    for name, work in (("torch", case.by_torch), ("torch, one scale", case.torch_plain)):
        try:
            work(0)
            torch.cuda.synchronize()
            works[name] = work
        except Exception as error:
            failed[name] = str(error).partition("\n")[0][:60]
    count = max(calls(rough_seconds(case.plain), QUICK.replay), len(case.sets))
    graphs = [graph(work, count) for work in works.values()]
    bursts(graphs, 1, pause=0.0)
    times = dict(zip(works, sustained(graphs, QUICK.pairs, QUICK.warm_up), strict=True))
    cells = [f"{kind} {'×'.join(map(str, shape))}"]
    for name in ("scaled", "plain", "torch", "torch, one scale"):
        known = name in times
        cells.append(f"{1e6 * statistics.median(times[name]) / count:.1f}" if known else "failed")
    for name in ("plain", "torch"):
        if name in times:
            ratio = Ratio.of([t / o for o, t in zip(times["scaled"], times[name], strict=True)])
            cells.append(f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
        else:
            cells.append(failed[name])
    return f"| {' | '.join(cells)} | {case.error():.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS), help="rows, blocks, lines")
    parser.add_argument("--shapes", default="", help="MxNxK, separated by commas")
    given = parser.parse_args()
    shapes = [tuple(map(int, s.split("x"))) for s in given.shapes.split(",") if s] or SHAPES
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(
        "| product | scaled µs | unscaled µs | torch µs | torch, one scale, µs | unscaled / scaled "
        "| torch / scaled | error |\n|---|---|---|---|---|---|---|---|"
    )
    for kind in given.kinds.split(","):
        for m, n, k in shapes:
            try:
                print(line(kind, (m, n, k)), flush=True)
            except Exception as error:
                print(f"| {kind} {m}×{n}×{k} | {type(error).__name__}: {error} |", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
