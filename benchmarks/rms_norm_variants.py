"""Compare ways to keep memory busy in RMSNorm: persistent CTAs, prefetch of the next rows, weights
in registers; beside the shipped kernel, torch.compile's kernel and a copy.

    python benchmarks/rms_norm_variants.py                   on a GPU: about 20 s
    python benchmarks/rms_norm_variants.py --check           results alone, on the virtual machine

A variant's name: how a CTA reads its rows (``row``: a CTA for each row; ``regs``: persistent, the
next ``depth`` rows in registers; ``bulk``: persistent, a ring of ``depth`` rows in shared memory by
cp.async.bulk), threads of a CTA, CTAs on an SM, depth. ``@1``: each CTA prefetches to the L2 the
row that is as many rows further on as are resident, times this. Marks: ``lines``: by an instruction
for each 128 bytes; ``after``: after its own loads; ``last``: the weights by L1::evict_last; ``cs``:
the result stored by ``.cs``; ``first``: x by a policy L2::evict_first; ``early``: launched before
the preceding kernel ends, for which it waits after its prefetch.
Times and columns are those of ``shelf_kernels.py``.
"""

from __future__ import annotations

import argparse
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tilewright import dtypes, kernels
from tilewright.builder import Builder, Traced, ptr, trace
from tilewright.run import launch

WORDS = 4  # of a vector of 16 bytes: two bf16 each
COLUMNS = 8192
ROWS = ptr("bf16", align=16)
PARAMS = {"rows": "u32", "x": ROWS, "y": ROWS, "weight": ROWS, "eps": "f32", "inverse": "f32"}


class Variant(NamedTuple):
    """How the kernel works; see the module's text."""

    how: str
    threads: int
    ctas: int
    depth: int = 0
    ahead: float = 0
    marks: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        depth = f"x{self.depth}" if self.depth else ""
        ahead = f"@{self.ahead}" if self.ahead else ""
        marks = "".join(f"+{m}" for m in sorted(self.marks))
        return f"{self.how} {self.threads}x{self.ctas}{depth}{ahead}{marks}"


def row(threads: int, ctas: int, ahead: float = 0, marks: str = "") -> Variant:
    """A variant with a CTA for each row."""
    return Variant("row", threads, ctas, 0, ahead, frozenset(marks.split()))


VARIANTS = [
    row(256, 4),
    *(row(256, 4, ahead) for ahead in (0.25, 0.5, 1, 1.5, 2)),
    row(256, 4, 0, "early"),
    row(256, 4, 0.5, "early"),
    row(256, 4, 1, "early"),
    row(256, 4, 1, "early last"),
    row(256, 4, 1, "after"),
    row(256, 4, 1, "lines"),
    row(256, 4, 1, "last"),
    row(256, 4, 1, "first"),
    row(256, 4, 1, "cs"),
    row(256, 5, 1),
    row(512, 4, 0.5),
    row(512, 4, 1, "last"),
    row(512, 4, 1, "early last"),
    row(512, 3, 1),
    row(128, 6, 1),
    row(1024, 2, 1),
    Variant("regs", 512, 2, 1),
    Variant("bulk", 256, 4, 2),
]


