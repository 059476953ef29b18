"""Zero points of a product: sums along K, by products with a matrix of ones.

    Σ (a − za) (b − zb)  =  Σ a b  −  za Σ (b − zb)  −  zb Σ a

The sums are exact in s32, and so is the difference, modulo 2³², which the epilogue computes from
the accumulator before it multiplies by the scales. The sums of B are kept with it where the caller
promises that B is not written (``static="b"``), else computed in each call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....gemm.epilogue.tracing import Epilogue, cast, epilogue_with_key
from ....lazy_imports import provided
from ....quantization.scaled import Scaled
from ...arrays import array_view
from ...devices.device import device

MAX_ONES = 16
_ones_by_place: dict[Any, Any] = {}


def column_sums(b: Any, depth_axis: int = 0, keep: bool = False) -> Any:
    """Σ (b − zb) along K for each column of B (1×N) in s32, an array of B's library.
    ``depth_axis``: 0 of K×N, 1 of a layer's weights N×K. ``keep``: with a Scaled, and take those
    that are kept.
    """
    right = b.T if depth_axis else b
    if not isinstance(b, Scaled):
        return _column_sums(right, None)
    axis = depth_axis ^ b.transposed
    if keep and axis in b.sums:
        return b.sums[axis]
    sums = _column_sums(right.data, right.zeros)
    if keep:
        b.sums[axis] = sums
    return sums


def row_sums(a: Any) -> Any:
    """Σ a along K for each row of A (M×1) in s32, an array of A's library."""
    data = a.data if isinstance(a, Scaled) else a
    ones = _ones(data, data.shape[-1]).T
    return provided("matmul")(data, ones, out_dtype="s32")


def _column_sums(data: Any, zeros: Any) -> Any:
    depth = data.shape[-2]
    ones = _ones(data, depth)
    if zeros is None:
        return provided("matmul")(ones, data, out_dtype="s32")
    minus = Epilogue(lambda acc, zeros: acc - cast(zeros, "s32") * depth)
    function = epilogue_with_key(minus, ("sums", depth))
    return provided("matmul")(ones, data, epilogue=function, zeros=zeros, out_dtype="s32")


def _ones(like: Any, depth: int) -> Any:
    """A matrix of ones, 1×``depth`` of s8, of the library and on the device of ``like``."""
    view = array_view.view(like)
    key = array_view.kind_of(like).name, view.device, depth
    if key not in _ones_by_place:
        if len(_ones_by_place) >= MAX_ONES:
            _ones_by_place.clear()
        made = array_view.empty_like_kind(like, (1, depth), "s8")
        _fill(made, np.ones((1, depth), np.int8))
        _ones_by_place[key] = made
    return _ones_by_place[key]


def _fill(array: Any, values: Any) -> None:
    view = array_view.view(array)
    if view.device == "cpu":
        array_view.bits(view)[...] = values.view(np.uint8)
        return
    on = device(view.device)
    on.wait(array_view.stream_of(array))  # kernels that used this memory before
    on.upload(view.address, values, values.shape[1])
    on.wait()
