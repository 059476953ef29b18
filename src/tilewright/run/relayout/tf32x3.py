"""3xTF32: an f32 product by three tf32 products. x = high + low, where both are tf32, and

    a b  ≈  high(a) high(b) + high(a) low(b) + low(a) high(b)

K is stored three times, A as (high, high, low) and B as (high, low, high), and the tf32 kernel
multiplies matrices with three times the K extent. The omitted term low(a) low(b) is at most 2⁻²⁰
of the product. An infinity times a number whose low part is 0 gives a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...builder import Builder, Pointer, Reg, Traced, trace
from ...ptx import parameter_block
from ..devices.device_protocol import ExecutionDevice

LOW = {"a": (False, False, True), "b": (False, True, False)}  # low or high, for each repeat of K
TF32_BITS = ~0x1FFF & 0xFFFFFFFF  # the bits of an f32 that tf32 has
BLOCK = (32, 8, 1)
_MAX_GRID_YZ = 65535


class SplitShape(NamedTuple):
    """The split of matrix ``name`` ("a" or "b"), or of a stack, whose rows run along K.

    ``shape`` is (matrices, rows, K), ``source`` its strides, ``leading_dim`` and ``batch_stride``
    are the target's; all in elements.
    """

    name: str
    shape: tuple[int, int, int]
    source: tuple[int, int, int]
    leading_dim: int
    batch_stride: int


def split_on_host(name: str, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """(rows, K) → (rows, 3 K), f32 as its bits."""
    x = np.ascontiguousarray(rows).view(np.float32)
    with np.errstate(invalid="ignore"):
        truncated = (x.view(np.uint32) & np.uint32(TF32_BITS)).view(np.float32)
        high = np.where(np.isnan(x), x, truncated)
        low = np.where(np.isfinite(x), x - high, np.float32(0))
    return np.concatenate([low if is_low else high for is_low in LOW[name]], axis=1).view(np.uint32)


@lru_cache(maxsize=256)
def prepare(device: ExecutionDevice, split: SplitShape) -> Callable[[Sequence[int], int], None]:
    """The launch of a split: ``start((source, target), stream)``."""
    programmatic = device.target.target.runs("sm_90")
    traced = _traced(split.name, programmatic)
    matrices, rows, depth = split.shape
    grid_y, grid_z = min(-(-rows // BLOCK[1]), _MAX_GRID_YZ), min(matrices, _MAX_GRID_YZ)
    grid = (-(-depth // BLOCK[0]), grid_y, grid_z)
    executable, shared = device.compile(traced), traced.dynamic_shared
    launch = device.prepare(executable, grid, BLOCK, shared, programmatic=programmatic)
    sizes = matrices, rows, depth, *split.source, split.leading_dim, split.batch_stride
    layout = parameter_block.layout(traced.entry)

    def start(addresses: Sequence[int], stream: int = 0) -> None:
        launch(layout.pack([*addresses, *sizes]), stream)

    return start


PARAMS = {
    "source": "ptr b32", "target": "ptr b32", "matrices": "u32", "rows": "u32", "depth": "u32",
    "source_batch_stride": "s64", "source_row_stride": "s64", "source_k_stride": "s64",
    "leading_dim": "s64", "batch_stride": "s64",
}  # fmt: skip


@cache
def _traced(name: str, programmatic: bool) -> Traced:
    static = {"name": name, "programmatic": programmatic}
    return trace(_kernel, static, params=PARAMS, lines=False, name=f"tf32x3_split_{name}")


def _kernel(
    k: Builder, source: Pointer, target: Pointer, matrices: Reg, rows: Reg, depth: Reg,
    source_batch_stride: Reg, source_row_stride: Reg, source_k_stride: Reg,
    leading_dim: Reg, batch_stride: Reg, *, name: str, programmatic: bool,
) -> None:  # fmt: skip
    """Each thread splits elements of one column, in a grid-stride loop over rows and matrices."""
    if programmatic:
        k.launch_dependent_grids()
        k.wait_for_prior_grids()
    column = k.ctaid.x * BLOCK[0] + k.tid.x
    with k.if_(column < depth):
        for matrix in k.range(k.ctaid.z, matrices, k.nctaid.z):
            offset = matrix.to("s64") * source_batch_stride + column.to("s64") * source_k_stride
            read = source + offset
            write = target + (matrix.to("s64") * batch_stride + column.to("s64"))
            first = k.ctaid.y * BLOCK[1] + k.tid.y
            for row in k.range(first, rows, k.nctaid.y * BLOCK[1]):
                bits = (read + row.to("s64") * source_row_stride)[0]
                x = bits.view("f32")
                high = k.select(x == x, (bits & TF32_BITS).view("f32"), x)
                low = k.select(abs(x) < float("inf"), x - high, 0.0)
                target_row = write + row.to("s64") * leading_dim
                for repeat, is_low in enumerate(LOW[name]):
                    element = target_row + depth.to("s64") * repeat
                    element[0] = (low if is_low else high).view("b32")