class RmsNorm:
    """The kernel of a variant while it is traced."""

    def __init__(
        self, k: Builder, rows: Any, x: Any, y: Any, weight: Any, eps: Any, inverse: Any,
        *, v: Variant, columns: int,
    ) -> None:  # fmt: skip
        self.k, self.v, self.columns, self.rows = k, v, columns, rows
        self.x, self.y, self.weight, self.eps, self.inverse = x, y, weight, eps, inverse
        self.vectors = columns // (8 * v.threads)
        self.scratch = k.shared("f32", 2 * (v.threads // 32))
        self.parity = k.var("u32", 0)
        {"row": self.one_row, "regs": self.registers, "bulk": self.bulk}[v.how]()

    def at(self, pointer: Any, row: Any = None) -> list[Any]:
        """This thread's vectors of a row, as pointers to words."""
        k = self.k
        if row is not None:
            pointer = pointer + row.to("u64") * self.columns
        first = pointer.cast("u32") + k.tid.x * WORDS
        return [first + i * self.v.threads * WORDS for i in range(self.vectors)]

    def words(self, pointers: list[Any], **options: Any) -> list[Any]:
        return [w for p in pointers for w in self.k.load_vector(p, WORDS, dtype="u32", **options)]

    def weights(self) -> list[Any]:
        cache = "nc.L1::evict_last" if "last" in self.v.marks else ""
        return self.words(self.at(self.weight), cache=cache)

    def floats(self, words: list[Any]) -> list[Any]:
        return [f for w in words for f in ((w << 16).view("f32"), (w & 0xFFFF0000).view("f32"))]

    def normalize(self, row: Any, words: list[Any], weights: Any, between: Any = None) -> None:
        """Store a row; ``between``: called once all threads have their words."""
        k, warps = self.k, self.v.threads // 32
        values = self.floats(words)
        sums = [k.const("f32", 0.0) for _ in range(4)]
        for i, f in enumerate(values):
            sums[i % 4] = k.fma(f, f, sums[i % 4])
        total = k.warp_reduce((sums[0] + sums[1]) + (sums[2] + sums[3]), "add")
        scratch = self.scratch + self.parity * warps
        with k.if_(k.laneid == 0):
            scratch[k.warpid] = total
        k.barrier()
        if between is not None:
            between()
        if callable(weights):
            weights = weights()
        total = k.warp_reduce(scratch[k.laneid & (warps - 1)], "add", width=warps)
        self.parity.set(self.parity ^ 1)
        scale = k.rsqrt(total * self.inverse + self.eps)
        out = [f * scale * g for f, g in zip(values, self.floats(weights), strict=True)]
        for i, p in enumerate(self.at(self.y, row)):
            vector = out[8 * i : 8 * i + 8]
            k.store_vector(p.cast("bf16"), vector, cache="cs" if "cs" in self.v.marks else "")

    def one_row(self) -> None:
        k, row, marks = self.k, self.k.ctaid.x, self.v.marks
        early = "early" in marks
        if early:
            k.launch_dependent_grids()
        if "after" not in marks:
            self.prefetch()
        if early:
            k.wait_for_prior_grids()
        load = self.first_words if "first" in marks else self.words
        words = load(self.at(self.x, row))
        if "after" in marks:
            self.prefetch()
        self.normalize(row, words, self.weights)

    def first_words(self, pointers: list[Any]) -> list[Any]:
        """Words loaded by a policy that evicts them first."""
        k = self.k
        policy = k.emit("createpolicy.fractional.L2::evict_first.b64")
        opcode = "ld.global.L2::cache_hint.v4.u32"
        return [w for p in pointers for w in k.emit(opcode, p, policy, dtype="u32", vector=WORDS)]

    def prefetch(self) -> None:
        """Prefetch a later row to the L2."""
        k = self.k
        later = k.ctaid.x + int(self.v.ahead * 132 * self.v.ctas)
        if not self.v.ahead:
            return
        source = self.x + later.to("u64") * self.columns
        if "lines" in self.v.marks:
            lines = 2 * self.columns // 128
            with k.if_((k.tid.x < lines) & (later < self.rows)):
                k.emit("prefetch.global.L2", source + k.tid.x * 64)
        else:
            with k.if_((k.tid.x == 0) & (later < self.rows)):
                k.emit("cp.async.bulk.prefetch.L2.global", source, 2 * self.columns)

    def registers(self) -> None:
        k, grid = self.k, self.k.nctaid.x
        count = WORDS * self.vectors
        ring = [k.array("u32", count, 0) for _ in range(self.v.depth)]
        for d, stage in enumerate(ring):
            self.fill(stage, k.ctaid.x + grid * d)
        weights = self.weights()
        for row in k.range(k.ctaid.x, self.rows, grid, unroll=False):
            words = [k.mov(w) for w in ring[0]]
            for stage, after in pairwise(ring):
                for one, other in zip(stage, after, strict=True):
                    one.set(other)
            self.fill(ring[-1], row + grid * self.v.depth)
            self.normalize(row, words, weights)

    def fill(self, stage: Any, row: Any) -> None:
        exists = row < self.rows
        for one, w in zip(stage, self.words(self.at(self.x, row), pred=exists), strict=True):
            one.set(w)

    def bulk(self) -> None:
        k, grid, size = self.k, self.k.nctaid.x, 2 * self.columns
        ring = k.dynamic_shared(size * self.v.depth, 128, dtype="bf16")
        full = k.dynamic_shared(8 * self.v.depth, 8, dtype="b64")
        stage, phase = k.var("u32", 0), k.var("u32", 0)

        def load(row: Any, at: Any) -> None:
            with k.if_((k.tid.x == 0) & (row < self.rows)):
                k.mbarrier_arrive(full + at, bytes=size)
                source = self.x + row.to("u64") * self.columns
                k.bulk_load(ring + at * self.columns, source, size, full + at)

        with k.if_(k.tid.x == 0):
            for d in range(self.v.depth):
                k.mbarrier_init(full + d, 1)
            k.fence_mbarrier_init()
        for d in range(self.v.depth):
            load(k.ctaid.x + grid * d, d)
        k.barrier()
        weights = self.weights()
        for row in k.range(k.ctaid.x, self.rows, grid, unroll=False):
            k.mbarrier_wait(full + stage, phase)
            words = self.words(self.at(ring + stage * self.columns))
            after = row + grid * self.v.depth
            # the barrier of the reduction says that all threads have read the stage
            self.normalize(row, words, weights, partial(load, after, stage))
            k.add(stage, 1, into=stage)
            with k.when(stage == self.v.depth):
                k.mov(0, into=stage)
                k.xor(phase, 1, into=phase)


def rms_norm(
    k: Builder, rows: Any, x: Any, y: Any, weight: Any, eps: Any, inverse: Any,
    *, v: Variant, columns: int,
) -> None:  # fmt: skip
    """The kernel function."""
    RmsNorm(k, rows, x, y, weight, eps, inverse, v=v, columns=columns)


@cache
def traced(v: Variant, columns: int) -> Traced:
    """A variant's kernel."""
    return trace(
        rms_norm, {"v": v, "columns": columns}, params=PARAMS, name="rms_norm", block=v.threads,
        min_ctas=v.ctas, lines=False,
    )  # fmt: skip


def run(v: Variant, x: Any, weight: Any, y: Any, sms: int, **options: Any) -> None:
    """RMSNorm of x into y by a variant."""
    rows, columns = x.shape
    grid = rows if v.how == "row" else min(rows, sms * v.ctas)
    args = rows, x, y, weight, 1e-6, 1 / columns
    options["programmatic"] = "early" in v.marks
    launch(traced(v, columns), (grid, 1, 1), (v.threads, 1, 1), args, **options)


def check() -> None:
    """All variants on the virtual machine, on three times as many rows as CTAs."""
    bf16 = dtypes.dtype("bf16").numpy
    random = np.random.default_rng(0)
    x = random.standard_normal((19, COLUMNS)).astype(bf16)
    weight = random.standard_normal(COLUMNS).astype(bf16)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * weight.astype("f8")
    for v in VARIANTS:
        y = np.zeros_like(x)
        run(v._replace(ctas=1), x, weight, y, 5, device="vm")
        error = abs(y.astype("f8") - expected).max() / abs(expected).max()
        print(f"{v.name:<22} error {error:.1e}", "" if error < 5e-3 else "WRONG", flush=True)


def measure() -> None:
    """The table, on the current GPU."""
    import torch
    import torch.nn.functional as F
    from shelf_kernels import medians

    rows = columns = COLUMNS
    weight = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
    pairs = [
        (torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 2,
         torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16))
        for _ in range(4)
    ]  # fmt: skip
    x, y = pairs[0]
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    theirs = torch.compile(lambda x: F.rms_norm(x, (columns,), weight, 1e-6), dynamic=False)
    calls: dict[str, Any] = {
        "copy": lambda x, y: y.copy_(x),
        "torch.compile": lambda x, y: theirs(x),
        "shipped": lambda x, y: kernels.rms_norm(x, weight, eps=1e-6, out=y),
    }
    calls |= {v.name: lambda x, y, v=v: run(v, x, weight, y, sms) for v in VARIANTS}
    expected = F.rms_norm(x.double(), (columns,), weight.double(), 1e-6)
    errors = {}
    for name, call in calls.items():
        y.fill_(float("nan"))
        result = call(x, y)
        got = y if result is None else result
        errors[name] = float((got.double() - expected).abs().max() / expected.abs().max())
    print(torch.cuda.get_device_name(), f"{sms} SMs, {rows}x{columns} bf16", flush=True)
    times = medians(calls, pairs)
    print(f"{'':<22}{'µs':>8}{'of a copy':>11}{'of compiled':>13}  error")
    for name, time in sorted(times.items(), key=lambda item: item[1]):
        figures = f"{time:8.2f}{times['copy'] / time:11.3f}{times['torch.compile'] / time:13.3f}"
        print(f"{name:<22}{figures}  {errors[name]:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="on the virtual machine")
    (check if parser.parse_args().check else measure)()


if __name__ == "__main__":
    main()
