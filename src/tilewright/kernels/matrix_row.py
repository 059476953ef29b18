"""A row of a matrix in a kernel: distributed over the threads, kept in registers, reduced.

A row's elements are divided into vectors of ``width`` neighbouring elements; thread t of the row's
threads has vectors t, t + threads, …, so neighbouring threads read neighbouring vectors. A row of
up to ``vectors * threads`` vectors stays in registers (f32). A longer one is read again for each
``reduce`` and ``store``, with the functions of ``map`` applied anew: kernels are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..builder import Builder, Pointer, Reg
from .row_layout import VECTOR, RowLayout

IDENTITY = {"add": 0.0, "max": float("-inf"), "min": float("inf"), "mul": 1.0}


class MatrixRow:
    """One row of the matrix ``x``: ``columns`` elements that are ``stride`` apart.

    ``index`` is the row's number, ``exists`` whether the row exists: the last warp may have threads
    without a row; warps without one have left the kernel. With ``layout.programmatic`` the kernel
    waits here for the preceding one: no memory is read or written before, only prefetched.
    """

    def __init__(
        self, k: Builder, layout: RowLayout, rows: Reg, columns: Reg, x: Pointer, row_stride: Reg,
        stride: Any = 1,
    ) -> None:  # fmt: skip
        self.k, self.layout, self.columns, self.stride = k, layout, columns, stride
        self.index, self.thread = k.ctaid.x, k.thread
        self.exists: Reg | bool = True
        self._first: Any = 0  # element of the row's part that this CTA has
        if layout.programmatic:
            k.launch_dependent_grids()
        if layout.rows > 1:
            self._several(rows)
        if layout.ctas > 1:
            k.cluster_arrive()
            self._started = False  # whether all CTAs of the cluster are known to have started
            self.index, self._first = self._part(k.ctaid.x)
        self._x = x + self.index.to("s64") * row_stride
        self._prefetch(rows, x, row_stride)
        if layout.programmatic:
            k.wait_for_prior_grids()
        self._functions: list[Callable[..., Any]] = []
        self._resident: list[RowVector] = []
        if layout.resident:
            self._resident = list(self._load(self._first))

    def _several(self, rows: Reg) -> None:
        """The row of a thread in a CTA that has several; a warp has whole rows."""
        k, threads = self.k, self.layout.threads
        of_warp = 32 // threads
        first = k.ctaid.x * self.layout.rows + k.warpid * of_warp
        k.ret(first >= rows)
        self.index, self.thread = first + k.laneid // threads, k.laneid & (threads - 1)
        if of_warp > 1:
            self.exists = self.index < rows

    def _prefetch(self, rows: Reg, x: Pointer, row_stride: Reg) -> None:
        """One thread of the CTA prefetches rows to the L2.

        The instruction is a hint and reads no values: the preceding kernel may still write the
        rows. All SMs read and write through the L2, so a line there is never older than the memory.
        The rows that are read at one time stay neighbours, which persistent CTAs with more rows in
        flight do not have: those are slower.
        """
        k, layout = self.k, self.layout
        for count, cta, which in (
            (layout.own, k.ctaid.x, k.ctaid.x < layout.own),
            (layout.ahead, k.ctaid.x + layout.ahead, True),
        ):
            if count:
                row, first = self._part(cta)
                here = both(row < rows, layout.ctas == 1 or first < self.columns)
                with k.if_(both((k.tid.x == 0) & here, which)):
                    self._prefetch_part(x + row.to("s64") * row_stride + first, rows - row, first)

    def _part(self, cta: Reg) -> tuple[Reg, Any]:
        """The first row of a CTA, and the first element if several CTAs share a row."""
        ctas = self.layout.ctas
        if ctas == 1:
            return cta * self.layout.rows, 0
        row = cta // ctas
        return row, (cta - row * ctas) * self.layout.capacity

    def _prefetch_part(self, start: Pointer, rows: Reg, first: Any) -> None:
        """Prefetch a CTA's rows or part of a row: the whole vectors of 16 bytes."""
        k, layout = self.k, self.layout
        elements: Any = self.columns
        if layout.rows > 1:
            elements = elements * k.min(rows, layout.rows)
        elif layout.ctas > 1:
            elements = k.min(elements - first, layout.capacity)
        elif not layout.resident:
            elements = k.const("u32", layout.capacity)
        size = elements * start.size
        if not layout.aligned:
            address = start.address()
            start = k.pointer("global", start.dtype, (address + (VECTOR - 1)) & -VECTOR)
            size = (k.max(size, VECTOR) - (VECTOR - 1)) & -VECTOR
        with k.if_(True if layout.aligned else size > 0):
            k.emit("cp.async.bulk.prefetch.L2.global", start, size)

    @property
    def leads(self) -> Reg | bool:
        """Whether this is the first thread of a row."""
        first = True if self.layout.ctas == 1 else self._first == 0
        return both(both(self.thread == 0, self.exists), first)

    def map(self, function: Callable[..., Any], *vectors: Pointer) -> None:
        """Replace each element v by ``function(v, …)``; further arguments are the elements of
        ``vectors``, contiguous arrays of ``columns`` elements, as f32.
        """

        def apply(vector: RowVector) -> list[Any]:
            width, exists = self.layout.width, vector.exists
            others = [
                self.k.load_vector(vector.of(p), width, dtype="f32", pred=exists) for p in vectors
            ]
            return [function(*x) for x in zip(vector.values, *others, strict=True)]

        if not self.layout.resident:
            self._functions.append(apply)
        for vector in self._resident:
            vector.values = apply(vector)

    def reduce(self, op: str, function: Callable[..., Any] | None = None) -> Any:
        """Combine ``function(v)`` of all elements (default: v) by ``op`` (add, mul, max, min): the
        f32 result in every thread of the row. A NaN gives a NaN.
        """
        k = self.k
        totals = [k.var("f32", IDENTITY[op]) for _ in range(self.layout.width)]
        for vector in self.vectors():
            values = [function(v) for v in vector.values] if function else vector.values
            with k.when(vector.exists):
                for total, v in zip(totals, values, strict=True):
                    combine_two(k, op, total, v, into=total)
        partial = _tree(lambda a, b: combine_two(k, op, a, b), totals)
        return self.combine(partial, lambda a, b: combine_two(k, op, a, b))

    def combine(self, value: Any, op: Any) -> Any:
        """``value`` of all threads of the row, combined as by ``k.block_reduce``."""
        if self.layout.threads <= 32:
            return self.k.warp_reduce(value, op, width=self.layout.threads)
        total = self.k.block_reduce(value, op)
        return total if self.layout.ctas == 1 else self._combine_cluster(total, op)

    def _combine_cluster(self, value: Reg, op: Callable[[Any, Any], Any]) -> Any:
        """The results of all CTAs of the cluster combined: each stores its own in every CTA."""
        k, ctas = self.k, self.layout.ctas
        results = k.shared(value.dtype, ctas)
        if not self._started:
            k.cluster_wait()
            self._started = True
        with k.if_(k.tid.x < ctas):
            there = k.mapa(results + k.cluster_rank, k.tid.x)
            k.pointer("shared::cluster", value.dtype, there)[0] = value
        k.cluster_sync()
        return _tree(op, [results[i] for i in range(ctas)])

    def store(self, y: Pointer) -> None:
        """Store the elements to this row of a contiguous matrix, converted to its type."""
        y = y + self.index.to("s64") * self.columns.to("s64")
        for vector in self.vectors():
            pred = both(vector.exists, self.exists)
            self.k.store_vector(vector.of(y), vector.values, pred=pred)

    def vectors(self) -> Iterator[RowVector]:
        """This thread's vectors; for a long row, inside a loop on the device."""
        if self.layout.resident:
            yield from self._resident
            return
        chunk = self.layout.threads * self.layout.vectors * self.layout.width
        for start in self.k.range(0, self.columns, chunk, dtype="u32", unroll=False):
            for vector in self._load(start):
                for function in self._functions:
                    vector.values = function(vector)
                yield vector

    def _load(self, start: Any) -> Iterator[RowVector]:
        """The vectors from element ``start`` on, all loaded before the first is used."""
        k, width, loaded = self.k, self.layout.width, []
        first = self.thread * width + start
        for i in range(self.layout.vectors):
            offset = i * self.layout.threads * width
            index = first + offset
            exists = True if i < self.layout.certain else index < self.columns
            vector = RowVector(index, first, offset, exists)
            x = vector.of(self._x)
            if self.layout.strided:
                x = self._x + index.to("s64") * self.stride
            pred = both(exists, self.exists)
            vector.values = k.load_vector(x, width, dtype="f32", pred=pred)
            loaded.append(vector)
        yield from loaded


