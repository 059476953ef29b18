"""Grouped products: cases of group sizes, and what the rows of each group must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright
from tilewright import dtypes

UNWRITTEN = 7.0
CASES_ALONG_K = (
    ((3, 0, 70, 1), 64, 64, None),
    ((3, 0, 70, 65), 128, 96, "tma:128x64x64:2:3~"),
    ((30, 64, 0, 0, 130, 1), 192, 128, "tma:128x128x64:2p:3/1x2"),
)


@dataclass(frozen=True)
class GroupedCase:
    """Groups of ``sizes`` rows, times matrices of N×K. ``before``, ``after``: rows of no group;
    with ``capacity`` each group has a matrix of its own.
    """

    sizes: tuple[int, ...]
    n: int
    k: int
    config: str | None = None
    type: str = "bf16"
    index: Any = np.int32
    before: int = 0
    after: int = 0
    capacity: int = 0
    row_major_b: bool = False
    column_major_a: bool = False

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.sizes))}x{self.n}x{self.k}_{self.config}"


CASES = [
    GroupedCase((3, 0, 70, 1), 64, 64),
    GroupedCase((0, 0, 5), 64, 136, "tma:64x16x64:1:3~", "f16"),
    GroupedCase((5, 130, 0, 257), 96, 192, "tma:128x96x64:2:3", index=np.int64, before=4, after=9),
    GroupedCase((1, 200, 65), 80, 64, "tma:128x128x64:2p:3", after=1),
    GroupedCase((40, 0, 90), 256, 64, "tma:128x32x64:2:3/2x1~", "f16"),
    GroupedCase((300, 1), 192, 64, "tma:64x64x64:1:3/1x2", row_major_b=True),
    GroupedCase((9, 64, 0, 33), 72, 64, "tma:64x48x64:1:3~", capacity=64),
    GroupedCase((7, 20), 61, 40, "tma:64x64x64:1:3", after=2, column_major_a=True),
]  # fmt: skip


def operands(case: GroupedCase) -> tuple[Any, Any, dict[str, Any], Any]:
    """A, B, the sizes as an argument of ``grouped_matmul``, and a D to write to."""
    rng = np.random.default_rng(case.n)
    type_ = dtypes.dtype(case.type).numpy
    groups, rows = len(case.sizes), sum(case.sizes) + case.before + case.after
    lead = (groups, case.capacity) if case.capacity else (rows,)
    a = rng.standard_normal((*lead, case.k)).astype(type_)
    a = np.asfortranarray(a) if case.column_major_a else a
    shape = (groups, case.k, case.n) if case.row_major_b else (groups, case.n, case.k)
    b = rng.standard_normal(shape).astype(type_)
    b = b if case.row_major_b else b.transpose(0, 2, 1)
    out = np.full((*lead, case.n), UNWRITTEN, type_)
    ends = np.cumsum(case.sizes) + case.before
    if case.capacity:
        return a, b, {"counts": np.array(case.sizes, case.index)}, out
    offsets = np.concatenate([[case.before], ends]) if case.before else ends
    return a, b, {"offsets": offsets.astype(case.index)}, out


def groups_of(case: GroupedCase, x: Any) -> list[Any]:
    """The rows of each group of a matrix or a stack."""
    if case.capacity:
        return [x[g, :size] for g, size in enumerate(case.sizes)]
    begins = case.before + np.cumsum((0, *case.sizes))
    return [x[i : i + size] for i, size in zip(begins, case.sizes, strict=False)]


def check(case: GroupedCase, a: Any, b: Any, d: Any) -> None:
    """Assert that the groups' rows of D are the products, and that no other row was written."""
    rest = d.copy()
    for g, (x, y) in enumerate(zip(groups_of(case, a), groups_of(case, d), strict=True)):
        exact = x.astype(np.float64) @ b[g].astype(np.float64)
        scale = np.abs(x.astype(np.float64)) @ np.abs(b[g].astype(np.float64))
        assert (np.abs(y.astype(np.float64) - exact) <= 2**-8 * scale).all()
    for y in groups_of(case, rest):
        y[:] = UNWRITTEN
    assert (rest == np.array(UNWRITTEN, rest.dtype)).all()


def product(case: GroupedCase, device: Any, **more: Any) -> tuple[Any, Any, Any]:
    """A, B and D of a case on a device."""
    a, b, sizes, out = operands(case)
    return (
        a,
        b,
        tilewright.grouped_matmul(
            a, b, **sizes, out=out, config=case.config, device=device, **more
        ),
    )


def product_along_k(
    sizes: tuple[int, ...], m: int, n: int, config: str | None, device: Any
) -> tuple[Any, Any, Any]:
    """A as its transpose, B and the D of each group; 5 rows of both belong to no group."""
    rng = np.random.default_rng(m)
    type_ = dtypes.dtype("bf16").numpy
    left, right = (rng.standard_normal((sum(sizes) + 5, x)).astype(type_) for x in (m, n))
    ends = np.cumsum(sizes).astype(np.int32)
    found = tilewright.grouped_matmul(
        left.T, right, offsets=ends, along="k", config=config, device=device
    )
    return left, right, found


