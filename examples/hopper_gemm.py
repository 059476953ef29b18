"""D = A·Bᵀ on Hopper: TMA, a pipeline of stages, wgmma, multicast in a cluster; no raw addresses.

A CTA computes a tile of D: a producer warp loads tiles of A and B, two warpgroups multiply them.
Each of a cluster's two CTAs loads half of B for both.  python examples/hopper_gemm.py [vm|cuda]
"""

import sys

import numpy as np
from ml_dtypes import bfloat16

import tilewright
from tilewright import mma
from tilewright.builder import PipelineTmaAsync, ptr, tensor_map
from tilewright.layout import LayoutRight, local_tile, make_tensor

M, N, K = 128, 128, 64
STAGES, CTAS = 4, 2  # of the pipeline, of a cluster
PART = N // CTAS  # rows of B that a CTA loads
BYTES = (M + N) * K * 2  # of a stage
MMA = mma.make_tiled_mma("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", (2, 1, 1))
SHARED = [mma.make_smem_layout("bf16", "K", (rows, K, STAGES)) for rows in (M, N)]


@tilewright.kernel(block=MMA.size + 32, cluster=CTAS)
def hopper_gemm(k, a: tensor_map, b: tensor_map, d: ptr("bf16", align=16), *, shape):
    """A (M, K), B (N, K), D (M, N) row-major, whole tiles; m / M is a multiple of CTAS."""
    m, n, depth = shape
    stages = [k.make_smem_tensor(layout, "bf16", dynamic=True) for layout in SHARED]
    pipeline = PipelineTmaAsync(k, STAGES, consumer_arrivals=MMA.size // 128 * CTAS)
    with k.if_(k.tid.x == 0):
        pipeline.init()
        k.fence_mbarrier_init()
    k.cluster_sync()
    with k.if_(k.warpid == MMA.size // 32):
        with k.if_(k.elect()):
            produce(k, pipeline, stages, (a, b), depth // K)
        k.syncwarp()
    with k.else_():
        acc = consume(k, pipeline, stages, depth // K)
        tile = local_tile(make_tensor(d, (m, n), LayoutRight), (M, N), (k.ctaid.x, k.ctaid.y))
        k.copy(acc, MMA.thr_slice(k.tid.x).partition_C(tile))
    k.cluster_sync()  # no CTA exits while the other one copies to it


def produce(k, pipeline, stages, maps, steps):
    """Producer, one thread: load A's tile and a part of B's for each k-tile."""
    at = pipeline.make_producer_state()
    row, column, part = k.ctaid.x * M, k.ctaid.y * N, k.cluster_rank * PART
    for step in k.range(steps):
        pipeline.producer_acquire(at)
        full = pipeline.producer_expect_transaction(at, BYTES)
        a, b = (tile[None, None, at.stage] for tile in stages)
        k.tma_load(a, maps[0], (step * K, row), full)
        half = local_tile(b, (PART, K), (k.cluster_rank, 0))
        k.tma_load(half, maps[1], (step * K, column + part), full, multicast_mask=(1 << CTAS) - 1)
        at.advance()


def consume(k, pipeline, stages, steps):
    """Consumer warpgroup: multiply its rows of each stage, then release it in all CTAs."""
    thread = MMA.thr_slice(k.shfl("idx", k.warpid >> 2, 0) * 128)  # warp-uniform
    a = k.make_fragment_A(thread.partition_A(stages[0]))
    b = k.make_fragment_B(thread.partition_B(stages[1]))
    acc = k.make_rmem_tensor(MMA.partition_shape_C((M, N)), "f32")
    at, lane = pipeline.make_consumer_state(), k.tid.x & 127
    for step in k.range(steps):
        pipeline.consumer_wait(at)
        k.wgmma_fence()
        left, right = (t[None, None, None, at.stage] for t in (a, b))
        k.gemm(MMA, left, right, acc, accumulate=step != 0)
        k.wgmma_commit()
        k.wgmma_wait()
        with k.when(lane < CTAS):
            pipeline.consumer_release(at.stage, rank=lane)
        at.advance()
    return acc


def multiply(a, b, d, device=None):
    maps = [tilewright.tensor_map(x, (rows, K), swizzle=128) for x, rows in ((a, M), (b, PART))]
    (m, n), depth = d.shape, a.shape[1]
    hopper_gemm[(m // M, n // N), None](*maps, d, shape=(m, n, depth), device=device)


if __name__ == "__main__":
    a, b = np.random.default_rng(0).standard_normal((2, 256, 448)).astype(bfloat16)
    multiply(a, b, d := np.empty((256, 256), bfloat16), *sys.argv[1:])
    error = np.abs(d - a.astype(float) @ b.T.astype(float)).max()
    print(f"largest error {error:.2g} of {np.abs(d).max()}", "ok" if error < 0.5 else "WRONG")
