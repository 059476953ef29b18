"""f32 by three products of tf32: x = high + low, each of them a tf32, and

    a b  ≈  high(a) high(b) + high(a) low(b) + low(a) high(b)

K is laid out three times, A as (high, high, low) and B as (high, low, high), and the kernel for
tf32 multiplies a K thrice as long. What is left out, low(a) low(b), is 2⁻²⁰ of the product at
most. An infinity times what has no low part is a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...builder import Builder, Traced, trace
from ...ptx import parameter_block
from ..devices.device_protocol import ExecutionDevice

LOW = {"a": (False, False, True), "b": (False, True, False)}  # for each time, which part
KEPT = ~0x1FFF & 0xFFFFFFFF  # of 32 bits, those of a tf32
BLOCK = (32, 8, 1)
_MOST_Y = 65535


class SplitShape(NamedTuple):
    """A matrix, or a stack: ``shape`` (stack, lines, K) and strides of the source in elements; the
    target's ``leading``, and elements from matrix to matrix.
    """

    name: str
    shape: tuple[int, int, int]
    source: tuple[int, int, int]
    leading: int
    apart: int


def split_on_host(name: str, lines: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """(lines, K) → (lines, 3 K), of f32 as bits."""
    x = np.ascontiguousarray(lines).view(np.float32)
    with np.errstate(invalid="ignore"):
        cut = (x.view(np.uint32) & np.uint32(KEPT)).view(np.float32)
        high = np.where(np.isnan(x), x, cut)
        low = np.where(np.isfinite(x), x - high, np.float32(0))
    return np.concatenate([low if part else high for part in LOW[name]], axis=1).view(np.uint32)


@lru_cache(maxsize=256)
def prepare(device: ExecutionDevice, triple: SplitShape) -> Callable[[Sequence[int], int], None]:
    """A launch: ``start((source, target), stream)``."""
    programmatic = device.target.target.runs("sm_90")
    traced = _traced(triple.name, programmatic)
    stack, lines, depth = triple.shape
    grid = (-(-depth // BLOCK[0]), min(-(-lines // BLOCK[1]), _MOST_Y), min(stack, _MOST_Y))
    executable, shared = device.compile(traced), traced.dynamic_shared
    go = device.prepare(executable, grid, BLOCK, shared, programmatic=programmatic)
    sizes = stack, lines, depth, *triple.source, triple.leading, triple.apart
    layout = parameter_block.layout(traced.entry)

    def start(ends: Sequence[int], stream: int = 0) -> None:
        go(layout.pack([*ends, *sizes]), stream)

    return start


PARAMS = {
    "source": "ptr b32", "target": "ptr b32", "stack": "u32", "lines": "u32", "depth": "u32",
    "source_apart": "s64", "source_line": "s64", "source_k": "s64",
    "leading": "s64", "apart": "s64",
}  # fmt: skip


@cache
def _traced(name: str, programmatic: bool) -> Traced:
    static = {"name": name, "programmatic": programmatic}
    return trace(_kernel, static, params=PARAMS, lines=False, name=f"threefold_{name}")


def _kernel(
    k: Builder, source: Any, target: Any, stack: Any, lines: Any, depth: Any, source_apart: Any,
    source_line: Any, source_k: Any, leading: Any, apart: Any, *, name: str, programmatic: bool,
) -> None:  # fmt: skip
    """An element for each thread, which walks on where the grid ends."""
    if programmatic:
        k.launch_dependent_grids()
        k.wait_for_prior_grids()
    column = k.ctaid.x * BLOCK[0] + k.tid.x
    with k.if_(column < depth):
        for matrix in k.range(k.ctaid.z, stack, k.nctaid.z):
            from_ = source + (matrix.to("s64") * source_apart + column.to("s64") * source_k)
            to = target + (matrix.to("s64") * apart + column.to("s64"))
            first = k.ctaid.y * BLOCK[1] + k.tid.y
            for line in k.range(first, lines, k.nctaid.y * BLOCK[1]):
                bits = (from_ + line.to("s64") * source_line)[0]
                x = bits.view("f32")
                high = k.select(x == x, (bits & KEPT).view("f32"), x)
                low = k.select(abs(x) < float("inf"), x - high, 0.0)
                there = to + line.to("s64") * leading
                for time, part in enumerate(LOW[name]):
                    place = there + depth.to("s64") * time
                    place[0] = (low if part else high).view("b32")
