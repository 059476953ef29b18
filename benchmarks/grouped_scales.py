"""Time grouped products of 8-bit floats with block scales beside torch's ``_grouped_mm`` in bf16.

    python benchmarks/grouped_scales.py
    python benchmarks/grouped_scales.py --kinds k,contiguous
    python benchmarks/grouped_scales.py --rows k-4:4096x7168x8192=chosen,tma:128x128x128:2:5

A row is KIND-GROUPS:SIZES, then the variants to time beside torch:

    contiguous-8:512x4096x4096     8 groups of 512 rows, N, K; scales of 1×128 and 128×128
    masked-64:16of128x4096x7168    16 rows of a capacity of 128 in each group
    k-4:4096x7168x8192             M, N, K of each group; scales of 1×128 of both; D in f32
    dense-1:32768x7168x3072        a product without groups, scales of 1×128 and 128×128

A variant is a configuration, or ``chosen``; ``warp`` (chosen, with scales of A at a pitch that no
tensor map has, so that a warp copies them), ``full`` (masked, without ``expected_rows``), ``add``
(D = the product + C), or ``bf16`` (the same in bf16), which may be followed by ``/`` and a
configuration; ``deepgemm/FILE.cubin`` or ``bf16/FILE.cubin`` is a kernel of DeepGEMM
(``compare/deepgemm_peer.py``). torch multiplies bf16, the rows of masked groups without gaps. A
line of the Markdown table has median times of CUDA-graph replays, interleaved on a busy GPU
(``--bursts``: with pauses), with random inputs that rotate past the L2; the ratio to torch; and the
largest |error| / (|A| |B|) against f64 in some rows. Kernels are compiled in threads before
anything is timed. Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import torch
from compare.deepgemm_peer import DeepGemmPeer
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright
from tilewright import Scaled

ROWS = (
    "contiguous-8:512x4096x4096=chosen,warp",
    "contiguous-4:8192x7168x3072=chosen,warp,tma:128x128x128:2:5@16,tma:128x192x128:2:4/1x2@16,"
    "tma:128x128x128:2:5/2x1@16",
    "dense-1:32768x7168x3072=chosen",
    "masked-64:16of128x4096x7168=chosen,full,bf16",
    "masked-128:8of128x1536x2048=chosen,tma:64x192x128:1:6@16,bf16,bf16/tma:64x16x128:1:11@8~",
    "masked-32:192of4096x6144x7168=chosen,tma:256x96x128:2:4@16~,tma:128x192x128:2:4@16~,"
    "tma:64x192x128:1:6@16,bf16",
    "masked-32:20of4096x4096x4096=chosen,tma:64x24x128:1:12@16~,bf16,bf16/tma:64x24x128:1:10@8~",
    "k-4:4096x7168x8192=chosen,tma:128x128x128:2:5@16,tma:128x160x128:2:5@16,add,"
    "add/tma:256x96x128:2:3@16",
    "k-8:7168x2048x4096=chosen,tma:128x128x128:2:5@16,tma:256x96x128:2:4@16,add,"
    "add/tma:256x96x128:2:3@16~",
)
DEVICE, E4M3, BF16 = "cuda", torch.float8_e4m3fn, torch.bfloat16
CHECKED = 8  # rows of a group
MOST_SETS = 8  # of inputs
ADDENDS = {"add": "d", "sum": "c"}  # the C of variants: D itself, and (``sum``) another matrix
Work = Callable[[int], Any]


@tilewright.epilogue
def added(acc: Any, c: Any) -> Any:
    return acc + c


def scales(*shape: int, pitch: int = 0) -> torch.Tensor:
    """Random scales (…, rows, blocks of K), contiguous along the rows, and ``pitch`` more from one
    block to the next.
    """
    *stack, rows, blocks = shape
    whole = torch.rand((*stack, blocks, rows + pitch), device=DEVICE) + 0.5
    return whole[..., :rows].transpose(-2, -1)


def expanded(x: torch.Tensor, s: torch.Tensor, side: int) -> torch.Tensor:
    """x times its scales, of blocks of ``side`` rows and 128 columns, in f64."""
    whole = s.double().repeat_interleave(side, -2).repeat_interleave(128, -1)
    return x.double() * whole[..., : x.shape[-2], :]


class Case:
    """The operands of a row; sets of them fill three L2 caches. ``rows``: of each group, of its
    ``capacity``.
    """

    def __init__(self, row: str, room: int) -> None:
        torch.manual_seed(0)
        self.name, _, variants = row.partition("=")
        self.kind, _, rest = self.name.partition("-")
        groups, _, sizes = rest.partition(":")
        m, *others = sizes.split("x")
        self.groups, self.n, self.k = int(groups), *map(int, others)
        self.rows, self.capacity = int(m.partition("of")[0]), int(m.rpartition("of")[2])
        self.along_k, self.masked = self.kind == "k", self.kind == "masked"
        bytes_ = (self.rows + self.n) * self.k * self.groups
        self.sets = [self._set() for _ in range(min(MOST_SETS, room // bytes_ + 1))]
        ones = torch.ones(self.groups, device=DEVICE, dtype=torch.int32)
        self.counts = ones * self.rows
        self.ends = torch.arange(1, self.groups + 1, device=DEVICE, dtype=torch.int32)
        self.ends *= self.k if self.along_k else self.rows
        self.works: dict[str, Work] = {"torch": self.by_torch}
        for variant in variants.split(","):
            kind, _, config = variant.partition("/")
            if variant.startswith("tma"):
                kind, config = "", variant
            self.works[variant] = self._work(kind, config or None)

    def _set(self) -> dict[str, torch.Tensor]:
        g, m, n, k = self.groups, self.rows, self.n, self.k
        if self.along_k:
            made = {"a": self._matrix(m, g * k), "b": self._matrix(n, g * k).mT}
            made |= {"sa": scales(m, g * k // 128), "sb": scales(n, g * k // 128).mT}
            made |= {x: torch.zeros((g, m, n), device=DEVICE) for x in "cd"}
        else:
            lead = (g, self.capacity) if self.masked else (g * m,)
            made = {"a": self._matrix(*lead, k), "b": self._matrix(g, n, k).mT}
            made |= {"sa": scales(*lead, k // 128), "odd": scales(*lead, k // 128, pitch=1)}
            made["sb"] = (torch.rand((g, -(-n // 128), k // 128), device=DEVICE) + 0.5).mT
            made["d"] = torch.zeros((*lead, n), device=DEVICE, dtype=BF16)
        made |= {"wide_a": made["a"].to(BF16), "wide_b": made["b"].to(BF16)}
        made["packed"] = made["wide_a"]
        if self.masked:
            made["packed"] = made["wide_a"][:, :m].flatten(0, 1)
        return made

    def _matrix(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=DEVICE, dtype=BF16).to(E4M3)

    def by_torch(self, i: int) -> torch.Tensor:
        s = self.sets[i % len(self.sets)]
        if self.kind == "dense":
            return torch.mm(s["packed"], s["wide_b"][0])
        return torch._grouped_mm(s["packed"], s["wide_b"], offs=self.ends)

    def _peer(self, path: str, bf16: bool) -> Work:
        """DeepGEMM's product. What is wrong with its file is raised by the first call."""

        @cache
        def prepared() -> DeepGemmPeer:
            rows = self.capacity if self.masked else self.rows
            sizes = rows, self.n, self.k, self.groups
            peer = DeepGemmPeer(path, self.kind, bf16, sizes)
            for s in self.sets:
                peer.add(s, self.k if self.along_k else self.rows)
            return peer

        def work(i: int) -> torch.Tensor:
            prepared().run(i % len(self.sets))
            return self.sets[i % len(self.sets)]["d"]

        return work

    def _work(self, kind: str, config: str | None) -> Work:
        if kind == "deepgemm" or (config or "").endswith(".cubin"):
            return self._peer(config or "", kind == "bf16")
        options: dict[str, Any] = {"config": config}
        if self.masked:
            options["counts"] = self.counts
            if kind != "full":
                options["expected_rows"] = self.rows
        elif self.kind != "dense":
            options |= {"offsets": self.ends, "along": "k" if self.along_k else "m"}
        return lambda i: self._ours(kind, options, self.sets[i % len(self.sets)])

    def _ours(self, kind: str, options: dict[str, Any], s: dict[str, torch.Tensor]) -> Any:
        if kind == "bf16":
            return tilewright.grouped_matmul(s["wide_a"], s["wide_b"], out=s["d"], **options)
        left = Scaled(s["a"], s["odd" if kind == "warp" else "sa"], (1, 128))
        if self.kind == "dense":
            right = Scaled(s["b"][0], s["sb"][0], (128, 128))
            return tilewright.matmul(left, right, out=s["d"], **options)
        right = Scaled(s["b"], s["sb"], (128, 1) if self.along_k else (128, 128))
        more = {"epilogue": added, "c": s[ADDENDS[kind]]} if kind in ADDENDS else {}
        return tilewright.grouped_matmul(left, right, out=s["d"], **options, **more)

    def error(self, name: str) -> float:
        """The largest |error| / (|A| |B|) in some rows of the first and the last group."""
        s, worst = self.sets[0], 0.0
        s["d"].zero_()
        found, plain = self.works[name](0), name.startswith("bf16")
        for group in (0, self.groups - 1):
            left, right, d = self._operands(
                s, group, "odd" if name.startswith("warp") else "sa", found
            )
            a, b = (x[0].double() if plain else expanded(*x) for x in (left, right))
            error = (d.double() - a @ b.T).abs() / (a.abs() @ b.abs().T)
            worst = max(worst, float(error.nan_to_num(nan=torch.inf).max()))
        return worst

    def _operands(self, s: dict[str, torch.Tensor], group: int, of_a: str, found: Any) -> Any:
        """Rows of A and of Bᵀ of a group, each with scales and their side, and those of D."""
        if self.along_k:
            at = slice(group * self.k, (group + 1) * self.k)
            blocks = slice(at.start // 128, at.stop // 128)
            left = s["a"][:CHECKED, at], s[of_a][:CHECKED, blocks], 1
            return left, (s["b"].mT[:, at], s["sb"].mT[:, blocks], 1), found[group, :CHECKED]
        first = group * self.rows
        at = (group, slice(CHECKED)) if self.masked else slice(first, first + CHECKED)
        left = s["a"][at], s[of_a][at], 1
        return left, (s["b"].mT[group], s["sb"].mT[group], 128), found[at]


class RowTimes(NamedTuple):
    """By variant the seconds of each replay of its CUDA graph; the number of calls in a graph; a
    line of the table for each variant that can't run.
    """

    seconds: dict[str, list[float]]
    calls: int
    failures: list[str]

    def microseconds(self, name: str) -> float:
        """The median of one call."""
        return 1e6 * statistics.median(self.seconds[name]) / self.calls


def timed(case: Case, rested: bool = False) -> RowTimes:
    """Times of the variants of a row, interleaved, on a busy GPU or on one that has rested."""
    works, failures = {}, []
    for name, work in case.works.items():
        try:
            work(0)
            torch.cuda.synchronize()
            works[name] = work
        except (Exception, SystemExit) as error:
            failures.append(f"| {case.name} | {name} | {type(error).__name__}: {error!s:.90} |")
    count = max(calls(rough_seconds(next(iter(works.values()))), QUICK.replay), 2)
    graphs = [graph(work, count) for work in works.values()]
    bursts(graphs, 1, pause=0.0)
    each = bursts(graphs, QUICK.pairs) if rested else sustained(graphs, QUICK.pairs, QUICK.warm_up)
    return RowTimes(dict(zip(works, each, strict=True)), count, failures)


def lines(case: Case, rested: bool) -> list[str]:
    """The lines of a row, one for each variant."""
    times = timed(case, rested)
    made = list(times.failures)
    for name, ours in times.seconds.items():
        pairs = zip(times.seconds.get("torch", ours), ours, strict=True)
        ratio = Ratio.of([theirs / its for theirs, its in pairs])
        error = "" if name == "torch" else f"{case.error(name):.1e}"
        cells = [
            case.name, name, f"{times.microseconds(name):.1f}",
            f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", error,
        ]  # fmt: skip
        made.append(f"| {' | '.join(cells)} |")
    return made


def compile_ahead(cases: list[Case]) -> None:
    """Call everything once, in threads; what fails is reported where it is timed."""
    works = [work for case in cases for name, work in case.works.items() if name != "torch"]
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, 0) for work in works]:
            done.exception()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=ROWS, help="KIND-GROUPS:SIZES=VARIANT,…")
    parser.add_argument("--kinds", default="", help="only the rows of these kinds, comma-separated")
    parser.add_argument("--bursts", action="store_true", help="with a pause before each replay")
    given = parser.parse_args()
    kinds = given.kinds.split(",") if given.kinds else None
    rows = [row for row in given.rows if kinds is None or row.partition("-")[0] in kinds]
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
    cases = [Case(row, room) for row in rows]
    compile_ahead(cases)
    print("| row | variant | µs | torch / it | error |\n|---|---|---|---|---|")
    for case in cases:
        try:
            print("\n".join(lines(case, given.bursts)), flush=True)
        except Exception as error:  # the other rows may run
            print(f"| {case.name} | | {type(error).__name__}: {error!s:.90} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
