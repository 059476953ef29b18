"""Compare products of a 2:4 sparse matrix with cuSPARSELt, through torch, and with dense products.

    python benchmarks/sparse_products.py
    python benchmarks/sparse_products.py --rows "" --compression f16,bf16,e4m3,s8
    python benchmarks/sparse_products.py --rows f16:8192x8192x8192 --configs tma:128x256x64:2:4,…

A row is TYPE:MxNxK of W (M×K, sparse) times X (K×N, column-major); e4m3 accumulates fast. A line of
the Markdown table has median times of CUDA-graph replays, interleaved on a busy GPU, with random
inputs that rotate past the L2; the ratios to cuSPARSELt, whose algorithm its search has chosen, and
to our dense product; and the largest |error| / (|W| |X|) against f64 in 64 rows. D is bf16 of
8-bit types. Up to 64 columns there are lines of a copy of half of W's bytes, which moves as many as
the product must read, and of a kernel that reads them by bulk copies. With ``--configs`` each
configuration is a line, all in one measurement. Needs an NVIDIA GPU of sm_90a and PyTorch with
cuSPARSELt.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from compare.bulk_read import BulkRead
from compare.peers import CHECKED_ROWS, TYPES, bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright
from tilewright import Sparse24
from tilewright.mma.metadata_blocks import pack_metadata, positions_table

ROWS = (
    "f16:4096x4096x4096", "f16:8192x8192x8192", "bf16:4096x4096x4096", "bf16:8192x8192x8192",
    "e4m3:4096x4096x4096", "e4m3:8192x8192x8192", "s8:4096x4096x4096", "s8:8192x8192x8192",
    "f16:14336x4096x4096", "f16:4096x512x4096", "f16:14336x16x4096",
)  # fmt: skip
FEW = 64  # columns of X, up to which a product is compared with a copy of W's bytes
Work = Callable[[int], object]


def random_elements(type_: str, *shape: int) -> torch.Tensor:
    if type_ == "s8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    return torch.randn(shape, device="cuda").to(TYPES[type_])


def random_sparse(type_: str, m: int, k: int) -> tuple[Sparse24, torch.Tensor]:
    """A matrix with random values and random metadata, and the same as a dense tensor."""
    valid = np.array([0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110], np.uint8)
    chunks = valid[np.random.default_rng(m).integers(0, 6, (m, k // 4))]
    metadata = torch.from_numpy(pack_metadata(type_, chunks)).cuda()
    values = random_elements(type_, m, k // 2)
    where = torch.from_numpy(positions_table(type_)[0].astype(np.int64)).cuda()
    index = where[torch.from_numpy(chunks).cuda().long()]
    bits = values.view(torch.int8 if values.element_size() == 1 else torch.int16)
    dense = torch.zeros((m, k // 4, 4), dtype=bits.dtype, device="cuda")
    dense.scatter_(2, index, bits.view(m, k // 4, 2))
    return Sparse24(values, metadata, type_), dense.view(m, k).view(values.dtype)


class SparseCase:
    """The operands of a row, enough sets of them to fill three L2 caches."""

    def __init__(self, type_: str, m: int, n: int, k: int) -> None:
        torch.manual_seed(0)
        self.type = type_
        self.result = TYPES[type_] if type_ in ("f16", "bf16") else torch.bfloat16
        self.w, self.dense_w = random_sparse(type_, m, k)
        size = self.dense_w.element_size()
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        count = min(64, room // (m * k * size // 2 + n * k * size + 2 * m * n) + 1)
        self.ws = [self.w] + [
            Sparse24(self.w.values.clone(), self.w.metadata.clone(), type_)
            for _ in range(count - 1)
        ]
        self.dense_ws = [self.dense_w.clone() if i else self.dense_w for i in range(count)]
        self.xs = [random_elements(type_, n, k).t() for _ in range(count)]
        self.ds = [torch.empty((m, n), dtype=self.result, device="cuda") for _ in range(count)]
        self.compressed: list[torch.Tensor] = []
        self.copied: list[torch.Tensor] = []
        self.reader: BulkRead | None = None

    def ours(self, i: int, config: str | None = None) -> Any:
        i %= len(self.ws)
        return self._matmul(self.ws[i], i, config)

    def dense(self, i: int) -> Any:
        i %= len(self.ws)
        return self._matmul(self.dense_ws[i], i, None)

    def set_zeros(self) -> None:
        """Make all elements zeros, which take less power: the clock stays high."""
        for array in (*(w.values for w in self.ws), *self.dense_ws, *self.xs):
            array.zero_()

    def plan(self, config: str | None) -> tilewright.Plan:
        """The plan of our product."""
        return tilewright.plan(self.w, self.xs[0], out=self.ds[0], config=config, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {"epilogue": to_bf16} if self.type == "s8" else {"fast_accum": self.type == "e4m3"}

    def _matmul(self, w: Any, i: int, config: str | None) -> Any:
        return tilewright.matmul(w, self.xs[i], out=self.ds[i], config=config, **self._options)

    def prepare_peer(self) -> None:
        self.compressed = [torch._cslt_compress(w) for w in self.dense_ws]
        self.peer_options: dict[str, Any] = {}
        if self.type in ("s8", "e4m3"):
            self.peer_options["out_dtype"] = torch.bfloat16
        found = torch._cslt_sparse_mm_search(self.compressed[0], self.xs[0], **self.peer_options)
        self.peer_options["alg_id"] = int(found)

    def peer(self, i: int) -> Any:
        i %= len(self.ws)
        return torch._cslt_sparse_mm(self.compressed[i], self.xs[i], **self.peer_options)

    def copy(self, i: int) -> Any:
        """A copy that reads and writes as many bytes as the sparse matrix has."""
        if not self.copied:
            size = self.w.nbytes // 32 * 32
            self.copied = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in self.ws]
        source, target = self.copied[i % len(self.ws)].chunk(2)
        return target.copy_(source)

    def bulk_read(self, i: int) -> None:
        """Read as many bytes as the sparse matrix has, by bulk copies, as kernel ``tma`` does."""
        if self.reader is None:
            self.copy(0)
            self.reader = BulkRead(self.w.nbytes)
        self.reader(self.copied[i % len(self.ws)])

    def error(self, work: Work) -> float:
        """The largest |error| / (|W| |X|) in some rows."""
        d = self.ds[0]
        d.fill_(torch.nan)
        found = work(0)
        rows = torch.randint(d.shape[0], (CHECKED_ROWS,), device="cuda")
        left, right = self.dense_w[rows].double(), self.xs[0].double()
        error = (found[rows].double() - left @ right).abs() / (left.abs() @ right.abs())
        return float(error.nan_to_num(nan=torch.inf).max())


def random_layers(count: int) -> list[str]:
    """Rows of layers with weights W of common sizes, and 16 to 8192 tokens."""
    rng = np.random.default_rng(0)
    sizes = [1024, 1536, 2048, 2560, 3584, 4096, 5120, 7168, 8192, 11008, 14336]
    return [
        f"f16:{rng.choice(sizes)}x{round(2 ** rng.uniform(4, 13)) // 16 * 16}x{rng.choice(sizes)}"
        for _ in range(count)
    ]


def compression(type_: str, m: int, k: int) -> str:
    """A line with the rate of ``compress_24`` by magnitude, compared with a copy's."""
    count = 4
    ws = [random_elements(type_, m, k) for _ in range(count)]
    out = torch.empty_like(ws[0])
    sparse = tilewright.compress_24(ws[0], "magnitude")
    works = [
        lambda i: tilewright.compress_24(ws[i % count], "magnitude"),
        lambda i: out.copy_(ws[i % count]),
    ]
    graphs = [graph(work, 12) for work in works]
    ours, copy = (statistics.median(t) / 12 for t in sustained(graphs, QUICK.pairs, QUICK.warm_up))
    moved = ws[0].nbytes + sparse.nbytes
    rate, copy_rate = moved / ours / 1e12, 2 * ws[0].nbytes / copy / 1e12
    same = (
        sparse.metadata.cpu() == tilewright.compress_24(ws[0].cpu(), "magnitude").metadata
    ).all()
    return (
        f"| compress_24 {type_} {m}×{k} | {1e6 * ours:.1f} µs | {rate:.2f} TB/s | "
        f"copy {copy_rate:.2f} TB/s | {rate / copy_rate:.3f} of it | same bits: {bool(same)} |"
    )


