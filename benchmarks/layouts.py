"""Measure the layout algebra in plain Python, and layout pictures.

    python benchmarks/layouts.py

Prints the median of 31 runs of each line, on one core. If ``pycute`` can be imported, its times are
printed next to ours for the operations that it supports.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterator
from types import ModuleType

import tilewright.layout as cute
from tilewright.view import draw_layout

RUNS = 31
MICRO, MILLI = (1e6, "µs"), (1e3, "ms")


def algebra(module: ModuleType) -> Iterator[tuple[str, Callable[[], object]]]:
    """The operations that both libraries have, by name."""
    layout, composition, crd2idx = module.Layout, module.composition, module.crd2idx
    a = layout(((4, 8), (2, 4)), ((32, 1), (16, 8)))
    rows, five = layout((8, 8), (8, 1)), layout((2, 2, 2, 2, 4), (1, 16, 2, 8, 32))
    yield "composition ((4,8),(2,4)) o (8,8)", lambda: composition(a, rows)
    yield "composition, five modes o (8,8)", lambda: composition(five, rows)
    yield "crd2idx (3,5) in (64,64)", lambda: crd2idx((3, 5), (64, 64), (64, 1))
    yield "crd2idx 37 in ((4,8),(2,4))", lambda: crd2idx(37, a.shape, a.stride)
    yield "layout(37)", lambda: a(37)


def whole() -> Iterator[tuple[str, Callable[[], object]]]:
    """Evaluations of whole layouts, and pictures."""
    large, tile = cute.Layout((1024, 1024), (1024, 1)), cute.Layout((128, 64), (64, 1))
    for name, swizzle in (("", None), (" under Sw<3,4,3>", cute.Swizzle(3, 4, 3))):
        big, small = (cute.composition(swizzle, x) if swizzle else x for x in (large, tile))
        yield f"2^20 offsets{name}", big.indices
        yield f"a picture of 128×64{name}", lambda small=small: draw_layout(small)


def median(call: Callable[[], object], number: int) -> float:
    """Seconds per call."""
    call()
    return statistics.median(timeit.repeat(call, number=number, repeat=RUNS)) / number


def pycute() -> ModuleType | None:
    try:
        import pycute as module
    except ImportError:
        return None
    return module  # type: ignore[no-any-return]


def main() -> None:
    other = pycute()
    theirs = dict(algebra(other)) if other else {}
    for cases, number, (scale, unit) in ((algebra(cute), 1000, MICRO), (whole(), 1, MILLI)):
        for name, call in cases:
            beside = ""
            if name in theirs:
                beside = f"   pycute {median(theirs[name], number) * scale:6.2f} {unit}"
            print(f"{name:<40}{median(call, number) * scale:7.2f} {unit}{beside}")


if __name__ == "__main__":
    main()
