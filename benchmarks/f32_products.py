"""f32 products without tensor cores compared with cuBLAS: squares, and random shapes.

Ratios are torch's time over ours: medians of CUDA-graph replays of both in turn. The geometric
mean and the least of the random shapes are what counts.

    python benchmarks/f32_products.py [--random 50] [--seed 1] [--kernels FILE]
    python benchmarks/f32_products.py --shapes 88x1067x79 112x481x74,simt:16x32x16:4x8:4
    python benchmarks/f32_products.py --layout tn   B column-major, as of torch.nn.Linear
    python benchmarks/f32_products.py --sweep 10 --out FOLDER   other candidates of each shape, too
    python benchmarks/f32_products.py --build FILE [--sweep 10]   compile kernels, without a GPU
    python benchmarks/f32_products.py --fit FOLDER/f32_sweep.json…   the cost model, without a GPU
    python benchmarks/f32_products.py --probe   which sorts of kernels end a process, or are wrong

Processes compile kernels while others are measured. A configuration that ends the process is left
out, then others of its sort, too. A sweep times the best candidates of different
tiles, and other numbers of parts of K for the best one. Its file has torch's and each
configuration's microseconds.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from compare.compiled_kernels import ARCHITECTURE, compiled, load, processes
from compare.isolated import BrokenCall, IsolatedCalls
from compare.rows import random_shapes
from compare.simt_fit import fit
from compare.simt_probe import leave_out, probe, sort

import tilewright
from tilewright import gemm
from tilewright.run.devices import serialized_kernel

SQUARES = 2048, 4096, 8192
LAYOUTS = "tt", "tn", "nt", "nn"
# More candidates of squares: other k-tiles, stages and tiles.
OF_SQUARES = [
    "simt:128x256x8:16x16:4", "simt:128x256x8:16x16:8", "simt:128x256x16:16x16:3",
    "simt:256x128x8:32x8:6", "simt:192x192x8:16x16:6", "simt:160x128x8:8x16:6/2",
    "simt:128x128x8:16x8:6/2", "simt:128x128x16:16x8:3/2", "simt:96x128x8:8x16:5/3",
    "simt:96x128x16:8x16:3/3", "simt:64x128x8:8x8:5/4",
]  # fmt: skip
MOST = 4e11  # products of a shape
FILE = "f32_sweep.json"
TORCH = "torch"
TOLERANCE = 1e-5  # of an error, in units of the products' magnitudes
PATIENCE = 30  # seconds until a shape's process counts as broken
PARTED = 4  # kinds of which other parts of K are tried, too
FAR = 1.4  # times the choice's estimate: from there on no candidate is timed
FORMS = 2  # kinds of a tile: without parts of K, with them, in a cluster
_kernels_so_far: dict[tuple[int, ...], set[str]] = {}


class Shape(NamedTuple):
    """M, N, K, and BLAS's name of A's and B's layouts (``t``: row-major)."""

    m: int
    n: int
    k: int
    layout: str = "tt"

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k}" + f":{self.layout}" * (self.layout != "tt")

    @property
    def products(self) -> int:
        return self.m * self.n * self.k

    @property
    def plan(self) -> tilewright.Plan:
        return tilewright.plan(*self[:3], dtype="f32", layout=self.layout, device="vm")


Also = dict[Shape, tuple[str, ...]]  # configurations of a shape that are timed, too
Times = dict[str, float]  # microseconds: torch's, those of the choice, then of others


