"""A warp-specialised GEMM for Hopper in the builder: tensor maps, mbarriers, wgmma, a cluster.

D = A Bᵀ in bf16, sums in f32, whole tiles of 128×128×64. A warp brings tiles into a ring, two
warpgroups multiply them, D leaves through shared memory. The CTAs of a cluster lie above one
another and share B: each brings its part of it to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from ml_dtypes import bfloat16

from tilewright import mma
from tilewright.build import Traced, trace
from tilewright.layout import local_tile
from tilewright.mma import TensorMap
from tilewright.vm import Machine

M, N, K, GROUPS = 128, 128, 64, 2
ATOM = mma.MmaAtom("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16")
MMA = mma.TiledMma(ATOM, (GROUPS, 1, 1))
SHARED_A, SHARED_B = (mma.make_smem_layout("bf16", "K", (rows, K)) for rows in (M, N))
THREADS = 128 * GROUPS + 32
MAP = "bytes 128 align 64"
STEP = ATOM.shape_mnk[2] * 2 >> 4  # of a descriptor's start, from one part of K to the next


class Ring:
    """Where a thread stands in the ring of stages: the stage's number and its phase."""

    def __init__(self, k, stages: int, phase: int) -> None:
        self.k, self.stages = k, stages
        self.stage, self.phase = k.var("u32", 0), k.var("u32", phase)

    def advance(self) -> None:
        k = self.k
        k.add(self.stage, 1, into=self.stage)
        with k.if_(self.stage == self.stages):
            k.mov(0, into=self.stage)
            k.xor(self.phase, 1, into=self.phase)


@cache
def gemm(stages: int = 3, cluster: int = 1) -> Traced:
    """The kernel: maps of A, B and D, and how many tiles of K there are."""

    def kernel(k, map_a, map_b, map_d, steps) -> None:
        bytes_a, bytes_b = M * K * 2, N * K * 2
        a = k.dynamic_shared(stages * bytes_a, 1024).address()
        b = k.dynamic_shared(stages * bytes_b, 1024).address()
        out = k.dynamic_shared(M * N * 2, 1024).address()
        bars = k.dynamic_shared(16 * stages, 8, dtype="b64")
        full, empty = bars, bars + stages
        row, column = k.ctaid.x * M, k.ctaid.y * N
        with k.if_(k.tid.x == 0):
            for i in range(stages):
                k.mbarrier_init(full + i, 1)
                k.mbarrier_init(empty + i, GROUPS * cluster)
            k.fence_mbarrier_init()
        sync = k.cluster_sync if cluster > 1 else k.barrier
        sync()
        with k.if_(k.warpid == 4 * GROUPS):
            part = N // cluster
            rank = k.cluster_rank if cluster > 1 else 0
            lead, ring = k.elect(), Ring(k, stages, 1)
            for step in k.range(0, steps):
                bar = full + ring.stage
                k.mbarrier_wait(empty + ring.stage, ring.phase)
                with k.when(lead):
                    k.mbarrier_arrive(bar, bytes=bytes_a + bytes_b)
                    place = k.pointer("shared", "b8", a + ring.stage * bytes_a)
                    k.tma_load(place, map_a, (step * K, row), bar)
                    mine = b + ring.stage * bytes_b + rank * (part * K * 2)
                    place = k.pointer("shared", "b8", mine)
                    ctas = (1 << cluster) - 1 if cluster > 1 else None
                    k.tma_load(place, map_b, (step * K, column + rank * part), bar, ctas=ctas)
                ring.advance()
        with k.else_():
            group = k.warpid >> 2
            acc, ring = k.array("f32", 64, 0.0), Ring(k, stages, 0)
            rows = mma.make_smem_layout("bf16", "K", (64, K))
            first_a, first_b = (
                (start >> 4).to("u64") | _operand(tile)
                for start, tile in ((a + group * (64 * K * 2), rows), (b, SHARED_B))
            )
            for _ in k.range(0, steps):
                k.mbarrier_wait(full + ring.stage, ring.phase)
                k.wgmma_fence()
                at_a = first_a + (ring.stage * (bytes_a >> 4)).to("u64")
                at_b = first_b + (ring.stage * (bytes_b >> 4)).to("u64")
                for part in range(K // 16):
                    k.wgmma(ATOM.instruction, acc, at_a + part * STEP, at_b + part * STEP)
                k.wgmma_commit()
                k.wgmma_wait(0)
                for rank in range(cluster):
                    with k.when((k.tid.x & 127) == 0):
                        k.mbarrier_arrive(empty + ring.stage, rank=rank if cluster > 1 else None)
                ring.advance()
            lane, warp = k.laneid, k.warpid & 3
            first = (group * 64 + warp * 16 + (lane >> 2)) * N + (lane & 3) * 2
            for i in range(0, 64, 2):
                pair = k.emit("cvt.rn.bf16x2.f32", acc[i + 1], acc[i])
                place = out + (first + (i // 2 % 2 * 8 * N + i // 4 * 8)) * 2
                k.emit("st.shared.b32", k.pointer("shared", "b32", place), pair)
            k.fence_async()
            k.barrier(1, 128 * GROUPS)
            with k.when(k.tid.x == 0):
                k.tma_store(map_d, (column, row), k.pointer("shared", "b8", out))
                k.bulk_commit()
                k.bulk_wait(0)
        if cluster > 1:
            k.cluster_sync()

    params = {"map_a": MAP, "map_b": MAP, "map_d": MAP, "steps": "u32"}
    return trace(kernel, name="gemm", params=params, block=THREADS)


def given(m: int, n: int, depth: int) -> list[np.ndarray]:
    """A (m, depth), B (n, depth) and a D (m, n) that is poisoned."""
    rng = np.random.default_rng(m + n + depth)
    a, b = (rng.standard_normal((rows, depth)).astype(bfloat16) for rows in (m, n))
    return [a, b, np.full((m, n), np.nan, bfloat16)]


def arguments(places: Sequence[int], m: int, n: int, depth: int, cluster: int = 1) -> list:
    """The kernel's arguments for A, B and D at these addresses."""
    a, b, d = places
    tiles = (((a, m), M), ((b, n), N // cluster))
    loaded = [
        TensorMap.tiled(at, "bf16", (depth, rows), (depth * 2,), (K, box), swizzle=128)
        for (at, rows), box in tiles
    ]
    stored = TensorMap.tiled(d, "bf16", (n, m), (n * 2,), (N, M))
    return [*(each.encode() for each in (*loaded, stored)), depth // K]


def on_machine(ptx: str, size: tuple[int, int, int], stages: int, cluster: int, seed: int):
    """D, as the virtual machine makes it."""
    machine, (m, n, _) = Machine(seed=seed), size
    arrays = given(*size)
    places = [machine.upload(x) for x in arrays]
    machine.load(ptx)
    shared, grid = gemm(stages, cluster).dynamic_shared, (m // M, n // N)
    values = arguments(places, *size, cluster)
    machine.launch("gemm", grid, THREADS, values, shared=shared, cluster=cluster)
    return machine.download(places[2], arrays[2])


def _operand(tile) -> int:
    """The descriptor's word of the first 16 columns of a tile, its start left out."""
    return mma.make_descriptor(local_tile(tile, (tile.shape[0], 16), (0, 0)), "bf16").bits