@dataclass
class RowVector:
    """Neighbouring elements of a row in f32: the first one's index, which is ``offset`` more than
    that of the thread's first vector, whether the row has them, and values, which mean nothing
    where it does not.
    """

    index: Reg
    first: Reg
    offset: int
    exists: Reg | bool
    values: list[Any] = field(default_factory=list)

    def of(self, array: Pointer) -> Pointer:
        """The elements of a contiguous ``array`` with the same indices. All vectors of a thread
        have one register as address, and constant offsets from it.
        """
        return array + self.first + self.offset


def both(a: Reg | bool, b: Reg | bool) -> Reg | bool:
    """Whether both hold; True is known while the kernel is traced."""
    if a is True or b is True:
        return b if a is True else a
    return a & b


def combine_two(k: Builder, op: str, a: Reg, b: Reg, *, into: Any = None) -> Reg:
    """Two f32 results of a reduction as one. A NaN stays a NaN."""
    names = {"add": "add.rn", "mul": "mul.rn", "max": "max.NaN", "min": "min.NaN"}
    return k.compute(f"{names[op]}.f32", a, b, into=into)


def _tree(combine: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    while len(values) > 1:
        half = len(values) // 2
        pairs = zip(values[:half], values[half:], strict=False)
        values = [combine(a, b) for a, b in pairs] + values[2 * half :]
    return values[0]
