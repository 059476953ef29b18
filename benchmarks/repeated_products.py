"""Repeats f32 products on a GPU: every call must have the bits of the first, and be right.

    python benchmarks/repeated_products.py [71x646x262:nt,simt:16x32x32:4x8x4:3/6*3 …]
        [--replays 50] [--seconds 120] [--plain]

Without configurations each tile of kernel ``simt`` is tried, whole and in three parts of K; without
shapes two of each layout. A graph has 24 calls in a row, so that grids overlap. Printed are the
configurations of which some call differs, with the first and last elements that do. ``--plain``
leaves the loops as ptxas made them: what is wrong only without it is an error of
``tilewright.sass.schedule``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence

from compare.compiled_kernels import compiled, load
from f32_products import LAYOUTS, TOLERANCE, Shape, parsed, random_matrix

import tilewright
from tilewright import gemm
from tilewright.gemm.cp_async.simt_config import TABLE
from tilewright.run.devices import serialized_kernel

SHAPES = [Shape(*x, y) for y in LAYOUTS for x in ((391, 523, 331), (202, 646, 262))]
OUTPUTS, CALLS = 6, 24


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", nargs="*", type=parsed, metavar="MxNxK[:LAYOUT],CONFIG…")
    parser.add_argument("--replays", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit")
    parser.add_argument("--plain", action="store_true", help="loops as ptxas made them")
    options = parser.parse_args()
    begin, tried, wrong = time.perf_counter(), 0, 0
    cases = list(cases_of(options.shapes or [(shape, ()) for shape in SHAPES]))
    wanted = ((case, kernels_of(*case)) for case in cases)
    build = plain if options.plain else serialized_kernel.build
    for (shape, config), kernels in compiled(wanted, build):
        load(kernels)
        wrong += differs(shape, config, options.replays)
        tried += 1
        if time.perf_counter() - begin > options.seconds:
            break
    print(f"{wrong} of {tried} configurations wrong, {len(cases) - tried} not tried")


def cases_of(
    shapes: Iterable[tuple[Shape, Sequence[str]]],
) -> Iterator[tuple[Shape, str]]:
    """Each shape with its configurations; one without any with each tile, whole and in three parts
    of K.
    """
    tiles = [str(config) for config in TABLE]
    for shape, configs in shapes:
        for config in configs or [*tiles, *(text.replace("@", "*3@") for text in tiles)]:
            yield shape, config


def kernels_of(shape: Shape, config: str) -> Iterable[gemm.GemmKernel]:
    """The kernels of a case."""
    plan = shape.plan
    return gemm.kernels(plan.problem, gemm.parse(config), plan.device.target)


def plain(kernel: gemm.GemmKernel, arch: str) -> serialized_kernel.SerializedKernel:
    """A kernel whose loop is as ptxas made it."""
    serialized_kernel.scheduler.rescheduled_code = lambda code, name: code
    return serialized_kernel.build(kernel, arch)


def differs(shape: Shape, config: str, replays: int) -> bool:
    """Whether a call's bits differ from the first call's, or that one is wrong; prints where."""
    import torch

    m, n, k, layout = shape
    a, b = random_matrix(m, k, layout[0]), random_matrix(k, n, layout[1])
    outs = [torch.empty(m, n, device="cuda") for _ in range(OUTPUTS)]
    tilewright.matmul(a, b, out=outs[0], config=config)
    torch.cuda.synchronize()
    first = outs[0].clone()
    largest = a.double().abs() @ b.double().abs()
    error = float(((first.double() - a.double() @ b.double()).abs() / largest).max())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(CALLS):
            tilewright.matmul(a, b, out=outs[i % OUTPUTS], config=config)
    wrong, where = 0, ""
    for _ in range(replays):
        for out in outs:
            out.fill_(float("nan"))
        graph.replay()
        for out in outs:
            found = (out.view(torch.int32) != first.view(torch.int32)).nonzero()
            if len(found):
                wrong += 1
                where = f"{len(found)} elements, {found[0].tolist()} to {found[-1].tolist()}"
    if wrong or not error < TOLERANCE:
        print(f"{shape} {config}: {wrong} of {replays * OUTPUTS} outputs differ from the first, "
              f"whose error is {error:.1e}; {where}", flush=True)  # fmt: skip
    return bool(wrong) or not error < TOLERANCE


if __name__ == "__main__":
    main()
