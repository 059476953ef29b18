"""Compare the kernels of ``tilewright.kernels`` with torch, torch.compile and a copy.

    python benchmarks/shelf_kernels.py                       every kernel at 8192×8192, bf16
    python benchmarks/shelf_kernels.py softmax --shape 4096x1000 --dtype float32

A line has median times of CUDA-graph replays, interleaved, of four calls that rotate through four
pairs of arrays; the copy is torch's ``copy_`` of an array of the same size. ``of a copy`` is the
copy's time over ours, ``of compiled`` that of torch.compile's kernel over ours. ``error``: the
largest difference to f64, divided by the largest magnitude. GB/s counts x and an array of its size
(a reduction reads x only). ``--prefetch``: also a line of times for several distances of the
prefetch of later rows, in units of the rows that are resident (0: none), and for launches before
the preceding kernel ends (early).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tilewright import kernels
from tilewright.kernels import row_call

DISTANCES = (0, 0.25, 0.5, 1, 2)
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
    parser.add_argument("--shape", default="8192x8192")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prefetch", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    rows, columns = map(int, options.shape.split("x"))
    dtype = getattr(torch, options.dtype)
    print(f"{'kernel':<12}{'copy':>9}{'ours':>9}{'torch':>9}{'compiled':>9} µs", end="")
    print("   GB/s  of a copy  of compiled  error", flush=True)
    for name, contender in contenders(rows, columns, dtype).items():
        if not options.names or name in options.names:
            print(line(name, contender, rows, columns, dtype, not options.no_compile), flush=True)
            if options.prefetch and name in ROWS:
                print(distances_line(name, contender, rows, columns, dtype), flush=True)


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


ROWS = {"softmax": "softmax", "rms_norm": "rms_norm", "layer_norm": "layer_norm",
        "sum rows": "reduce_rows", "top 8": "top_k"}  # fmt: skip
"""The kernels on whole rows, with the names by which ``row_call.PREFETCH`` knows them."""


def distances_line(
    name: str, contender: Contender, rows: int, columns: int, dtype: torch.dtype
) -> str:
    """Times, and a copy's over them, for each distance."""
    pairs = array_pairs(rows, columns, dtype)
    calls: dict[str, Call] = {"copy": lambda x, y: y.copy_(x)}
    for distance in DISTANCES:
        for early in (False, True):
            shown = f"{distance}{' early' * early}"
            calls[shown] = with_distance(ROWS[name], distance, early, contender.ours)
    times = medians(calls, pairs)
    copy = times.pop("copy")
    shown = ", ".join(f"{n}: {t:.2f} ({copy / t:.3f})" for n, t in times.items())
    return f"  copy {copy:.2f}; prefetch at {shown}"


def with_distance(name: str, distance: float, early: bool, call: Call) -> Call:
    """A call with a prefetch at this distance, or without one for 0; launched ``early``, before the
    preceding kernel ends.
    """

    def prefetched(x: torch.Tensor, y: torch.Tensor) -> None:
        before = dict(row_call.PREFETCH), set(row_call.PROGRAMMATIC)
        row_call.PREFETCH[name] = distance
        if not distance:
            del row_call.PREFETCH[name]
        (row_call.PROGRAMMATIC.add if early else row_call.PROGRAMMATIC.discard)(name)
        call(x, y)
        row_call.PREFETCH.clear()
        row_call.PREFETCH.update(before[0])
        row_call.PROGRAMMATIC.clear()
        row_call.PROGRAMMATIC.update(before[1])

    return prefetched


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
    """Microseconds of one call each, by interleaved replays of a graph for each contender."""
    graphs = {name: captured(call, pairs) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e3 / len(pairs))
    return {name: statistics.median(values) for name, values in samples.items()}


def captured(call: Call, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for x, y in pairs[:2]:
            call(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x, y in pairs:
            call(x, y)
    return graph


if __name__ == "__main__":
    main()
