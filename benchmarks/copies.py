"""Compare our relayout kernels with torch's ``copy_`` on a GPU: time and bandwidth.

    python benchmarks/copies.py                     all rows
    python benchmarks/copies.py lines transposed    some kinds
    python benchmarks/copies.py --shape 81x14926 --bytes 2 lines

Each row is a median over replays of a CUDA graph of 16 copies between pairs of matrices, up to 16
pairs, so that they exceed the L2 if possible. ``lines``: from an odd leading dimension to aligned
rows; ``back``: the reverse; ``transposed``; ``strided``: every other element; ``two``: two matrices
in one launch (torch: in two). The result of each copy is compared with its source first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import count, product

import torch

from tilewright import cuda
from tilewright.run import device
from tilewright.run.relayout.relayout import RelayoutSpec, prepare

TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
KINDS = ("lines", "back", "transposed", "strided", "two")
LARGE = [(3163, 14926), (8192, 8193), (81, 14926), (14926, 81)]
SMALL = [(128, 129), (81, 3163), (1000, 777)]
BEYOND = 400 << 20  # bytes
COPIES = 16

Pair = tuple[torch.Tensor, torch.Tensor]
Work = Callable[[int], object]  # starts on a stream


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--shape", type=lambda text: tuple(map(int, text.split("x"))))
    parser.add_argument("--bytes", type=int, choices=TYPES, help="bytes per element")
    options = parser.parse_args()
    shapes = [options.shape] if options.shape else LARGE + SMALL
    sizes = [options.bytes] if options.bytes else list(TYPES)
    print(f"{'kind':<11}{'shape':>13} bytes {'ours µs':>9} {'GB/s':>6} {'torch µs':>9} {'GB/s':>6}")
    for kind, size, shape in product(options.kinds, sizes, shapes):
        print(row(kind, size, shape), flush=True)


def row(kind: str, size: int, shape: tuple[int, int]) -> str:
    """A line of the table."""
    both = 2 if kind == "two" else 1
    nbytes = 2 * both * size * shape[0] * shape[1]
    sets = [
        [pair(kind, size, shape) for _ in range(both)]
        for _ in range(min(max(BEYOND // nbytes, 1), COPIES))
    ]
    stream = torch.cuda.current_stream().cuda_stream
    for pairs in sets:
        relayout_launch(pairs, kind)(stream)
        if any(not torch.equal(source, target) for source, target in pairs):
            return f"{kind:<11}{shape[0]:>6}×{shape[1]:<6} {size:>5} WRONG"
    figures = ""
    for starts in (
        [relayout_launch(pairs, kind) for pairs in sets],
        [torch_copies(pairs) for pairs in sets],
    ):
        us = cuda.time_us(round_robin(starts), calls=COPIES).median
        figures += f" {us:9.2f} {nbytes / us / 1e3:6.0f}"
    return f"{kind:<11}{shape[0]:>6}×{shape[1]:<6} {size:>5}{figures}"


def pair(kind: str, size: int, shape: tuple[int, int]) -> Pair:
    """A source with random numbers, and a target."""
    rows, columns = shape
    per = 16 // size
    strides = {
        "aligned": (-(-columns // per) * per, 1),
        "lines": (columns | 1, 1),
        "transposed": (1, rows | 1),
        "strided": (2 * columns, 2),
    }
    ends = {"back": ("aligned", "lines"), "two": ("lines", "aligned")}
    source, target = (
        torch.empty_strided(shape, strides[end], dtype=TYPES[size], device="cuda")
        for end in ends.get(kind, (kind, "aligned"))
    )
    return source.random_(0, 100), target


def relayout_launch(pairs: list[Pair], kind: str) -> Work:
    """A prepared launch of the relayout kernel."""
    specs = tuple(
        RelayoutSpec(tuple(s.shape), s.element_size(), s.stride(), t.stride(), kind != "back")
        for s, t in pairs
    )
    start = prepare(device("cuda"), specs)
    addresses = [x.data_ptr() for both in pairs for x in both]
    return lambda stream: start(addresses, stream)


def torch_copies(pairs: list[Pair]) -> Work:
    def start(stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            for source, target in pairs:
                target.copy_(source)

    return start


def round_robin(starts: list[Work]) -> Work:
    turns = count()
    return lambda stream: starts[next(turns) % len(starts)](stream)


if __name__ == "__main__":
    main()