def main() -> None:
    options = parse_options()
    if options.fit:
        fit(options.fit)
        return
    squares = [Shape(size, size, size, options.layout) for size in SQUARES]
    drawn = [Shape(*x, options.layout) for x in random_shapes(8 * options.random, options.seed)]
    shapes = [s for s in drawn if s.products <= MOST][: options.random]
    if options.build:
        build(squares + shapes, options.build, options.sweep)
        return
    if options.kernels:
        tilewright.load(options.kernels)
    begin, times = time.perf_counter(), dict[Shape, Times]()
    broken = probe() if options.probe else set[str]()
    also: Also = dict.fromkeys(shapes, ())
    if options.shapes:
        also = dict(options.shapes)
        shapes = list(also)
    also = {shape: (*configs, *options.also) for shape, configs in also.items()}
    if not (options.random_only or options.shapes):
        also = dict.fromkeys(squares, ()) | also
    wanted = ((x, kernels_of(x, options.sweep, more)) for x, more in also.items())
    compiling = compiled(wanted)
    for shape, row in all_measured(compiling, options.sweep, also, broken):
        times[shape] = row
        if options.out:
            write(options.out, times)
        if time.perf_counter() - begin > options.seconds:
            print(f"time for {len(times)} of {len(also)} shapes")
            break
    summarize({s: times[s] for s in shapes if len(times.get(s, ())) > 1})
    print(f"{time.perf_counter() - begin:.1f} s")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--random", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--shapes", nargs="+", type=parsed, metavar="MxNxK[:LAYOUT][,CONFIG…]", help="these alone"
    )
    parser.add_argument(
        "--layout", default="tt", choices=LAYOUTS, help="of A and B, of random shapes and squares"
    )
    parser.add_argument("--random-only", action="store_true", help="without squares")
    parser.add_argument("--build", type=Path, help="write the kernels of all shapes to a file")
    parser.add_argument("--kernels", type=Path, help="a file of --build")
    parser.add_argument("--sweep", type=int, default=0, metavar="N", help="other candidates")
    parser.add_argument("--also", nargs="+", default=[], metavar="CONFIG", help="timed, too")
    parser.add_argument("--out", type=Path, help="the folder of the sweep's file")
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit")
    parser.add_argument("--fit", type=Path, nargs="+", help="files of sweeps")
    parser.add_argument("--probe", action="store_true", help="first try some sorts of kernels")
    return parser.parse_args()


def parsed(text: str) -> tuple[Shape, tuple[str, ...]]:
    """A shape of its text, ``88x1067x79`` or ``88x1067x79:tn``, and the configurations that may
    follow it.
    """
    what, *configs = text.split(",")
    found = re.fullmatch(rf"(\d+)x(\d+)x(\d+)(?::({'|'.join(LAYOUTS)}))?", what)
    if found is None:
        raise argparse.ArgumentTypeError(f"a shape must be like 88x1067x79:tn, got {what!r}")
    m, n, k = map(int, found.groups()[:3])
    return Shape(m, n, k, found[4] or "tt"), tuple(configs)


