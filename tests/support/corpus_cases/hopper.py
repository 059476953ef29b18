"""The corpus's table: sm_90a."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16

from corpus_cases.table import Gives, Map, case, whole, words


@case("hopper", grid=3, block=160)
def bulk_ring(rng):
    x = whole(rng, 3, 5, 256)
    y = np.zeros((4, 128), np.int32)
    for i in range(5):
        y[:3] = 3 * y[:3] + x[:, i, :128] - x[:, i, 128:]
    y[3] = y[:3].sum(0)
    return [5, x, Gives(y)]


@case("hopper", grid=8, block=64)
def cluster_histogram(rng):
    x = words(rng, 3000, dtype=np.uint8)
    return [3000, x, Gives(np.bincount(x, minlength=256).astype(np.int32))]


@case("hopper", grid=8, block=32, cluster=4)
def ring_of_clusters(rng):
    x = words(rng, 2, 4, 32, dtype=np.int32)
    return [x, Gives(np.roll(x, 1, axis=1))]


@case("hopper", grid=(3, 2), block=32)
def tensor_transpose(rng):
    x, box = words(rng, 52, 76, dtype=np.int32), (32, 32)
    return [Map(x, "s32", box), Map(Gives(x.T.copy()), "s32", box)]


@case("hopper", grid=(2, 1), block=128, shared=24576)
def wgmma_gemm(rng):
    a, b = whole(rng, 64, 192, dtype=bfloat16), whole(rng, 64, 192, dtype=bfloat16)
    d = a.astype(np.float32) @ b.T.astype(np.float32)
    maps = [Map(x, "bf16", (64, rows), 128) for x, rows in ((a, 64), (b, 32))]
    return [64, 3, *maps, Gives(d)]


@case("hopper", grid=1, block=32)
def stored_matrices(rng):
    x = words(rng, 4, 32)
    return [x, Gives(x.view(np.uint16).reshape(4, 8, 8).transpose(0, 2, 1).copy())]
