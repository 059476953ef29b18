"""Compare the kernels of ``tilewright.kernels`` with torch, torch.compile and a copy.

    python benchmarks/shelf_kernels.py                       every kernel at 8192×8192, bf16
    python benchmarks/shelf_kernels.py softmax "sum rows" --shape 4096x1000:float32 16x8192

A line has median times of CUDA-graph replays, interleaved, of calls that rotate through four pairs
of arrays, each after an untimed replay of the same graph: what another kernel left to be written
back to the memory is not counted. torch's results also take turns in four arrays. The copy is
torch's ``copy_`` of an array of the same size. ``of a copy`` is the copy's time over ours, ``of
compiled`` that of torch.compile's kernel over ours. ``error``: the largest difference to f64,
divided by the largest magnitude. GB/s counts x and an array of its size (a reduction reads x only).
``--prefetch``: also a line of times of the kernels on rows launched after the preceding kernel
(late), before it ends (early), and with prefetches: own/ahead, as many KB for each SM (of the first
CTAs' own rows; of the distance to later ones). ``--layouts``: also a line for several numbers of
threads of a CTA, elements and registers of a thread; a row that does not fit in a CTA has a
cluster.
"""

from __future__ import annotations

import argparse
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from tilewright import kernels
from tilewright.kernels import row_call
from tilewright.kernels.row_layout import MAX_CLUSTER, VECTOR, RowLayout, resident_layout

DISTANCES = [
    (0, 0), (32, 0), (64, 0), (128, 0), (8, 8), (16, 16), (24, 24), (32, 32), (48, 48), (0, 16),
    (0, 32), (64, 16),
]  # fmt: skip
LAYOUTS = [
    (256, 32, 64), (256, 32, 32), (512, 16, 64), (512, 16, 32), (1024, 8, 32), (512, 32, 64),
    (1024, 32, 64), (128, 32, 64), (128, 64, 64),
]  # fmt: skip
"""Threads of a CTA, elements and registers of a thread."""
CALLS, ROUNDS = 4, 15
Call = Callable[[torch.Tensor, torch.Tensor], Any]  # of x and out


class Contender:
    """What one line measures: the same function by us (of x and out), by torch, and in f64."""

    def __init__(self, ours: Call, torchs: Callable[..., Any]) -> None:
        self.ours, self.torchs = ours, torchs