def write(folder: Path, times: dict[Shape, Times]) -> None:
    """Write the sweep's file with the shapes so far."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[*shape[:3], row, shape.layout] for shape, row in times.items()]
    (folder / FILE).write_text(json.dumps(rows), encoding="utf-8")


def summarize(times: dict[Shape, Times]) -> None:
    """Print the ratios of the random shapes: of the choice, and of the best that was measured."""
    for what in ("choice", "best candidate") if times else ():
        ratios = {}
        for shape, row in times.items():
            theirs, *ours = row.values()
            ratios[shape] = theirs / (ours[0] if what == "choice" else min(ours))
        below = sorted((round(r, 3), s) for s, r in ratios.items() if r < 1)
        mean, least = statistics.geometric_mean(ratios.values()), min(ratios.values())
        print(f"{what}: {len(ratios)} random shapes: geometric mean {mean:.3f}, least {least:.3f}, "
              f"{len(below)} under 1.00: {below}")  # fmt: skip


# --- kernels --------------------------------------------------------------------------------------


@cache
def candidates(shape: Shape, count: int, more: tuple[str, ...]) -> tuple[str, ...]:
    """Beside the choice the best of ``count`` different kinds, other parts of K of some, and
    ``more``. A third of the kinds are the very best, others those that earlier shapes have compiled
    where they are not much worse.
    """
    also = tuple(str(gemm.parse(x)) for x in more)
    if not count:
        return also
    plan = shape.plan
    of_kind: dict[str, list[Any]] = {}
    tiles = Counter[str]()
    ranks = gemm.ranked(plan.problem, plan.device.target)
    for seconds, config in ranks:
        if seconds > FAR * ranks[0][0]:
            break
        name = kind(config)
        if name not in of_kind:
            tiles[name.partition("*")[0]] += 1
        if name in of_kind or tiles[name.partition("*")[0]] <= FORMS:
            of_kind.setdefault(name, []).append(config)
    best, first = list(of_kind)[: 2 * count], count // 3
    compiled_before = _kernels_so_far.setdefault(alignments(plan.problem), set())
    kinds = sorted(best[first:], key=lambda x: x not in compiled_before)
    kinds = best[:first] + kinds[: count - first]
    compiled_before.update(kinds)
    found = [str(of_kind[x][0]) for x in kinds]
    found += [str(x) for name in kinds[:PARTED] for x in of_kind[name][1:2]]
    if shape.m == shape.n == shape.k and shape.m in SQUARES:
        found += [str(gemm.parse(x)) for x in OF_SQUARES]
    return tuple(text for text in dict.fromkeys([*found, *also]) if text != str(plan.config))


def alignments(problem: Any) -> tuple[int, ...]:
    """What of a problem decides its kernels, in addition to the configuration."""
    return problem.align_a, problem.align_b, problem.align_d


def kind(config: Any) -> str:
    """What of a configuration decides its kernel: one adds any number of parts in a workspace."""
    kernel, _, parts = str(config).partition("@")[0].partition("*")
    return kernel + "*" * bool(parts) + parts * parts.endswith("c")


def kernels_of(shape: Shape, count: int, more: tuple[str, ...]) -> Iterable[gemm.GemmKernel]:
    """The kernels of a shape's choice and candidates."""
    plan = shape.plan
    for config in [plan.config, *map(gemm.parse, candidates(shape, count, more))]:
        yield from gemm.kernels(plan.problem, config, plan.device.target)


def build(shapes: list[Shape], file: Path, count: int) -> None:
    """Compile the kernels that an H200 runs for the shapes."""
    wanted = {str(kernel): kernel for shape in shapes for kernel in kernels_of(shape, count, ())}
    print(f"{len(wanted)} kernels", flush=True)
    with ProcessPoolExecutor(processes(), get_context("spawn")) as pool:
        built = pool.map(serialized_kernel.build, wanted.values(), [ARCHITECTURE] * len(wanted))
        kernels = {(ARCHITECTURE, name): x for name, x in zip(wanted, built, strict=True)}
    file.write_bytes(serialized_kernel.pack(kernels))


# --- times ----------------------------------------------------------------------------------------


def all_measured(
    compiling: Iterable[tuple[Shape, serialized_kernel.Kernels]], count: int, also: Also,
    broken: set[str],
) -> Iterator[tuple[Shape, Times]]:  # fmt: skip
    """The times of each shape, without configurations that end a process, and those of their sort
    where another has.
    """
    calls_of = IsolatedCalls(measure, begin_process)
    try:
        for shape, kernels in compiling:
            for _ in range(8):
                try:
                    others = list(candidates(shape, count, also[shape]))
                    yield shape, calls_of(shape, others, kernels, broken, timeout=PATIENCE)
                    break
                except BrokenCall as error:
                    name, *what = map(str, error.args)
                    print(f"BROKEN: {shape} {name} {' '.join(what)}", flush=True)
                    if not name.startswith("simt"):
                        break
                    leave_out(broken, name)
    finally:
        calls_of.close()


