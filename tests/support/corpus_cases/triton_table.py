"""The corpus's table of what Triton compiled: ``triton_case`` in the place of ``case``.

A PTX file's first line says how Triton launches it. Its parameters end with two pointers, to
scratch memory of the launch and to a profiler's; a tensor descriptor is a tensor map, the sizes and
the strides, outermost first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from corpus_cases.table import Gives, Map, case, text

SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}


@dataclass(frozen=True)
class Described:
    """A tensor descriptor of an array, its box as Triton chose it."""

    array: Any  # or Gives
    type: str


def triton_case(*names: str, grid: int | tuple[int, ...] = 1, kernel: str = "", **how: Any):
    """Put a kernel into the table, once for each PTX file in ``corpus/triton`` that has it."""

    def put(make: Callable) -> Callable:
        for name in names or (make.__name__,):
            _put(f"triton/{name}", make, kernel or make.__name__, grid, how)
        return make

    return put


def _put(file: str, make: Callable, kernel: str, grid: int | tuple[int, ...], how: Any) -> None:
    built = json.loads(text(file).partition("\n")[0].removeprefix("//"))
    ctas = built["num_ctas"]
    first, *others = grid if isinstance(grid, tuple) else (grid,)
    scratch = math.prod([first, *others]) * ctas * built["global_scratch_size"]

    @wraps(make)
    def arguments(*rng: np.random.Generator) -> list:
        maps = iter(built["maps"])
        expanded = [value for arg in make(*rng) for value in _expanded(arg, maps)]
        return [*expanded, np.zeros(max(scratch, 1), np.uint8), 0]

    launch = {"block": 32 * built["num_warps"], "shared": built["shared"]}
    if ctas > 1:
        launch["cluster"] = ctas
    case(file, kernel=kernel, grid=(first * ctas, *others), **launch, **how)(arguments)


def _expanded(arg: Any, maps: Iterator[dict]) -> list:
    if not isinstance(arg, Described):
        return [arg]
    meta = next(maps)
    array = arg.array.start() if isinstance(arg.array, Gives) else arg.array
    box, swizzle = tuple(meta["block_size"][::-1]), SWIZZLES[meta["swizzle"]]
    strides = [np.int64(stride // array.itemsize) for stride in array.strides]
    return [Map(arg.array, arg.type, box, swizzle), *map(np.int32, array.shape), *strides]
