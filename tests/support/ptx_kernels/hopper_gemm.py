"""A warp-specialised GEMM for Hopper in the builder: tensor maps, mbarriers, wgmma, a cluster.

D = A Bᵀ in bf16, sums in f32, whole tiles of 128×128×64. A warp brings tiles into a ring, two
warpgroups multiply them, D leaves through shared memory. The CTAs of a cluster lie above one
another and share B: each brings its part of it to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from ml_dtypes import bfloat16

from tilewright import mma
from tilewright.builder import Builder, Pointer, Traced, trace
from tilewright.layout import local_tile
from tilewright.mma import TensorMap
from tilewright.ptx import Module
from tilewright.vm import Machine

M, N, K, GROUPS = 128, 128, 64, 2
ATOM = mma.MmaAtom("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16")
SHARED_B = mma.make_smem_layout("bf16", "K", (N, K))
THREADS = 128 * GROUPS + 32
MAP = "bytes 128 align 64"
BYTES_A, BYTES_B = M * K * 2, N * K * 2  # of a stage
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


@dataclass
class Shared:
    """Where the stages of A and B, D's tile and the mbarriers begin in shared memory."""

    k: Builder
    stages: int

    def __post_init__(self) -> None:
        k = self.k
        self.a = k.dynamic_shared(self.stages * BYTES_A, 1024).address()
        self.b = k.dynamic_shared(self.stages * BYTES_B, 1024).address()
        self.d = k.dynamic_shared(M * N * 2, 1024).address()
        self.full = k.dynamic_shared(16 * self.stages, 8, dtype="b64")
        self.empty = self.full + self.stages

    def at(self, address) -> Pointer:
        return self.k.pointer("shared", "b8", address)


@cache
def gemm(stages: int = 3, cluster: int = 1) -> Traced:
    """The kernel: maps of A, B and D, and how many tiles of K there are."""

    def kernel(k, map_a, map_b, map_d, steps) -> None:
        shared = Shared(k, stages)
        row, column = k.ctaid.x * M, k.ctaid.y * N
        with k.if_(k.tid.x == 0):
            for i in range(stages):
                k.mbarrier_init(shared.full + i, 1)
                k.mbarrier_init(shared.empty + i, GROUPS * cluster)
            k.fence_mbarrier_init()
        sync = k.cluster_sync if cluster > 1 else k.barrier
        sync()
        with k.if_(k.warpid == 4 * GROUPS):
            _produce(shared, cluster, (map_a, row), (map_b, column), steps)
        with k.else_():
            _store(shared, _consume(shared, cluster, steps), map_d, (column, row))
        if cluster > 1:
            k.cluster_sync()

    params = {"map_a": MAP, "map_b": MAP, "map_d": MAP, "steps": "u32"}
    return trace(kernel, name="gemm", params=params, block=THREADS)


def _produce(shared: Shared, cluster: int, a, b, steps) -> None:
    """A warp brings A's tile and this CTA's part of B's, step by step of K."""
    k, (map_a, row), (map_b, column) = shared.k, a, b
    part = N // cluster
    rank, ctas = (k.cluster_rank, (1 << cluster) - 1) if cluster > 1 else (0, None)
    lead, ring = k.elect(), Ring(k, shared.stages, 1)
    for step in k.range(0, steps):
        bar = shared.full + ring.stage
        k.mbarrier_wait(shared.empty + ring.stage, ring.phase)
        with k.when(lead):
            k.mbarrier_arrive(bar, bytes=BYTES_A + BYTES_B)
            k.tma_load(shared.at(shared.a + ring.stage * BYTES_A), map_a, (step * K, row), bar)
            place = shared.at(shared.b + ring.stage * BYTES_B + rank * (part * K * 2))
            k.tma_load(place, map_b, (step * K, column + rank * part), bar, multicast_mask=ctas)
        ring.advance()


def _consume(shared: Shared, cluster: int, steps):
    """A warpgroup multiplies its rows of each stage and frees it for all that fill it."""
    k = shared.k
    start = shared.a + (k.warpid >> 2) * (64 * K * 2)
    rows = mma.make_smem_layout("bf16", "K", (64, K))
    acc, ring = k.array("f32", 64, 0.0), Ring(k, shared.stages, 0)
    first_a, first_b = (
        (address >> 4).to("u64") | _operand(tile)
        for address, tile in ((start, rows), (shared.b, SHARED_B))
    )
    for _ in k.range(0, steps):
        k.mbarrier_wait(shared.full + ring.stage, ring.phase)
        k.wgmma_fence()
        at_a = first_a + (ring.stage * (BYTES_A >> 4)).to("u64")
        at_b = first_b + (ring.stage * (BYTES_B >> 4)).to("u64")
        for part in range(K // 16):
            k.wgmma(ATOM.instruction, acc, at_a + part * STEP, at_b + part * STEP)
        k.wgmma_commit()
        k.wgmma_wait(0)
        for rank in range(cluster):
            with k.when((k.tid.x & 127) == 0):
                k.mbarrier_arrive(shared.empty + ring.stage, rank=rank if cluster > 1 else None)
        ring.advance()
    return acc


def _store(shared: Shared, acc, map_d, place) -> None:
    """D leaves: registers, shared memory, a copy of the tile."""
    k = shared.k
    row = (k.warpid >> 2) * 64 + (k.warpid & 3) * 16 + (k.laneid >> 2)
    first = row * N + (k.laneid & 3) * 2
    for i in range(0, 64, 2):
        pair = k.emit("cvt.rn.bf16x2.f32", acc[i + 1], acc[i])
        at = shared.d + (first + (i // 2 % 2 * 8 * N + i // 4 * 8)) * 2
        k.emit("st.shared.b32", k.pointer("shared", "b32", at), pair)
    k.fence_async()
    k.barrier(1, 128 * GROUPS)
    with k.when(k.tid.x == 0):
        k.tma_store(map_d, place, shared.at(shared.d))
        k.bulk_commit()
        k.bulk_wait(0)


def random_matrices(m: int, n: int, depth: int) -> list[np.ndarray]:
    """A (m, depth), B (n, depth) and D (m, n), which is all NaN."""
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


def on_machine(
    ptx: str | Module,
    size: tuple[int, int, int],
    stages: int,
    cluster: int,
    seed: int,
    **how: object,
):
    """D, as the virtual machine makes it."""
    machine, (m, n, _) = Machine(seed=seed, **how), size
    arrays = random_matrices(*size)
    places = [machine.upload(x) for x in arrays]
    machine.load(ptx)
    shared, grid = gemm(stages, cluster).dynamic_shared, (m // M, n // N)
    values = arguments(places, *size, cluster)
    machine.launch("gemm", grid, THREADS, values, shared=shared, cluster=cluster)
    return machine.download(places[2], arrays[2])


def _operand(tile) -> int:
    """The descriptor's word of the first 16 columns of a tile, its start left out."""
    return mma.make_descriptor(local_tile(tile, (tile.shape[0], 16), (0, 0)), "bf16").bits
