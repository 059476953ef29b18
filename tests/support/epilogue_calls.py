"""Calls with epilogues that are tested on the virtual machine and on a GPU: functions, operands of
every shape and type, configurations of all kernels.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.gemm.epilogue.functions import (
    amax,
    bitmask,
    drelu,
    maximum,
    minimum,
    relu,
    where,
)
from tilewright.gemm.epilogue.tracing import TracedReduction, cast, epilogue, index

RNG = np.random.default_rng(7)
TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "s8": np.int8,
    "u8": np.uint8, "s32": np.int32, "e4m3": ml_dtypes.float8_e4m3fn, "f64": np.float64,
    "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def random(shape: tuple[int, ...], type_: str) -> Any:
    """Normal numbers, or integers from -9 (u8: 0) to 8."""
    if type_ in ("s8", "u8", "s32"):
        return RNG.integers(0 if type_ == "u8" else -9, 9, shape).astype(TYPES[type_])
    return RNG.standard_normal(shape).astype(TYPES[type_])


@epilogue
def affine(acc, bias, residual, row, s=1.0):
    """Every shape of operand."""
    return relu(s * acc + bias) * row + residual


def operands_of_every_shape(shape: tuple[int, ...]) -> dict[str, Any]:
    """Those of ``affine`` for a product of this shape, (…, M, N, K)."""
    *batch, m, n, _ = shape
    return {
        "bias": random((n,), "bf16"), "residual": random((*batch, m, n), "f16"),
        "row": random((m, 1), "f32"), "s": 0.5,
    }  # fmt: skip


@epilogue
def two_outputs(acc, bias):
    x = acc + bias
    return {"y": cast(maximum(x, -1.0), "e4m3"), "x": x, "mask": cast(where(x > 0, 1, 0), "u8")}


@epilogue
def coordinates(acc, bias):
    return acc + bias + index(acc, "row") * 100.0 + index(acc, "column")


@epilogue
def dequantize(acc, scale, row):
    return cast(acc * scale * row, "bf16")


@epilogue
def reductions(acc, bias):
    x = acc + bias
    return {
        "d": cast(x, "e4m3"), "amax": amax(x),
        "row_max": TracedReduction(x, "max", "n"), "column_max": TracedReduction(x, "max", "m"),
        "row_sum": TracedReduction(x, "sum", "n"), "column_sum": TracedReduction(x, "sum", "bm"),
        "total": TracedReduction(x, "sum", "bmn"),
    }  # fmt: skip


@epilogue
def maxima(acc, bias):
    """Maxima of both signs; elements outside of D would be greater than those inside."""
    x = acc + bias
    below = minimum(x, 0.0) - 5000.0 + index(acc, "row") + index(acc, "column")
    return {
        "d": cast(x, "e4m3"), "amax": amax(x), "below": TracedReduction(below, "max", "bmn"),
        "each": TracedReduction(below, "max", "mn"),
    }  # fmt: skip


@epilogue
def masked(acc, bias):
    """The mask for the gradient of relu."""
    x = acc + bias
    return {"d": cast(relu(x), "f32"), "mask": bitmask(x > 0), "all": bitmask(x == x)}


@epilogue
def masked_gradient(acc, mask):
    return cast(drelu(acc, mask), "f32")


@epilogue
def gated(gate, up, s):
    return relu(gate) * up * s


CONFIGS = {
    "cooperative": ("tma:128x64x64:2:3", (128, 64, 64)),
    "swap": ("tma:64x96x64:1:3~", (192, 64, 64)),
    "pingpong": ("tma:64x128x64:2p:3", (200, 256, 64)),
    "odd sizes": ("tma:64x64x64:1:3", (67, 49, 72)),
    "odd sizes swapped": ("tma:64x64x64:1:3~", (67, 49, 72)),
    "batch": ("tma:64x64x64:1:3", (3, 64, 72, 64)),
    "cluster": ("tma:128x128x64:2:3/2x1", (256, 128, 64)),
    "split-K": ("tma:64x64x64:1:3*2", (72, 80, 256)),
    "split-K, odd": ("tma:64x64x64:1:3*3~", (67, 49, 256)),
    "dynamic": ("tma:64x64x64:1:3d", (128, 128, 64)),
}


# Maxima over all rows and columns, by every kernel that stores elements of D. Of four work tiles on
# three SMs the last is split.
MAXIMA = {
    "pingpong, odd": ("tma:64x128x64:2p:3", (150, 144, 64)),
    "swap, dynamic": ("tma:64x64x64:1:3d~", (67, 49, 72)),
    "batch, split-K": ("tma:64x64x64:1:3*2", (2, 67, 64, 128)),
    "tail split": ("tma:64x64x64:1:3+2", (67, 100, 128)),
}


QUANTIZED = {
    "s8": (("s8", "s8"), "tma:64x64x128:1:3", dequantize, "f32"),
    "u8 odd": (("u8", "s8"), "tma:64x64x128:1:3", dequantize, "f32"),
}


PAIRS = {
    "cooperative": ("tma:128x128x64:2:3", "n"),
    "narrow, K-major": ("tma:64x64x64:1:3", "k"),
    "multicast": ("tma:128x128x64:2:3/2x1", "n"),
    "pingpong, cluster": ("tma:128x128x64:2p:3/1x2", "k"),
    "dynamic": ("tma:64x128x64:1:3d", "n"),
    "swapped": ("tma:128x40x64:1:3~", "n"),
    "swapped, multicast": ("tma:256x32x64:2:3/1x2~", "k"),
    "swapped, pingpong": ("tma:128x64x64:2p:3~", "k"),
    "chosen": (None, "n"),
}


OTHER_KERNELS = {
    "multistage": ("64x64x32:2x2:3", ("f16", "f16"), (128, 64, 64)),
    "multistage, odd": ("64x64x32:2x2:3", ("bf16", "bf16"), (67, 49, 72)),
    "multistage, batch": ("64x64x32:2x2:3", ("f16", "f16"), (3, 64, 72, 64)),
    "multistage, split-K": ("64x64x32:2x2:3*2", ("f16", "f16"), (67, 49, 256)),
    "simt": ("simt:64x64x8:8x8:3", ("f32", "f32"), (67, 49, 72)),
    "simt, slices": ("simt:64x64x16:8x8x2:3", ("f32", "f32"), (67, 49, 72)),
    "simt, split-K": ("simt:48x64x16:4x8x2:3*2", ("f32", "f32"), (67, 49, 72)),
    "simt, cluster": ("simt:64x64x16:8x8:3*2c", ("f32", "f32"), (67, 49, 72)),
}
