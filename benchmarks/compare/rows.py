"""What is compared: problems in groups, each with the figure that its ratio to torch is to reach.

A layout is BLAS's: ``tn`` is ``a @ b.t()`` of two row-major matrices, ``tt`` is ``a @ b``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

Shape = tuple[int, int, int]

RESULTS = {"e4m3": "bf16", "s8": "s32", "tf32": "f32"}  # D's type, where it is not A's
SMALLEST, LARGEST = 64, 16384  # of a random shape


@dataclass(frozen=True, slots=True)
class Row:
    """M×N×K of a type, beside torch. ``fast``: sums of 8-bit floats may stay in the tensor core.
    ``figure``: the ratio to reach, None where none is asked.
    """

    group: str
    m: int
    n: int
    k: int
    type: str = "bf16"
    layout: str = "tn"
    fast: bool = False
    figure: float | None = None

    @property
    def result(self) -> str:
        """D's type."""
        return RESULTS.get(self.type, self.type)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        fast = " fast" * self.fast
        return f"{self.m}×{self.n}×{self.k} {self.type} {self.layout.upper()}{fast}"


class Group(NamedTuple):
    """Rows of each type, shape, layout and way of summing; the figures that ``each`` ratio and
    their geometric ``mean`` are to reach, None where none is asked.
    """

    types: tuple[str, ...]
    shapes: tuple[Shape, ...]
    layouts: tuple[str, ...] = ("tn",)
    fast: tuple[bool, ...] = (False,)
    each: float | None = None
    mean: float | None = None


HALVES = ("bf16", "f16")
LAYOUTS = ("nn", "nt", "tn", "tt")
SQUARES: tuple[Shape, ...] = ((4096,) * 3, (8192,) * 3)
LARGE = ((2048,) * 3, *SQUARES, (4096, 28672, 8192), (4096, 8192, 28672))
SKINNY = ((1024,) * 3, (128, 8192, 8192), (16, 8192, 8192), (512, 512, 65536))
GROUPS = {
    "headline": Group(HALVES, LARGE, each=1.0, mean=1.05),
    "skinny": Group(HALVES, SKINNY, each=1.0),
    "layouts": Group(HALVES, SQUARES, LAYOUTS),
    "fp8": Group(("e4m3",), LARGE, fast=(True, False), each=1.0, mean=1.05),
    "s8": Group(("s8",), SQUARES),
    "tf32": Group(("tf32",), SQUARES, each=1.0),
    "f32": Group(("f32", "f64"), ((2048,) * 3, *SQUARES)),
    "random": Group(("bf16",), (), each=0.85, mean=1.0),
}
FIGURES = {("s8", 4096): 1.6, ("s8", 8192): 1.35}  # torch._int_mm leaves half the machine idle
SPREAD = 0.03  # of the four layouts' times, at most


def rows_of(name: str, count: int = 50, seed: int = 0) -> list[Row]:
    """A group's rows; ``count`` and ``seed`` are of the random ones."""
    group = GROUPS[name]
    shapes = random_shapes(count, seed) if name == "random" else group.shapes
    return [
        Row(name, *shape, type_, layout, fast, FIGURES.get((name, shape[0]), group.each))
        for type_, shape, layout, fast in product(group.types, shapes, group.layouts, group.fast)
    ]


def random_shapes(count: int, seed: int) -> list[Shape]:
    """Shapes that nobody chose: M, N and K log-uniform in 64 … 16384. Fewer are the first ones."""
    draw = random.Random(seed)
    span = math.log(LARGEST / SMALLEST)

    def size() -> int:
        return round(SMALLEST * math.exp(draw.random() * span))

    return [(size(), size(), size()) for _ in range(count)]
