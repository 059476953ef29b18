"""The corpus's table: groups of threads, memory's odd corners."""

from __future__ import annotations

import numpy as np

from corpus_cases.table import Gives, case, normal, whole, words

MEMORY = ("memory", "memory_linked")

# --- groups ---


@case("groups", grid=2, block=64)
def tiles_of_warps(rng):
    x = whole(rng, 128)
    tiles, ones = x.reshape(16, 8), np.ones((16, 8), np.int32)
    counts = [(tiles > 8).any(1), (tiles > -5).all(1), (tiles > 0).sum(1)]
    votes = (counts[0] + 2 * counts[1] + 4 * counts[2])[:, None] * ones
    turned = tiles[:, np.arange(8) // 2] + 1000 * (np.arange(16) % 8)[:, None]
    rows = [tiles.sum(1)[:, None] * ones, np.maximum.accumulate(tiles, 1), turned, votes]
    return [x, Gives(np.array(rows, np.int32).reshape(4, 128))]


@case("groups", grid=1, block=32)
def coalesced(rng):
    x = whole(rng, 32)
    ranks = 17 + np.cumsum(x > 0) - 1
    counter = np.array([17], np.int32)
    y = np.where(x > 0, ranks, -1).astype(np.int32)
    return [x, Gives(y), Gives(counter + (x > 0).sum(dtype=np.int32), counter)]


@case("groups", grid=1, block=32)
def labelled(rng):
    x = whole(rng, 32)
    peers = x[:, None] & 3 == x & 3
    return [x, Gives(((peers * x).sum(1) * 64 + peers.sum(1)).astype(np.int32))]


@case("groups", grid=2, block=64)
def copied_together(rng):
    x = words(rng, 2, 256, dtype=np.int32)
    return [x, Gives(x[:, ::-1].copy())]


@case("groups", grid=1, block=32)
def shuffled(rng):
    x, t = normal(rng, 32, dtype=float), np.arange(32)
    up = np.where(t % 16 >= 3, t - 3, t)
    down = np.where(t % 8 + (t & 3) < 8, t + (t & 3), t)
    last = np.where(t < 20, x[t ^ 1], 0)
    return [x, Gives(np.array([x[t * 7 % 32], x[up], x[down], last])), Gives(None, np.zeros(32))]


# --- memory ---


@case(*MEMORY, grid=1, block=32)
def cache_hints(rng):
    x = normal(rng, 4, 32, 4)
    a = np.stack([x[i, :, i] for i in range(4)], 1)
    b = np.stack([x[3 - i, :, i] for i in range(4)], 1)
    return [x, Gives(np.stack([a, b]))]


@case(*MEMORY, grid=1, block=64)
def anywhere(rng):
    t, g = np.arange(64, dtype=np.int32), whole(rng, 64)
    own = np.where(t % 4 == 0, t, t % 4) + 40000
    y = np.choose(t % 3, [g + 20000, 100 + (t ^ 2) + 10000, own])
    return [Gives(np.where(t % 3, g, -t), g), Gives(y.astype(np.int32))]


@case(*MEMORY, grid=1, block=32)
def unaligned(rng):
    x = words(rng, 100, dtype=np.uint8)
    y = [int.from_bytes(x[3 * t : 3 * t + 4].tobytes(), "little") for t in range(32)]
    return [x, Gives(np.array(y, np.uint32))]


@case(*MEMORY, grid=1, block=64)
def pipelined_copy(rng):
    x = words(rng, 4, 64, 4)
    read = x.copy()
    read[2, :, 2:] = 0  # eight bytes of zeros instead
    return [x, Gives(read[:, ::-1, ::-1].copy())]


@case(*MEMORY, grid=1, block=64)
def scopes():
    x = np.array([2016, 63, 2016], np.int32)
    wide = np.append(np.uint64(0), np.arange(64, dtype=np.uint64))
    return [Gives(x), Gives(wide), Gives(np.float32([16])), Gives(np.float16([64, -64]))]


@case(*MEMORY, grid=1, block=30)
def constants():
    t = np.arange(30)
    names = np.array([list(b"one\0\0"), list(b"four\0")])
    first = np.array([1.25, -4e300])[t % 2] + names[t % 2, t % 5]
    return [Gives(first + np.array([1, 3])[t % 2] + np.array([1.5, -2, 65504])[t % 3])]


@case(*MEMORY, grid=1, block=(12, 12))
def bool_matrix(rng):
    a = rng.random((12, 12)) < 0.12
    b = a.copy()
    for k in range(12):
        b |= b[:, k : k + 1] & b[k]
    return [a, Gives(b, a), 12]