EIGHT_BITS_ALONG_K = (  # the blocks of scales of A and B, or the type; the configuration
    ((1, 128), (1, 128), None),
    ((128, 128), (1, 128), "tma:64x64x128:1:3~"),
    ("e4m3", None, "tma:128x64x128:2:3"),
    ("s8", None, None),
    ((1, 128), (1, 128), "tma:256x96x128:2:3~"),
)


def eight_bits_along_k(a: Any, b: Any, config: Any, device: Any) -> tuple[Any, Any, Any, Any]:
    """A, B (both as numbers, K along their rows), the D of each group, and the groups' ends: K of
    the last one is no multiple of 128.
    """
    rng, ends = np.random.default_rng(7), (128, 128, 512, 700)
    x, y = (rng.standard_normal((rows, 700)).astype(np.float32) for rows in (96, 160))
    given: dict[str, Any] = {}
    if isinstance(a, str):
        left, right = (np.rint(20 * m).astype(dtypes.dtype(a).numpy) for m in (x, y))
        given = {"epilogue": lambda acc: acc} if a == "s8" else {}
        numbers = left, right
    else:
        left, right = (tilewright.quantize(m, block=s) for m, s in ((x, a), (y, b)))
        numbers = left.dequantize(), right.dequantize()
    offsets = np.array(ends, np.int32)
    d = tilewright.grouped_matmul(
        left, right.T, offsets=offsets, along="k", config=config, device=device, **given
    )
    return *numbers, d, ends


CASES_WITH_INDICES = (  # K, configuration, types of gather and scatter
    (136, None, np.int32, np.int64),
    (200, "tma:64x32x64:1:3~", np.int64, None),
    (64, "tma:128x64x64:2:3", None, np.int32),
    (256, "tma:64x64x128:1:2", np.int32, np.int32),
    (192, "tma:128x128x64:2p:3", np.int32, np.int32),
    (72, "tma:128x32x64:2:3/2x1~", np.int32, np.int32),
    (136, "tma:128x64x64:2:3/1x2", np.int64, np.int64),
)


def indexed_product(
    k: int, config: str | None, gather: Any, scatter: Any, device: Any
) -> tuple[Any, Any]:
    """D of gathered and scattered rows, in a D of 90 rows, and what it must be. Row 5 goes nowhere;
    rows that no index names keep their values.
    """
    rng, ends, n = np.random.default_rng(k), (3, 3, 73, 80), 96
    a = rng.standard_normal((20 if gather else 83, k)).astype(np.float16)
    b = rng.standard_normal((4, n, k)).astype(np.float16)
    rows = rng.integers(0, 20, 83) if gather else np.arange(83)
    targets = rng.permutation(90)[:83] if scatter else np.arange(83)
    targets[5] = -1 if scatter else 5
    given: dict[str, Any] = {"gather": rows.astype(gather)} if gather else {}
    given |= {"scatter": targets.astype(scatter)} if scatter else {}
    out = np.full((90 if scatter else 83, n), UNWRITTEN, np.float16)
    expected = out.astype(np.float32)
    for g, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        stored = [i for i in range(begin, end) if targets[i] >= 0]
        exact = a[rows[stored]].astype(np.float32) @ b[g].T.astype(np.float32)
        expected[targets[stored]] = exact
    found = tilewright.grouped_matmul(
        a, b.transpose(0, 2, 1), offsets=np.array(ends, np.int32), out=out, config=config,
        device=device, **given,
    )  # fmt: skip
    return found, expected


WEIGHTS = ("s4", "s8", "sparse")


def weights_product(form: str, device: Any) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """A, a stack of packed or sparse weights as B has their elements, D, and the groups' ends."""
    rng, ends = np.random.default_rng(6), (3, 3, 73, 74)
    a = rng.standard_normal((74, 128)).astype(dtypes.dtype("bf16").numpy)
    w = rng.standard_normal((4, 192, 128)).astype(np.float32)
    b: Any = tilewright.quantize_weight(w, form, group=64) if form != "sparse" else None
    elements = None if b is None else b.dequantize()
    if b is None:
        b = tilewright.compress_24(w.astype(a.dtype), prune="magnitude")
        elements = b.decompress()
    offsets = np.array(ends, np.int32)
    return a, elements, tilewright.grouped_matmul(a, b.T, offsets=offsets, device=device), ends


SCALE_BLOCKS = (((1, 128), (128, 128)), ((1, 128), (1, 128)), ((1, 512), (1, 512)))


def scaled_product(
    blocks: tuple[Any, Any], device: Any, *, gathered: bool = False
) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """A and B as they are quantized in these blocks, D, and the ends of the groups. With
    ``gathered`` the call gets fewer rows of A and indices.
    """
    rng, ends = np.random.default_rng(5), (3, 3, 73, 74)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((74, 512), (4, 160, 512)))
    a, b = (tilewright.quantize(m, block=s) for m, s in zip((x, w), blocks, strict=True))
    offsets = np.array(ends, np.int32)
    if gathered:
        a, rows = tilewright.quantize(x[:20], block=blocks[0]), rng.integers(0, 20, 74)
        d = tilewright.grouped_matmul(a, b.T, offsets=offsets, gather=rows, device=device)
        return a.dequantize()[rows], b.dequantize(), d, ends
    d = tilewright.grouped_matmul(a, b.T, offsets=offsets, device=device)
    return a.dequantize(), b.dequantize(), d, ends
