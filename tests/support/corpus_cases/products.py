"""The corpus's table: products and neighbours."""

from __future__ import annotations

import numpy as np

from corpus_cases.table import Gives, case, whole, words

MATMUL = ("matmul", "matmul_sm_75")
F32, F16 = np.float32, np.float16

# --- matmul ---


@case(*MATMUL, grid=(2, 3), block=(32, 8))
def transpose(rng):
    x = words(rng, 70, 50)
    return [50, 70, x, Gives(x.T.copy())]


@case(*MATMUL, grid=(2, 2), block=(16, 8))
def naive(rng):
    a, b = whole(rng, 15, 20, dtype=F32), whole(rng, 20, 30, dtype=F32)
    return [15, 30, 20, a, b, Gives(a @ b)]


@case(*MATMUL, grid=(3, 2), block=(8, 8))
def tiled(rng):
    a, b = whole(rng, 16, 32, dtype=float), whole(rng, 32, 24, dtype=float)
    return [24, 32, a, b, Gives(a @ b)]


@case(*MATMUL, grid=(2, 1), block=64)
def register_blocked(rng):
    a, b = whole(rng, 64, 24, dtype=F32), whole(rng, 24, 128, dtype=F32)
    return [128, 24, a, b, Gives(a @ b)]


@case(*MATMUL, grid=(2, 3), block=32)
def dot_bytes(rng):
    a, b = words(rng, 3, 20, dtype=np.int8), words(rng, 50, 20, dtype=np.int8)
    first = a.astype(np.int32) @ b.T.astype(np.int32)
    # dp2a: the words' halves of a by the low or high two bytes of b.
    low = _halves(a) @ b.reshape(50, 5, 4)[:, :, :2].reshape(50, 10).T.astype(np.int32)
    high = _halves(a[0]) @ b[:5].reshape(25, 4)[:5, 2:].reshape(10).astype(np.int32)
    return [50, 5, a, b, Gives(np.concatenate([first, first + low + high]))]


def _halves(a):
    return a.view(np.int16).astype(np.int32)


@case(*MATMUL, grid=(2, 2), block=32)
def wmma_f16(rng):
    a, b = whole(rng, 2, 32, 48, dtype=F16)
    return [32, 48, a, b, Gives(2 * (a.astype(F32) @ b.T.astype(F32) + 1))]


@case(*MATMUL, grid=1, block=32)
def wmma_s8(rng):
    a, b = words(rng, 16, 32, dtype=np.int8), words(rng, 16, 8, dtype=np.int8)
    return wmma_operands(a, b, whole(rng, 8, 32))


def wmma_operands(a, b, c):
    """A by columns, B by rows 16 apart, C by columns."""
    padded = np.zeros((16, 16), np.int8)
    padded[:, :8] = b
    return [a, padded, Gives(b.T.astype(np.int32) @ a.astype(np.int32) + c, c)]


@case("matmul", grid=(1, 2), block=128)
def pipelined(rng):
    a, b = whole(rng, 128, 160, low=-3, high=4, dtype=F16), whole(rng, 64, 160, dtype=F16)
    return [64, 160, a, b, Gives((a.astype(F32) @ b.T.astype(F32)).astype(F16))]


@case("matmul", grid=1, block=32)
def mma_f64(rng):
    a, b = whole(rng, 8, 4, dtype=float), whole(rng, 8, 4, dtype=float)
    return [a, b, Gives(a @ b.T)]


@case("matmul", grid=1, block=32)
def mma_b1(rng):
    a, b = words(rng, 16, 4), words(rng, 8, 4)
    return [a, b, Gives(np.bitwise_count(a[:, None] ^ b).sum(2).astype(np.int32))]


# --- stencil ---


@case("stencil", grid=3, block=64, shared=280)
def stencil_1d(rng):
    x, weights = whole(rng, 150, dtype=F32), [1, -2, 3, -4, 3, -2, 1]
    return [150, x, Gives(np.convolve(x, weights, "same").astype(F32))]


@case("stencil", grid=(2, 2), block=(16, 8))
def heat_2d(rng):
    x = whole(rng, 14, 30, dtype=float)
    y = x.copy()
    y[1:-1, 1:-1] = (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]) / 4
    return [30, 14, x, Gives(y)]


@case("stencil", grid=(2, 2), block=(8, 8))
def laplace_3d(rng):
    x = whole(rng, 6, 12, 10, dtype=F32)
    y, inner = np.zeros_like(x), (slice(1, -1),) * 3
    y[inner] = sum(np.roll(x, d, axis)[inner] for axis in range(3) for d in (1, -1)) - 6 * x[inner]
    return [10, 12, 6, x, Gives(y)]


@case("stencil", grid=(2, 1), block=(16, 16))
def blur(rng):
    x = words(rng, 13, 20, 3, dtype=np.uint8)
    wide, k = np.pad(x, ((1, 1), (1, 1), (0, 0)), "edge").astype(int), (1, 2, 1)
    sums = sum(k[v] * k[u] * wide[v : v + 13, u : u + 20] for v in range(3) for u in range(3))
    return [20, 13, x, Gives(((sums + 8) // 16).astype(np.uint8))]


@case("stencil", grid=(3, 2), block=64)
def convolution(rng):
    x, f = whole(rng, 2, 4, 9, 9, dtype=F32), whole(rng, 3, 4, 3, 3, dtype=F32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return [4, 9, x, f, Gives(np.einsum("ncjivu,kcvu->nkji", windows, f))]


@case("stencil", grid=2, block=32)
def life(rng):
    cells = rng.integers(0, 2, (50, 32), np.uint8)
    turned = [np.roll(cells, (v, u), (0, 1)) for v in (-1, 0, 1) for u in (-1, 0, 1)]
    near = sum(t.astype(int) for t in turned) - cells
    after = (near == 3) | ((near == 2) & (cells == 1))
    x, y = (np.packbits(c, axis=1, bitorder="little").view(np.uint32) for c in (cells, after))
    return [50, x, Gives(y)]


@case("stencil", grid=1, block=4)
def initialised():
    offsets = np.array([-1, 1, 1 << 16, -(1 << 16)], np.int32)
    return [Gives(offsets + offsets[[2, 3, 0, 1]])]


@case("stencil", grid=16, block=128)
def mandelbrot():
    at = np.arange(2048)
    cx, cy = at % 64 * 0.03125 - 2, at // 64 * 0.0625 - 1
    u, v, n = np.zeros(2048), np.zeros(2048), np.zeros(2048, np.int16)
    for _ in range(40):
        inside = u * u + v * v <= 4
        n += inside
        u, v = np.where(inside, (u * u - v * v + cx, 2 * u * v + cy), (u, v))
    return [64, 40, Gives(n)]