@tilewright.epilogue
def to_bf16(x: Any) -> Any:
    return tilewright.cast(x, "bf16")


def lines(row: str, configs: list[str | None], zeros: bool) -> list[str]:
    """The lines of a row: one for each configuration."""
    type_, _, sizes = row.partition(":")
    case = SparseCase(type_, *map(int, sizes.split("x")))
    if zeros:
        case.set_zeros()
    works: dict[str, Work] = {}
    failed = []
    for config in configs:
        works[str(config)] = lambda i, config=config: case.ours(i, config)
    case.prepare_peer()
    works |= {"cuSPARSELt": case.peer, "dense": case.dense}
    if case.ds[0].shape[1] <= FEW:
        works |= {"copy": case.copy, "bulk read": case.bulk_read}
    for name, work in list(works.items()):
        try:
            work(0)
            torch.cuda.synchronize()
        except Exception as error:
            failed.append(f"| {row} {name} | {type(error).__name__}: {str(error)[:90]} |")
            del works[name]
    count = max(calls(rough_seconds(works.get("cuSPARSELt", case.dense)), QUICK.replay), 4)
    graphs = [graph(work, count) for work in works.values()]
    bursts(graphs, 1, pause=0.0)
    times = dict(zip(works, sustained(graphs, QUICK.pairs, QUICK.warm_up), strict=True))
    flops = 2 * np.prod([float(s) for s in sizes.split("x")])
    for name, work in works.items():
        seconds = statistics.median(times[name]) / count
        cells = [f"{row} {name}", f"{1e6 * seconds:.1f}", f"{flops / seconds / 1e12:.0f}"]
        for peer in ("cuSPARSELt", "dense"):
            pairs = zip(times[name], times.get(peer, []), strict=False)
            ratio = Ratio.of([t / o for o, t in pairs]) if peer in times else None
            cells.append(f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "")
        error = "" if name in ("copy", "bulk read") else f"{case.error(work):.1e}"
        failed.append(f"| {' | '.join(cells)} | {error} |")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="TYPE:MxNxK, separated by commas")
    parser.add_argument("--configs", default="", help="configurations, separated by commas")
    parser.add_argument("--compression", default="", help="types for the rate of compress_24")
    parser.add_argument("--zeros", action="store_true", help="all elements are zeros")
    parser.add_argument("--layers", type=int, default=0, help="number of random layers, too")
    given = parser.parse_args()
    configs = [c for c in given.configs.split(",") if c] or [None]
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| product | µs | TFLOP/s | cuSPARSELt / ours | dense / ours | error |")
    print("|---|---|---|---|---|---|")
    for row in [*filter(None, given.rows.split(",")), *random_layers(given.layers)]:
        try:
            print("\n".join(lines(row, configs, given.zeros)), flush=True)
        except Exception as error:
            print(f"| {row} | {type(error).__name__}: {str(error)[:200]} |", flush=True)
        torch.cuda.empty_cache()
    for type_ in filter(None, given.compression.split(",")):
        print(compression(type_, 8192, 8192), flush=True)


if __name__ == "__main__":
    sys.exit(main())
