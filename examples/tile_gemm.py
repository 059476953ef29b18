"""D = A·Bᵀ by tiles: cp.async to swizzled shared memory, ldmatrix, mma.sync; no raw addresses.

python examples/tile_gemm.py [vm|cuda]
"""

import sys

import numpy as np

import tilewright
from tilewright import mma
from tilewright.builder import ptr
from tilewright.layout import Layout, LayoutRight, local_tile, make_fragment_like, make_tensor

TILE = 64, 64, 64
MMA = mma.make_tiled_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (2, 2), (32, 32))
CHUNK = mma.CopyAtom(mma.CpAsync(16), "f16")
FETCH = mma.make_tiled_copy(CHUNK, Layout((16, 8), (8, 1)), Layout((1, 8)))
MATRIX = mma.CopyAtom("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "f16")
LOADS = mma.make_tiled_copy_A(MATRIX, MMA), mma.make_tiled_copy_B(MATRIX, MMA)
SHARED = mma.make_smem_layout("f16", "K", TILE[1:])
F16, F32 = ptr("f16", align=16), ptr("f32", align=16)


@tilewright.kernel(block=MMA.size)
def tile_gemm(k, a: F16, b: F16, d: F32, *, shape):
    """A CTA for each tile of D; A (M, K) and B (N, K) row-major, multiples of a tile."""
    m, n, depth = shape
    given = (a, (m, depth), (1, None, 1)), (b, (n, depth), (None, 1, 1)), (d, (m, n), (1, 1, None))
    cta, thread = (k.ctaid.x, k.ctaid.y, None), MMA.thr_slice(k.tid.x)
    sources = [local_tile(make_tensor(p, s, LayoutRight), TILE, cta, proj) for p, s, proj in given]
    out = thread.partition_C(sources.pop())
    shared = [k.make_smem_tensor(SHARED, "f16") for _ in sources]
    parts = thread.partition_A(shared[0]), thread.partition_B(shared[1])
    fragments, acc = [make_fragment_like(p) for p in parts], make_fragment_like(out)
    fetch = FETCH.thr_slice(k.tid.x)
    k.clear(acc)
    for step in k.range(depth // TILE[2]):
        for source, tile in zip(sources, shared, strict=True):
            k.copy(FETCH, fetch.partition_S(source[None, None, step]), fetch.partition_D(tile))
        k.cp_async_commit()
        k.cp_async_wait()
        k.barrier()
        for load, tile, fragment in zip(LOADS, shared, fragments, strict=True):
            lane = load.thr_slice(k.tid.x)
            k.copy(load, lane.partition_S(tile), lane.retile(fragment))
        k.gemm(MMA, *fragments, acc)
        k.barrier()
    k.copy(acc, out)


def main(device: str | None = None) -> None:
    m, n, depth = shape = 128, 192, 256
    a, b = np.split(np.random.default_rng(0).standard_normal((m + n, depth)).astype("f2"), [m])
    d = np.empty((m, n), np.float32)
    tile_gemm[(m // TILE[0], n // TILE[1]), MMA.size](a, b, d, shape=shape, device=device)
    error = np.abs(d - a.astype(float) @ b.T.astype(float)).max()
    print(f"{m}×{n}×{depth}: largest error {error:.2g}", "ok" if error < 1e-3 else "WRONG")


if __name__ == "__main__":
    main(*sys.argv[1:])
