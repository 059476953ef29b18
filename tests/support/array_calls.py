"""Calls of every kind with f16 arrays as ``to`` passes them, for tests of array libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright
from tilewright import kernels

RNG = np.random.default_rng(0)


def halves(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / 4).astype(np.float16)


X, B, W, BIAS, C = halves(40, 64), halves(64, 48), halves(48, 64), halves(48), halves(40, 48)
STACK, EXPERTS, ENDS = halves(2, 40, 64), halves(3, 64, 48), np.array([7, 7, 40], np.int32)
TALL = halves(64, 40)
PACKED = tilewright.quantize_weight(W, "s4", group=32)
SPARSE = tilewright.compress_24(W, prune="magnitude")


def packed(to: Callable[[Any], Any]) -> Any:
    return tilewright.Packed(to(PACKED.data), to(PACKED.scales), "s4", group=32)


def sparse(to: Callable[[Any], Any]) -> Any:
    return tilewright.Sparse24(to(SPARSE.values), to(SPARSE.metadata))


# a call with arrays as `to` passes them; the result's shape
Calls = dict[str, tuple[Callable[..., Any], tuple[int, ...]]]
CALLS: Calls = {
    "matmul": (lambda to, **o: tilewright.matmul(to(X), to(B), **o), (40, 48)),
    "transposed": (lambda to, **o: tilewright.matmul(to(TALL.T), to(W.T), **o), (40, 48)),
    "batched": (lambda to, **o: tilewright.matmul(to(STACK), to(B), **o), (2, 40, 48)),
    "added": (
        lambda to, **o: tilewright.matmul(to(X), to(B), c=to(C), alpha=2, beta=0.5, **o), (40, 48)
    ),
    "linear": (
        lambda to, **o: tilewright.linear(to(X), to(W), to(BIAS), activation="gelu", **o), (40, 48)
    ),
    "grouped": (
        lambda to, **o: tilewright.grouped_matmul(to(X), to(EXPERTS), offsets=to(ENDS), **o),
        (40, 48),
    ),
    "packed": (lambda to, **o: tilewright.matmul(to(X), packed(to).T, **o), (40, 48)),
    "sparse": (lambda to, **o: tilewright.matmul(to(X), sparse(to).T, **o), (40, 48)),
    "softmax": (lambda to, **o: kernels.softmax(to(X), **o), (40, 64)),
    "rms_norm": (lambda to, **o: kernels.rms_norm(to(X), to(X[0].copy()), **o), (40, 64)),
    "layer_norm": (
        lambda to, **o: kernels.layer_norm(to(X), to(X[0].copy()), to(X[1].copy()), **o), (40, 64)
    ),
    "reduce": (lambda to, **o: kernels.reduce(to(X), "max", 0, **o), (64,)),
    "transpose": (lambda to, **o: kernels.transpose(to(X), **o), (64, 40)),
}  # fmt: skip


def strided(to: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``to`` that keeps a transposed matrix's strides."""
    return lambda x: to(x) if x.flags.c_contiguous else to(x.T).T
