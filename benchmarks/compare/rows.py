"""The problems that are compared, in groups, each with the ratio to torch that it must reach.

A layout is BLAS's: ``tn`` is ``a @ b.t()`` of two row-major matrices, ``tt`` is ``a @ b``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from .model_layers import layer_sizes

Shape = tuple[int, int, int]

RESULTS = {"e4m3": "bf16", "s8": "s32", "tf32": "f32"}  # D's type, where it is not A's
SMALLEST, LARGEST = 64, 16384  # of a random shape


@dataclass(frozen=True, slots=True)
class Row:
    """M×N×K of a type. ``fast``: 8-bit floats accumulate in the tensor core, not promoted to f32.
    ``figure``: the ratio of torch's time to ours that it must reach, None for any. ``name``: of a
    model's layer.
    """

    group: str
    m: int
    n: int
    k: int
    type: str = "bf16"
    layout: str = "tn"
    fast: bool = False
    figure: float | None = None
    name: str = ""

    @property
    def result(self) -> str:
        """D's type."""
        return RESULTS.get(self.type, self.type)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        fast, name = " fast" * self.fast, f"{self.name} " if self.name else ""
        return f"{name}{self.m}×{self.n}×{self.k} {self.type} {self.layout.upper()}{fast}"


class Group(NamedTuple):
    """Rows of each type, shape, layout and accumulation; the figures that ``each`` ratio and their
    geometric ``mean`` must reach, None for any.
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
LAYERS_GROUP = "layers"
MULTIPLES = {"random": 1, "multiples-of-8": 8, "multiples-of-64": 64}  # of random sizes
SURVEYS = {  # measured only by name
    LAYERS_GROUP: Group((), (), each=0.97, mean=1.07),
    "multiples-of-8": Group(("bf16",), (), each=0.92, mean=1.15),
    "multiples-of-64": Group(("bf16",), (), each=0.92, mean=1.15),
}
ALL_GROUPS = GROUPS | SURVEYS
FIGURES = {("s8", 4096): 1.6, ("s8", 8192): 1.35}  # torch._int_mm reaches half of the peak rate
SPREAD = 0.03  # of the four layouts' times, at most


def rows_of(
    name: str, count: int = 50, seed: int = 0, tokens: tuple[int, ...] | None = None
) -> list[Row]:
    """A group's rows. ``count`` and ``seed`` are of random shapes, ``tokens`` are the sizes M of
    layers (None: three for each layer).
    """
    group = ALL_GROUPS[name]
    if name == LAYERS_GROUP:
        return [
            Row(name, m, layer.n, layer.k, layer.type, fast=layer.type == "e4m3",
                figure=group.each, name=str(layer))
            for layer, m in layer_sizes(tokens)
        ]  # fmt: skip
    shapes = group.shapes
    if name in MULTIPLES:
        shapes = tuple(random_shapes(count, seed, MULTIPLES[name]))
    return [
        Row(name, *shape, type_, layout, fast, FIGURES.get((name, shape[0]), group.each))
        for type_, shape, layout, fast in product(group.types, shapes, group.layouts, group.fast)
    ]


def random_shapes(count: int, seed: int, multiple: int = 1) -> list[Shape]:
    """Random shapes: M, N and K log-uniform in 64 … 16384, rounded to the nearest multiple. Fewer
    are the first ones; each multiple has other shapes.
    """
    draw = random.Random(seed if multiple == 1 else f"{multiple}:{seed}")
    span = math.log(LARGEST / SMALLEST)

    def size() -> int:
        return round(SMALLEST * math.exp(draw.random() * span) / multiple) * multiple

    return [(size(), size(), size()) for _ in range(count)]
