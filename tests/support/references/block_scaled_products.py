"""Products with block scales: operands, and the reference's bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright.dtypes import dtype
from tilewright.gemm.block_scaling import BLOCK, BlockScaling
from tilewright.gemm.epilogue.reference import fma
from tilewright.quantization import Scaled
from tilewright.run.call.matmul import slow_call
from tilewright.run.call.request import BlockScales, MatmulArguments, MatmulOptions


class BlockScaledCase(NamedTuple):
    """A configuration of kernel ``tma``, and the problem: M, N, K, the types that D may have."""

    config: str
    scaling: BlockScaling
    mnk: tuple[int, int, int]
    d_types: tuple[str, ...] = ("f32", "bf16")

    def __str__(self) -> str:
        return f"{self.config}, {self.scaling}"


ROWS_BLOCKS, ROWS_COLUMNS = BlockScaling(1, 128), BlockScaling(1, 1)
BLOCKS, BLOCKS_COLUMNS = BlockScaling(128, 128), BlockScaling(128, 1)

CASES = [
    BlockScaledCase("tma:64x64x128:1:4/1x1", ROWS_BLOCKS, (100, 190, 300)),
    BlockScaledCase("tma:64x32x128:1:4~", ROWS_BLOCKS, (20, 200, 400)),
    BlockScaledCase("tma:128x96x128:2p:3", ROWS_BLOCKS, (300, 200, 256)),
    BlockScaledCase("tma:128x48x128:2p:3*2", ROWS_COLUMNS, (300, 90, 700)),
    BlockScaledCase("tma:128x128x128:2:4", BLOCKS, (200, 300, 400)),
    BlockScaledCase("tma:128x192x128:2:4", ROWS_BLOCKS, (200, 400, 200)),
    BlockScaledCase("tma:64x192x128:1:4", BLOCKS_COLUMNS, (100, 200, 130)),
    BlockScaledCase("tma:128x64x128:2:4/2x1", ROWS_BLOCKS, (500, 100, 384)),
    BlockScaledCase("tma:128x64x128:2:4/1x2+2", BLOCKS, (500, 1000, 384)),
    BlockScaledCase("tma:64x16x128:1:4~", BLOCKS_COLUMNS, (15, 100, 140)),
    BlockScaledCase("tma:64x24x128:1:4*3~", ROWS_COLUMNS, (23, 100, 900)),
    BlockScaledCase("tma:128x144x128:2:4", ROWS_BLOCKS, (130, 288, 200)),
    BlockScaledCase("tma:64x64x128:1:4d", ROWS_BLOCKS, (100, 190, 300)),
    # two 64-row blocks of a warpgroup leave too few registers for D of 16 bits
    BlockScaledCase("tma:256x96x128:2:3", ROWS_COLUMNS, (300, 100, 400), ("f32",)),
    BlockScaledCase("tma:128x128x128:2:3~", ROWS_COLUMNS, (120, 140, 500)),
]

# Of A and of B: the dimension along which scales are contiguous, in rows of 16 bytes.
CONTIGUOUS = [("mn", "k"), ("k", "mn"), ("mn", "mn"), ("k", "k"), ("", "k"), ("mn", "")]
CONTIGUOUS += [("mn", "mn"), ("mn", "mn"), ("k", "k")]
COPIED = [
    BlockScaledCase("tma:64x64x128:1:4", ROWS_BLOCKS, (100, 190, 700)),
    BlockScaledCase("tma:128x192x128:2:4", ROWS_BLOCKS, (70, 400, 200)),
    BlockScaledCase("tma:64x176x128:1:4~", BLOCKS_COLUMNS, (352, 72, 300)),
    BlockScaledCase("tma:128x96x128:2p:3*2", ROWS_COLUMNS, (140, 100, 1300)),
    BlockScaledCase("tma:256x64x128:2:3/1x2", BLOCKS, (520, 100, 600)),
    BlockScaledCase("tma:128x48x128:2:4d", BLOCKS_COLUMNS, (200, 90, 640)),
    BlockScaledCase("tma:256x96x128:2:3/1x2~", ROWS_COLUMNS, (200, 300, 700)),
    BlockScaledCase("tma:128x144x128:2:3/2x1", ROWS_COLUMNS, (300, 200, 700)),
    BlockScaledCase("tma:128x128x128:2:3", ROWS_COLUMNS, (100, 132, 500)),
]

PAIRS = [  # the case, and how the scales lie
    (BlockScaledCase("tma:128x192x128:2:3", ROWS_BLOCKS, (40, 200, 200)), ("mn", "k")),
    (BlockScaledCase("tma:128x96x128:2p:3", ROWS_COLUMNS, (140, 60, 300)), ("mn", "mn")),
    (BlockScaledCase("tma:128x32x128:1:4~", BLOCKS_COLUMNS, (20, 100, 300)), ("k", "mn")),
    (BlockScaledCase("tma:256x64x128:2:3~", ROWS_BLOCKS, (50, 160, 300)), ("mn", "k")),
    (BlockScaledCase("tma:64x64x128:1:4/2x1", BLOCKS, (140, 60, 256)), ("k", "k")),
    (BlockScaledCase("tma:64x64x128:1:4d", ROWS_BLOCKS, (70, 60, 300)), ("", "")),
]


def placed(scales: BlockScales, contiguous: tuple[str, str], strided: Any) -> BlockScales:
    """The scales as arrays that ``strided(elements, shape, strides)`` makes, with elements that are
    no scales between them.
    """
    made = []
    for array, along, of_a in zip((scales.a, scales.b), contiguous, (True, False), strict=True):
        rows_contiguous = (along == "k") == of_a if along else True
        whole = array if rows_contiguous else array.T
        length = -(-whole.shape[1] // 4) * 4 + 4 + (not along)
        memory = np.full((whole.shape[0], length), np.nan, np.float32)
        memory[:, : whole.shape[1]] = whole
        strides = (length, 1) if rows_contiguous else (1, length)
        made.append(strided(memory, array.shape, strides))
    return scales._replace(a=made[0], b=made[1])


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


def _product(x: Any, y: Any) -> Any:
    return x * y


def pair_product(
    case: BlockScaledCase, contiguous: tuple[str, str], array: Any, strided: Any, device: Any = None
) -> tuple[Any, Any]:
    """(A B₁) · (A B₂) in f32 from one kernel, and from the reference. ``array``: of a library;
    ``strided``: as ``placed`` takes it.
    """
    config, scaling, mnk, _ = case
    left, right = (operands(mnk, scaling, ("e4m3", "e5m2"), hostile=True, seed=s) for s in (0, 1))
    a, b = left[0], (left[1], right[1])
    scales = [given[2]._replace(a=left[2].a) for given in (left, right)]
    found = [placed(each, contiguous, strided) for each in scales]
    matrices = [
        Scaled(array(np.ascontiguousarray(x.T)).T, each.b, (BLOCK, scaling.columns))
        for x, each in zip(b, found, strict=True)
    ]
    for _ in range(2):  # the second time by the fast path
        product = tilewright.matmul(
            Scaled(array(a), found[0].a, (scaling.rows, BLOCK)), matrices, config=config,
            out_dtype="f32", epilogue=_product, device=device,
        )  # fmt: skip
    with np.errstate(all="ignore"):
        first, second = (reference(a, x, each) for x, each in zip(b, scales, strict=True))
        return product, first * second


def same(got: Any, expected: Any) -> bool:
    """Whether two f32 arrays have the same bits; any NaN equals another."""
    nan = np.isnan(expected)
    return bool(
        np.array_equal(np.isnan(got), nan)
        and np.array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))
    )


def reference(a: Any, b: Any, scales: BlockScales, device: str = "vm") -> Any:
    """D in f32, from plain products of each block of K: the scales are multiplied, and an FMA adds
    each scaled product to the total.
    """
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    total = np.zeros((*a.shape[:-2], m, n), np.float32)
    for j in range(-(-k // BLOCK)):
        along = slice(BLOCK * j, BLOCK * (j + 1))
        part = tilewright.matmul(
            a[..., along], b[..., along, :], out_dtype="f32", device=device, fast_accum=True
        )
        rows = np.repeat(scales.a[..., j], scales.scaling.rows, axis=-1)[..., :m, None]
        columns = np.repeat(scales.b[..., j, :], scales.scaling.columns, axis=-1)[..., None, :n]
        rows, columns = rows.astype(np.float32), columns.astype(np.float32)
        with np.errstate(all="ignore"):
            total = fma(part, rows * columns, total)
    return total