def begin_process() -> None:
    """Make the GPU's context."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")


def measure(
    shape: Shape, others: list[str], kernels: serialized_kernel.Kernels, broken: set[str]
) -> Times:
    """The microseconds of torch and of our configurations but the ``broken`` ones; prints the ratio
    of the choice with its error against f64 on some rows.
    """
    import torch

    load(kernels)
    m, n, k, layout = shape
    a, b = random_matrix(m, k, layout[0]), random_matrix(k, n, layout[1])
    d, other = (torch.full((m, n), float("nan"), device="cuda") for _ in range(2))
    rows = torch.arange(0, m, max(1, m // 16), device="cuda")
    exact = a[rows].double() @ b.double()
    largest = a[rows].double().abs() @ b.double().abs()
    graphs = {TORCH: graph(lambda: torch.mm(a, b, out=other), shape)}
    chosen, errors = str(tilewright.plan(a, b).config), dict[str, float]()
    names = [chosen, *(x for x in others if x != chosen)]
    for name in [x for x in names if x not in broken and sort(x) not in broken]:
        config = None if name == chosen else name
        d.fill_(float("nan"))
        try:
            graphs[name] = graph(
                lambda config=config: tilewright.matmul(a, b, out=d, config=config), shape
            )
            torch.cuda.synchronize()
        except (tilewright.errors.CudaError, RuntimeError) as error:
            raise RuntimeError(name, f"{error}"[:200]) from error
        except tilewright.TilewrightError as error:
            print(f"FAILED: {shape} {name}: {error}", flush=True)
            continue
        errors[name] = float(((d[rows].double() - exact).abs() / largest).max())
        if not errors[name] < TOLERANCE or bool(d.isnan().any()):
            print(f"WRONG: {shape} {name}: error {errors[name]:.1e}", flush=True)
            del graphs[name]
    times = replayed(graphs, shape)
    if chosen not in times:
        print(f"{shape}: {chosen} is broken", flush=True)
        return times
    best = min((x, name) for name, x in times.items() if name != TORCH)
    if len(times) > 2:
        ranked = sorted((x, name) for name, x in times.items())
        print("   ", " ".join(f"{name.removeprefix('simt:')} {x:.2f}" for x, name in ranked[:12]))
    rate = 2 * shape.products / times[chosen] / 1e6
    print(f"{shape}: {chosen} {rate:.1f} TFLOP/s, ratio {times[TORCH] / times[chosen]:.3f}, "
          f"best {times[TORCH] / best[0]:.3f} {best[1]}, error {errors[chosen]:.1e}",
          flush=True)  # fmt: skip
    return times


def random_matrix(rows: int, columns: int, layout: str) -> Any:
    """A matrix of normal random numbers: ``t`` row-major, ``n`` column-major."""
    import torch

    if layout == "t":
        return torch.randn(rows, columns, device="cuda")
    return torch.randn(columns, rows, device="cuda").T


def replayed(graphs: dict[str, Callable[[], None]], shape: Shape) -> Times:
    """Medians of replays in turn; torch and the choice have twice as many."""
    import torch

    first = list(graphs)[:2]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: dict[str, list[float]] = {}
    rounds = 7 if shape.products < 5e10 else 5
    for turn in range(rounds):
        for name, replay in graphs.items():
            if turn % 2 and name not in first:
                continue
            begin.record()
            replay()
            end.record()
            torch.cuda.synchronize()
            times.setdefault(name, []).append(begin.elapsed_time(end) * 1e3 / calls(shape))
    return {name: statistics.median(each) for name, each in times.items()}


def calls(shape: Shape) -> int:
    """Products in a graph: about a millisecond."""
    return max(1, min(40, int(2e10 // shape.products)))


def graph(call: Callable[[], Any], shape: Shape) -> Callable[[], None]:
    """A replay of that many calls."""
    import torch

    for _ in range(2):
        call()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(calls(shape)):
            call()
    made.replay()
    return made.replay


if __name__ == "__main__":
    main()
