"""The second kernel of a GEMM that was cut along K: D = α Σ parts + β C, in the order of K.

The parts of a tile lie in a workspace as the tile lies in D, line after line. A CTA takes some
lines of a tile; a thread four neighbours of a line at a time. It does not let the next
kernel begin early, as others do: that one's CTAs would take SMs as they get free, and neighbours
in D, who ask the L2 for the same lines at once, would no longer stand side by side.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from ...builder import Builder, Traced, trace
from ...dtypes import dtype
from ...target import DeviceSpec
from ..kernel_launch import KernelArguments, LaunchShape, MatrixStrides
from ..kernel_scalars import global_pointer, scalar
from ..problem import Problem
from .tile_scheduler import tile_coordinates
from .tma_config import TmaConfig

THREADS = 256
CTAS = 4  # on an SM at least: leaves registers for all loads at once
VECTOR = 4  # sums that a thread loads at once
SHARED_UNIT = 128  # bytes: shared memory is handed out so
TOGETHER = 8  # loads of a thread that are under way at once
PARAMETERS = {
    "w": "u64", "c": "u64", "d": "u64", "ldc": "u64", "ldd": "u64", "apart_c": "u64",
    "apart_d": "u64", "m": "u32", "n": "u32", "whole": "u32", "batches": "u32",
    "alpha": "f32", "beta": "f32", "alpha_ptr": "u64", "beta_ptr": "u64",
}  # fmt: skip


def tile_of(config: TmaConfig) -> tuple[int, int]:
    """Rows and columns of D in a tile."""
    bm, bn, _ = config.tile
    return (bn, bm) if config.swap else (bm, bn)


def workspace_bytes(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """Bytes for the parts."""
    return _cut(problem, config, device) * config.split * config.tile[0] * config.tile[1] * 4


def _cut(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """Tiles of which there are parts."""
    return (config.cluster_tiles(problem) - config.unsplit_tiles(problem, device)) * config.ctas


def _chunks(config: TmaConfig) -> int:
    """CTAs of a tile."""
    return -(-config.tile[0] * config.tile[1] // (THREADS * VECTOR))


def launch_shape(problem: Problem, config: TmaConfig, device: DeviceSpec) -> LaunchShape:
    """The launch: some CTAs for each tile that was cut, as many on one SM as on another. The SMs
    that the first kernel leaves first would take more, but for shared memory.
    """
    ctas, limits, unused = _cut(problem, config, device) * _chunks(config), device.limits, 0
    together = -(-ctas // device.sms)
    if together < CTAS:
        share = limits.shared_per_sm // together - limits.shared_reserved
        unused = min(share, limits.shared_per_block) & -SHARED_UNIT
    return LaunchShape((ctas, 1, 1), (THREADS, 1, 1), None, True, unused)


def kernel_arguments(
    problem: Problem, config: TmaConfig, lines: dict[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The kernel's parameters for D and C that lie so."""
    values = {
        "m": problem.m, "n": problem.n, "batches": problem.batch,
        "whole": config.unsplit_tiles(problem, device),
    }  # fmt: skip
    for name in "cd":
        if name in lines:
            values |= {f"ld{name}": lines[name].leading, f"apart_{name}": lines[name].apart}
    places = {"a": (), "b": (), "c": ("c",), "d": ("d",), "w": ("w",)}
    return KernelArguments.of(PARAMETERS, values, places)


def build(problem: Problem, config: TmaConfig) -> Traced:
    """The kernel; sizes don't matter to it, only whether there are several matrices."""
    return _build(replace(problem, m=1, n=1, k=1, batch=min(problem.batch, 2)), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: TmaConfig) -> Traced:
    rows, columns = tile_of(config)
    name = f"gemm_finish_{problem.d}_{rows}x{columns}_{config.split}"

    def kernel(
        k: Any, w: Any, c: Any, d: Any, ldc: Any, ldd: Any, apart_c: Any, apart_d: Any,
        m: Any, n: Any, whole: Any, batches: Any,
        alpha: Any, beta: Any, alpha_ptr: Any, beta_ptr: Any,
    ) -> None:  # fmt: skip
        body = SplitKReduction(k, problem, config, (m, n))
        body.begin(global_pointer(k, w), whole)
        k.wait_on_dependent_grids()
        scale = scalar(k, alpha, alpha_ptr), scalar(k, beta, beta_ptr)
        outputs = (global_pointer(k, d), ldd, apart_d), (global_pointer(k, c), ldc, apart_c)
        body.run(outputs, scale)

    shape = {"block": THREADS, "min_ctas": CTAS}
    return trace(kernel, name=name, params=PARAMETERS, lines=False, **shape)