def contenders(rows: int, columns: int, dtype: torch.dtype) -> dict[str, Contender]:
    """The kernels by name, with random weights of f64 that are rounded once."""
    weight, bias = (torch.randn(columns, device="cuda", dtype=dtype) for _ in range(2))
    dim = next(d for d in (128, 64, 32, 2, columns) if columns % d == 0)
    angles = torch.rand(rows, dim // 2, device="cuda") * 6
    cos, sin = angles.cos(), angles.sin()

    def rotary(x: torch.Tensor) -> torch.Tensor:
        a, b = (
            x.view(-1, columns // dim, dim)
            .to(cos.dtype if x.dtype != torch.double else x.dtype)
            .chunk(2, -1)
        )
        c, s = (t[: x.shape[0], None].to(a.dtype) for t in (cos, sin))
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype).view(x.shape)

    def rotated(x: torch.Tensor, y: torch.Tensor) -> None:
        shape = -1, columns // dim, dim
        kernels.rotary_embedding(x.view(shape), cos, sin, out=y.view(shape))

    return {
        "softmax": Contender(
            lambda x, y: kernels.softmax(x, out=y), lambda x: F.softmax(x, dim=-1)
        ),
        "rms_norm": Contender(
            lambda x, y: kernels.rms_norm(x, weight, eps=1e-6, out=y),
            lambda x: F.rms_norm(x, (columns,), weight.to(x.dtype), 1e-6),
        ),
        "layer_norm": Contender(
            lambda x, y: kernels.layer_norm(x, weight, bias, eps=1e-5, out=y),
            lambda x: F.layer_norm(x, (columns,), weight.to(x.dtype), bias.to(x.dtype), 1e-5),
        ),
        "rotary": Contender(rotated, rotary),
        "transpose": Contender(
            lambda x, y: kernels.transpose(x, out=y.view(columns, rows)),
            lambda x: x.t().contiguous(),
        ),
        "sum rows": Contender(
            lambda x, y: kernels.reduce(x, "sum", -1, out=y.view(-1)[:rows]),
            lambda x: x.sum(-1),
        ),
        "max columns": Contender(
            lambda x, y: kernels.reduce(x, "max", 0, out=y.view(-1)[:columns]),
            lambda x: x.amax(0),
        ),
        "top 8": Contender(
            lambda x, y: kernels.top_k(x, 8)[0], lambda x: torch.topk(x, 8, dim=-1)[0]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="KERNEL")
    parser.add_argument("--shape", nargs="+", default=["8192x8192"], metavar="MxN[:TYPE]")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prefetch", action="store_true")
    parser.add_argument("--layouts", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for shape in options.shape:
        size, _, type_ = shape.partition(":")
        rows, columns = map(int, size.split("x"))
        dtype = getattr(torch, type_ or options.dtype)
        print(f"{rows}x{columns} {dtype}")
        print(f"{'kernel':<12}{'copy':>9}{'ours':>9}{'torch':>9}{'compiled':>9} µs", end="")
        print("   GB/s  of a copy  of compiled  error", flush=True)
        for name, contender in contenders(rows, columns, dtype).items():
            if not options.names or name in options.names:
                torch.compiler.reset()
                shown = name, contender, rows, columns, dtype
                print(line(*shown, not options.no_compile), flush=True)
                if options.prefetch and name in ROWS:
                    print(variants_line(*shown, distances(contender.ours)), flush=True)
                if options.layouts and name in ROWS:
                    print(variants_line(*shown, layouts(contender.ours, columns)), flush=True)


def line(
    name: str, contender: Contender, rows: int, columns: int, dtype: torch.dtype, compiled: bool
) -> str:
    """A line of the table."""
    pairs = array_pairs(rows, columns, dtype)
    x, y = pairs[0]
    error = largest_error(contender, x, y)
    calls: dict[str, Call] = {
        "copy": lambda x, y: y.copy_(x),
        "ours": contender.ours,
        "torch": lambda x, y: contender.torchs(x),
    }
    if compiled:
        fused = torch.compile(contender.torchs, dynamic=False)
        calls["compiled"] = lambda x, y: fused(x)
    times = medians(calls, pairs)
    ours, compiled_us = times["ours"], times.get("compiled", float("nan"))
    gbs = 2 * x.numel() * x.element_size() / ours / 1e3
    figures = "".join(f"{times.get(n, float('nan')):9.2f}" for n in ("copy", "ours", "torch"))
    return (
        f"{name:<12}{figures}{compiled_us:9.2f}    {gbs:7.0f}{times['copy'] / ours:10.3f}"
        f"{compiled_us / ours:13.3f}  {error:.1e}"
    )


ROWS = ("softmax", "rms_norm", "layer_norm", "sum rows", "top 8")  # kernels on whole rows


def variants_line(
    name: str, contender: Contender, rows: int, columns: int, dtype: torch.dtype,
    variants: dict[str, Call],
) -> str:  # fmt: skip
    """Times, and a copy's over them, for each variant."""
    calls: dict[str, Call] = {"copy": lambda x, y: y.copy_(x), **variants}
    times = medians(calls, array_pairs(rows, columns, dtype))
    copy = times.pop("copy")
    shown = ", ".join(f"{n}: {t:.2f} ({copy / t:.3f})" for n, t in times.items())
    return f"  copy {copy:.2f}; {shown}"


def distances(call: Call) -> dict[str, Call]:
    """The call with other launches and prefetches."""

    def early(
        layout: RowLayout, size: int, spec: Any, distance: tuple[int, int], **_: Any
    ) -> RowLayout:
        per_cta = layout.capacity * size
        own, ahead = (-(-(kb << 10) * spec.sms // per_cta) for kb in distance)
        aligned = layout.width * size == VECTOR
        return replace(layout, programmatic=True, own=own, ahead=ahead, aligned=aligned)

    calls = {"late": patched(call, "overlapping", lambda layout, *_, **__: layout)}
    for distance in DISTANCES:
        shown = "/".join(map(str, distance)) if any(distance) else "early"
        calls[shown] = patched(call, "overlapping", partial(early, distance=distance))
    return calls


def layouts(call: Call, columns: int) -> dict[str, Call]:
    """The call with other numbers of threads and registers."""

    def layout(
        columns: int, width: int, *_: Any, threads: int, elements: int, registers: int
    ) -> RowLayout:
        ctas = -(-columns // (threads * elements))
        return resident_layout(columns, width, threads, ctas, registers=registers)

    calls = {}
    for threads, elements, registers in LAYOUTS:
        if threads * elements * MAX_CLUSTER >= columns:
            chosen = partial(layout, threads=threads, elements=elements, registers=registers)
            shown = f"{threads}x{elements} {registers} registers"
            calls[shown] = patched(call, "row_layout", chosen)
    return calls


def patched(call: Call, name: str, function: Callable[..., Any]) -> Call:
    """The call with another function of ``row_call``."""

    def other(x: torch.Tensor, y: torch.Tensor) -> None:
        before = getattr(row_call, name)
        setattr(row_call, name, function)
        try:
            call(x, y)
        finally:
            setattr(row_call, name, before)

    return other


def array_pairs(
    rows: int, columns: int, dtype: torch.dtype
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Arrays x, y for the calls of a graph."""
    return [
        (torch.randn(rows, columns, device="cuda", dtype=dtype) * 2,
         torch.empty(rows, columns, device="cuda", dtype=dtype))
        for _ in range(CALLS)
    ]  # fmt: skip


def largest_error(contender: Contender, x: torch.Tensor, y: torch.Tensor) -> float:
    """The largest difference to f64, in units of the largest magnitude."""
    y.fill_(float("nan"))
    result = contender.ours(x, y)
    expected = contender.torchs(x.double())
    got = y if result is None else result
    difference = got.view(-1)[: expected.numel()].view(expected.shape).double() - expected
    return float(difference.abs().max() / expected.abs().max())


def medians(
    calls: dict[str, Call], pairs: list[tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, float]:
    """Microseconds of one call each, by interleaved replays of a graph for each contender; of small
    arrays a graph has more calls.
    """
    repeated = pairs * max(1, min(64, (1 << 24) // pairs[0][0].numel()))
    graphs = {name: captured(call, repeated) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e3 / len(repeated))
    return {name: statistics.median(values) for name, values in samples.items()}


def captured(call: Call, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for x, y in pairs[:2]:
            call(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    results: deque[Any] = deque(maxlen=CALLS)  # an array that is freed would be the next result
    with torch.cuda.graph(graph):
        for x, y in pairs:
            results.append(call(x, y))
    return graph


if __name__ == "__main__":
    main()
