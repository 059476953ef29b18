"""Rows that a persistent CTA processes one after another, from a ring of rows in shared memory.

CTA i has rows i, i + G, i + 2G, … of a grid of G. Bulk copies fill the ring ahead of the row in
registers, so that memory is read while rows are reduced and stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..builder import Builder, Pointer, Reg
from ..target import DeviceSpec
from .matrix_row import KeptVector, MatrixRow, RowLayout

_SHARED = 200 * 1024  # bytes of an SM for rings
_MOST = 6
_LEAST_ROWS = 4  # of a CTA
_VECTOR = 16  # bytes
_BULK_COPIES = 90  # the first architecture that has them
THREADS: dict[str, int] = {}
"""The least threads of a CTA for each kernel that is faster with a ring, by its name."""


def with_ring(
    name: str, layout: RowLayout, rows: int, itemsize: int, spec: DeviceSpec
) -> RowLayout:
    """The layout with as many rows in a ring as shared memory has room for: if the kernel is faster
    so, the device copies in bulk, the rows are vectors of 16 bytes and there are enough of them.
    """
    fits = layout.resident and layout.width * itemsize == _VECTOR and not layout.strided
    if name not in THREADS or not fits or spec.target.number < _BULK_COPIES:
        return layout
    ringed = layout
    while ringed.threads < THREADS[name] and ringed.vectors % 2 == 0:
        ringed = replace(ringed, threads=2 * ringed.threads, vectors=ringed.vectors // 2)
    size = ringed.width * ringed.vectors * ringed.threads * itemsize
    count = min(_MOST, _SHARED // (size * ringed.min_ctas))
    enough = rows >= _LEAST_ROWS * ringed.min_ctas * spec.sms
    return replace(ringed, ring=count) if enough and count > 1 and ringed.rows == 1 else layout


def matrix_rows(
    k: Builder, layout: RowLayout, rows: Reg, columns: Reg, x: Pointer, row_stride: Reg,
    stride: Reg,
) -> Iterator[MatrixRow]:  # fmt: skip
    """The rows of a CTA: one, or with a ring several, in a loop on the device."""
    if not layout.ring:
        yield MatrixRow(k, layout, rows, columns, x, row_stride, stride)
        return
    ring = _RowRing(k, layout, rows, columns, x, row_stride)
    for index in k.range(k.ctaid.x, rows, k.nctaid.x, unroll=False):
        staged = ring.wait(index)
        yield MatrixRow(k, layout, rows, columns, x, row_stride, stride, staged)
        staged.release()
        ring.advance()


def kept(k: Builder, layout: RowLayout, columns: Reg, vector: Pointer) -> Pointer | KeptVector:
    """A vector of a row's length for ``MatrixRow.map``: with a ring, and 16 bits an element, it is
    loaded once.
    """
    small = layout.ring and vector.size == 2
    return KeptVector(k, layout, columns, vector) if small else vector


class _RowRing:
    """The ring; one thread issues the copies."""

    def __init__(
        self, k: Builder, layout: RowLayout, rows: Reg, columns: Reg, x: Pointer, row_stride: Reg
    ) -> None:
        self.k, self.rows, self.columns, self.x, self.row_stride = k, rows, columns, x, row_stride
        self.count, self.pitch = layout.ring, layout.width * layout.vectors * layout.threads
        self.memory = k.dynamic_shared(self.count * self.pitch * x.size, 128, dtype=x.dtype)
        self.full = k.dynamic_shared(8 * self.count, 8, dtype="b64")
        self.stage, self.phase = k.var("u32", 0), k.var("u32", 0)
        with k.if_(k.thread == 0):
            for i in range(self.count):
                k.mbarrier_init(self.full + i, 1)
            k.fence_mbarrier_init()
            for i in range(self.count):
                self._load(k.ctaid.x + k.nctaid.x * i, i)
        k.barrier()

    def _load(self, row: Any, stage: Any) -> None:
        """Copy a row if it exists; called by one thread."""
        k = self.k
        with k.if_(row < self.rows):
            size = self.columns * self.x.size
            k.mbarrier_arrive(self.full + stage, bytes=size)
            source = self.x + row.to("s64") * self.row_stride
            k.bulk_load(self.memory + stage * self.pitch, source, size, self.full + stage)

    def wait(self, index: Reg) -> _StagedRow:
        """The next row, once it is in shared memory."""
        self.k.mbarrier_wait(self.full + self.stage, self.phase)
        return _StagedRow(self, index)

    def refill(self, index: Reg) -> None:
        """Copy a later row in place of that of this index."""
        k = self.k
        with k.if_(k.thread == 0):
            self._load(index + k.nctaid.x * self.count, self.stage)

    def advance(self) -> None:
        """Go to the next stage."""
        k = self.k
        k.add(self.stage, 1, into=self.stage)
        with k.when(self.stage == self.count):
            k.mov(0, into=self.stage)
            k.xor(self.phase, 1, into=self.phase)


class _StagedRow:
    def __init__(self, ring: _RowRing, index: Reg) -> None:
        self.ring, self.index, self._released = ring, index, False
        self.memory = ring.memory + ring.stage * ring.pitch

    def release(self) -> None:
        if not self._released:
            self._released = True
            self.ring.refill(self.index)
