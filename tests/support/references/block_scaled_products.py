"""Products with block scales: operands, and the reference's bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright
from tilewright.dtypes import dtype
from tilewright.gemm.block_scaling import BLOCK, BlockScaling
from tilewright.gemm.epilogue.reference import fma
from tilewright.run.call.matmul import slow_call
from tilewright.run.call.request import BlockScales, MatmulArguments, MatmulOptions

HOSTILE = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -1.0)


def operands(
    mnk: tuple[int, int, int], scaling: BlockScaling, types: tuple[str, str], *,
    batch: tuple[int, ...] = (), seed: int = 0, hostile: bool = False, exact: bool = False,
) -> tuple[Any, Any, BlockScales]:  # fmt: skip
    """A (row-major), B (column-major) and their scales. ``exact``: all sums are, in any order."""
    rng, (m, n, k) = np.random.default_rng(seed), mnk
    a, b = (
        (rng.integers(-3, 4, (*batch, *shape)) if exact else rng.standard_normal((*batch, *shape)))
        .astype(np.float32)
        .astype(dtype(t).numpy)
        for shape, t in zip(((m, k), (n, k)), types, strict=True)
    )
    depth = -(-k // BLOCK)
    scale_a = rng.uniform(0.5, 2, (*batch, -(-m // scaling.rows), depth)).astype(np.float32)
    scale_b = rng.uniform(0.5, 2, (*batch, depth, -(-n // scaling.columns))).astype(np.float32)
    if exact:
        scale_a, scale_b = np.exp2(np.round(scale_a)), np.exp2(np.round(scale_b))
    if hostile:
        for scales in (scale_a, scale_b):
            flat = scales.reshape(-1)
            flat[rng.integers(0, flat.size, len(HOSTILE))] = HOSTILE
    return a, b.swapaxes(-1, -2), BlockScales(scaling, scale_a, scale_b)


def product(
    a: Any, b: Any, scales: BlockScales, *, out: Any = None, c: Any = None, alpha: float = 1.0,
    beta: float = 0.0, **options: Any,
) -> Any:  # fmt: skip
    """D as a device computes it."""
    arguments = MatmulArguments(a, b, c, out, alpha, beta, scales)
    return slow_call(arguments, MatmulOptions(**options))[0]


def reference(a: Any, b: Any, scales: BlockScales) -> Any:
    """D in f32, from plain products of each block of K: the scales are multiplied, and an FMA adds
    each scaled product to the total.
    """
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    total = np.zeros((*a.shape[:-2], m, n), np.float32)
    for j in range(-(-k // BLOCK)):
        along = slice(BLOCK * j, BLOCK * (j + 1))
        part = tilewright.matmul(
            a[..., along], b[..., along, :], out_dtype="f32", device="vm", fast_accum=True
        )
        rows = np.repeat(scales.a[..., j], scales.scaling.rows, axis=-1)[..., :m, None]
        columns = np.repeat(scales.b[..., j, :], scales.scaling.columns, axis=-1)[..., None, :n]
        with np.errstate(all="ignore"):
            total = fma(part, rows * columns, total)
    return total
