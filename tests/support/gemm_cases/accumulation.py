"""Products that are added to D in place: calls of ``matmul`` and ``grouped_matmul`` whose operand c
is their out, with numbers that a sum treats specially.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright import dtypes
from tilewright.run.call import two_products
from tilewright.run.call.batching import prepared_products
from tilewright.run.call.prepared_call import PreparedCall, prepare_call

BF16 = dtypes.dtype("bf16").numpy
SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, -3.4e38])


class AccumulationCase(NamedTuple):
    """``call(c, out, device)`` computes ``out`` = the product + c, both like ``c``."""

    c: Any
    call: Callable[[Any, Any, Any], Any]


def added(acc: Any, c: Any) -> Any:
    return acc + c


def hostile(rng: Any, *shape: int) -> Any:
    """f32 of any bits, normal numbers, and special ones, a third each."""
    bits = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    kinds = bits, rng.standard_normal(shape).astype(np.float32), rng.choice(SPECIAL, shape)
    return np.choose(rng.integers(0, 3, shape), kinds)


def factor(rng: Any, *shape: int) -> Any:
    """A matrix of bf16; of several rows one has an infinity and a NaN, and the last is of zeros."""
    x = rng.standard_normal(shape).astype(BF16)
    if shape[-2] > 1:
        x.reshape(-1)[[3, 70]] = np.inf, np.nan
        x[..., -1, :] = -0.0
    return x


def dense(m: int, n: int, k: int, config: str | None, *batch: int) -> AccumulationCase:
    rng = np.random.default_rng(m + n)
    a, b = factor(rng, *batch, m, k), factor(rng, *batch, n, k).swapaxes(-1, -2)

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.matmul(a, b, epilogue=added, c=c, out=out, config=config, device=device)

    return AccumulationCase(hostile(rng, *batch, m, n), call)


def by_beta(m: int, n: int, k: int, config: str | None, *batch: int) -> AccumulationCase:
    """The same without an epilogue function: α = β = 1."""
    rng = np.random.default_rng(m + n)
    a, b = factor(rng, *batch, m, k), factor(rng, *batch, n, k).swapaxes(-1, -2)

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.matmul(a, b, c=c, beta=1.0, out=out, config=config, device=device)

    return AccumulationCase(hostile(rng, *batch, m, n), call)


def scaled_by_beta(m: int, n: int, k: int, config: str | None) -> AccumulationCase:
    rng = np.random.default_rng(m)
    x, y = (rng.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
    a, b = tilewright.quantize(x, block=(1, 128)), tilewright.quantize(y, block=(128, 128))

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.matmul(a, b.T, c=c, beta=1.0, out=out, config=config, device=device)

    return AccumulationCase(hostile(rng, m, n), call)


def twice(m: int, n: int, k: int, config: str | None) -> AccumulationCase:
    """Two operands are D: only the one that is added need not be read."""
    rng = np.random.default_rng(n)
    a, b = factor(rng, m, k), factor(rng, n, k).T

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.matmul(
            a, b, epilogue=lambda acc, e, c: acc * e + c, c=c, e=c, out=out, config=config,
            device=device,
        )  # fmt: skip

    return AccumulationCase(hostile(rng, m, n), call)


def packed(m: int, n: int, k: int, config: str, by_function: bool) -> AccumulationCase:
    rng = np.random.default_rng(k)
    a, w = factor(rng, m, k), rng.standard_normal((n, k)).astype(np.float32)
    b = tilewright.quantize_weight(w, "u4", group=128).T

    def call(c: Any, out: Any, device: Any) -> Any:
        more = {"epilogue": added} if by_function else {"beta": 1.0}
        return tilewright.matmul(a, b, c=c, out=out, config=config, device=device, **more)

    return AccumulationCase(hostile(rng, m, n), call)


def ieee(m: int, n: int, k: int, config: str) -> AccumulationCase:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.matmul(a, b, c=c, beta=1.0, out=out, config=config, device=device)

    return AccumulationCase(hostile(rng, m, n), call)


def column_major(m: int, n: int, k: int, config: str | None) -> AccumulationCase:
    c, call = dense(m, n, k, config)
    return AccumulationCase(np.asfortranarray(c), call)


def along_k(m: int, n: int, config: str | None) -> AccumulationCase:
    rng, ends = np.random.default_rng(m), np.array((70, 70, 134, 135, 400), np.int32)
    a, b = factor(rng, 405, m).T, factor(rng, 405, n)

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.grouped_matmul(
            a, b, offsets=ends, along="k", epilogue=added, c=c, out=out, config=config,
            device=device,
        )  # fmt: skip

    return AccumulationCase(hostile(rng, len(ends), m, n), call)


def scaled_along_k(m: int, n: int, config: str | None) -> AccumulationCase:
    rng, ends = np.random.default_rng(m), np.array((128, 128, 512, 700), np.int32)
    x, y = (rng.standard_normal((rows, 700)).astype(np.float32) for rows in (m, n))
    a, b = (tilewright.quantize(matrix, block=(1, 128)) for matrix in (x, y))

    def call(c: Any, out: Any, device: Any) -> Any:
        return tilewright.grouped_matmul(
            a, b.T, offsets=ends, along="k", epilogue=added, c=c, out=out, config=config,
            device=device,
        )  # fmt: skip

    return AccumulationCase(hostile(rng, len(ends), m, n), call)


def along_m(n: int, k: int, config: str | None, scale: bool) -> AccumulationCase:
    """Groups of rows; with ``scale`` the product has the scales of rows and columns, too."""
    rng, ends = np.random.default_rng(n), np.array((5, 135, 135, 392), np.int32)
    a: Any = rng.standard_normal((400, k)).astype(BF16)
    w: Any = rng.standard_normal((4, n, k)).astype(BF16)
    if scale:
        a, w = (tilewright.quantize(x.astype(np.float32), block=(1, k)) for x in (a, w))

    def call(c: Any, out: Any, device: Any) -> Any:
        out[ends[-1] :] = c[ends[-1] :]  # rows of no group
        b = w.T if scale else w.swapaxes(-1, -2)
        return tilewright.grouped_matmul(
            a, b, offsets=ends, epilogue=added, c=c, out=out, config=config, device=device
        )

    return AccumulationCase(hostile(rng, 400, n), call)


ADDED_BY_COPIES: dict[str, Callable[[], AccumulationCase]] = {
    "dense": lambda: dense(150, 200, 136, None),
    "cooperative": lambda: dense(300, 264, 136, "tma:128x128x64:2:3"),
    "pingpong": lambda: dense(300, 264, 136, "tma:64x64x64:2p:3"),
    "swapped cluster": lambda: dense(300, 136, 136, "tma:128x64x64:2:3/2x1~"),
    "dynamic": lambda: dense(300, 136, 136, "tma:64x64x64:1:3d"),
    "stream-K": lambda: dense(130, 140, 1500, "tma:64x64x64:1:3+sk5"),
    "split tail": lambda: dense(300, 264, 512, "tma:64x64x64:1:3+2"),
    "split tail after a wave": lambda: dense(768, 768, 128, "tma:64x64x64:1:3+2"),
    "column-major": lambda: column_major(200, 150, 136, None),
    "column-major, split tail": lambda: column_major(300, 264, 512, "tma:64x64x64:1:3+2"),
    "stack": lambda: dense(72, 136, 64, None, 3),
    "one row": lambda: dense(1, 136, 80, "tma:64x16x64:1:3~"),
    "along K": lambda: along_k(192, 264, None),
    "along K, pingpong": lambda: along_k(136, 200, "tma:128x64x64:2p:3/1x2"),
    "scaled along K": lambda: scaled_along_k(96, 160, None),
    "scaled along K, swapped": lambda: scaled_along_k(260, 100, "tma:256x96x128:2:3~"),
    "two operands are D": lambda: twice(150, 136, 72, "tma:128x64x64:2:3"),
    "two operands are D, split tail": lambda: twice(300, 264, 256, "tma:64x64x64:1:3+2"),
    "packed weights": lambda: packed(40, 72, 256, "tma:64x16x128:3:6~", True),
    "packed weights, pair of CTAs": lambda: packed(40, 136, 512, "tma:128x64x128:2:3*2c~", False),
    "beta": lambda: by_beta(150, 200, 136, None),
    "beta, three warpgroups": lambda: by_beta(300, 264, 136, "tma:192x96x64:3:3"),
    "beta, all tiles together": lambda: by_beta(300, 64, 136, "tma:128x64x64:2:3"),
    "beta, pingpong, swapped": lambda: by_beta(300, 264, 136, "tma:64x64x64:2p:3~"),
    "beta, stream-K": lambda: by_beta(130, 140, 1500, "tma:64x64x64:1:3+sk5"),
    "beta, split tail": lambda: by_beta(300, 264, 512, "tma:64x64x64:1:3+2"),
    "beta, split tail after a wave": lambda: by_beta(768, 768, 128, "tma:64x64x64:1:3+2"),
    "beta, stack": lambda: by_beta(72, 136, 64, None, 3),
    "beta, scaled": lambda: scaled_by_beta(160, 136, 384, None),
    "along M": lambda: along_m(136, 64, None, False),
    "along M, scaled": lambda: along_m(96, 256, "tma:128x96x128:2:3", True),
}
ADDED_IN_REGISTERS: dict[str, Callable[[], AccumulationCase]] = {
    "unaligned rows": lambda: dense(100, 62, 64, None),
    "split-K": lambda: dense(150, 200, 512, "tma:64x64x64:1:3*2"),
    "multistage": lambda: dense(150, 200, 136, "128x128x32:2x2:4"),
    "beta, split-K": lambda: by_beta(150, 200, 512, "tma:64x64x64:1:3*2"),
    "beta, multistage": lambda: by_beta(150, 200, 136, "128x128x32:2x2:4"),
    "packed weights, split-K": lambda: packed(40, 72, 512, "tma:64x32x128:3:6*2~", False),
    "beta, f32, split-K": lambda: ieee(70, 100, 256, "simt:64x64x16:8x16:3*2"),
    "beta, unaligned rows": lambda: by_beta(100, 62, 64, None),
    "unaligned along K": lambda: along_k(64, 66, None),
}
CASES = ADDED_BY_COPIES | ADDED_IN_REGISTERS


class PreparedCalls(list[PreparedCall]):
    """The calls that are prepared while a test runs."""

    def __init__(self, monkeypatch: Any) -> None:
        super().__init__()
        for module in (two_products, prepared_products):
            monkeypatch.setattr(module, "prepare_call", self._recorded)

    def _recorded(self, *arguments: Any) -> PreparedCall:
        self.append(prepare_call(*arguments))
        return self[-1]

    @property
    def adds_by_copies(self) -> bool:
        """Whether the last one's kernel adds to D by tensor copies."""
        return "cp.reduce.async.bulk.tensor" in self[-1].traced.ptx


def products(case: AccumulationCase, device: Any) -> tuple[Any, Any]:
    """The bits of D with c in an array of its own, and with c as D."""
    apart, joined = np.zeros_like(case.c), case.c.copy(order="K")
    case.call(case.c, apart, device)
    assert case.call(joined, joined, device) is joined
    return tuple(x.view(np.uint32) for x in (apart, joined))