class SplitKReduction:
    """The kernel's parts."""

    def __init__(self, k: Builder, problem: Problem, config: TmaConfig, limits: Any) -> None:
        self.k, self.problem, self.config, self.limits = k, problem, config, limits
        self.type, self.size = dtype(problem.d), prod(tile_of(config))

    def begin(self, w: Any, whole: Any) -> None:
        """This thread's vector: where the first part of it lies, its place in D, if it exists."""
        k, config = self.k, self.config
        columns, chunks = tile_of(config)[1], _chunks(config)
        number, chunk = k.ctaid.x // chunks, k.ctaid.x % chunks
        piece, rank = number // config.ctas, number % config.ctas
        row, column, batch = self._corner(whole + piece, rank)
        base = (piece * (config.split * config.ctas) + rank).to("u64") * self.size
        vector = chunk * THREADS + k.tid.x
        self.inside = vector < self.size // VECTOR
        vector = k.select(self.inside, vector, 0)
        line, along = vector // (columns // VECTOR), vector % (columns // VECTOR) * VECTOR
        self.parts = w.cast(self.problem.accumulator_type).aligned(16) + (
            base + (vector * VECTOR).to("u64")
        )
        self.place = row + line, column + along, batch

    def run(self, outputs: Any, scale: Any) -> None:
        """Add up, and write."""
        self.alpha, self.beta = scale
        sums = self._sum(self.parts, self.config.ctas * self.size)
        exists = self.inside & (self.place[0] < self.limits[0])
        self._write(sums, self.place, exists, outputs)

    def _corner(self, piece: Any, rank: Any) -> tuple[Any, Any, Any]:
        """Where a CTA's tile of a piece begins in D, and in which of a stack."""
        k, config = self.k, self.config
        (bm, bn, _), (cm, cn) = config.tile, config.cluster
        m, n = self.limits[::-1] if config.swap else self.limits
        down, across = (m + (bm * cm - 1)) // (bm * cm), (n + (bn * cn - 1)) // (bn * cn)
        batch = None
        if self.problem.batched:
            batch, piece = piece // (down * across), piece % (down * across)
        row, column = tile_coordinates(k, piece, down, across, config.group)
        corner = (row * cm + rank % cm) * bm, (column * cn + rank // cm) * bn
        return (*(corner[::-1] if config.swap else corner), batch)

    def _sum(self, parts: Any, apart: int) -> list[Any]:
        """The first part and the others, one after another, so many sums apart."""
        total: list[Any] = []
        for first in range(0, self.config.split, TOGETHER):
            count = min(TOGETHER, self.config.split - first)
            loaded = [
                parts.add_bytes((first + i) * apart * 4).aligned(16).load(VECTOR)
                for i in range(count)
            ]
            for values in loaded:
                total = [a + b for a, b in zip(total, values, strict=True)] if total else [*values]
        return total

    def _write(self, sums: list[Any], place_: Any, inside: Any, outputs: Any) -> None:
        k, p = self.k, self.problem
        _, column, _ = place_
        whole = p.accumulator_type == "s32"
        values = sums if whole else [self.alpha * v for v in sums]
        (d, ldd, apart_d), (c, ldc, apart_c) = outputs
        there = self._at(d, ldd, apart_d, place_)
        before = self._at(c, ldc, apart_c, place_) if p.with_c else None
        size = self.type.bits // 8
        together = VECTOR if p.align_d >= VECTOR * size else 1  # lines' ends are as well aligned
        for first in range(0, VECTOR, together):
            with k.if_(inside & (column + first < self.limits[1])):
                made = []
                for i in range(first, first + together):
                    result = values[i]
                    if before is not None:
                        result = k.var(values[i])
                        with k.if_(self.beta != 0.0):
                            old = before[i]
                            old = old if old.dtype.name in ("f32", "s32") else old.to("f32")
                            total = result + old if whole else k.fma(self.beta, old, result)
                            result.set(total)
                    t = self.type.name
                    made.append(result if t in ("f32", "s32") else result.to(t))
                there.aligned(together * size).store(made, index=first)

    def _at(self, pointer: Any, leading: Any, apart: Any, place_: Any) -> Any:
        row, column, batch = place_
        offset = row.to("u64") * leading + column.to("u64")
        if batch is not None:
            offset = offset + batch.to("u64") * apart
        return pointer.cast(self.type) + offset
