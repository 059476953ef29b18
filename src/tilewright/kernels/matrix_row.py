"""A row of a matrix in a kernel: distributed over the threads, kept in registers, reduced.

A row's elements are divided into vectors of ``width`` neighbouring elements; thread t of the row's
threads has vectors t, t + threads, …, so neighbouring threads read neighbouring vectors. A row of
up to ``vectors * threads`` vectors stays in registers (f32). A longer one is read again for each
``reduce`` and ``store``, with the functions of ``map`` applied anew: kernels are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..builder import Builder, Pointer, Reg

MAX_THREADS = 1024
_ELEMENTS = 32  # of a thread
_MIN_THREADS = 128  # of a CTA
IDENTITY = {"add": 0.0, "max": float("-inf"), "min": float("inf"), "mul": 1.0}


@dataclass(frozen=True)
class RowLayout:
    """How a row is distributed. ``vectors``: of a thread; ``strided``: the elements of the input
    are not neighbours; ``resident``: the row fits in the registers of its threads; ``full``: all
    vectors of all threads exist. ``ahead``: a CTA prefetches the row that is as many rows further
    on to the L2; 0: none. ``programmatic``: the kernel is launched before the preceding one ends.
    """

    width: int
    vectors: int
    threads: int
    strided: bool = False
    resident: bool = True
    full: bool = False
    ahead: int = 0
    programmatic: bool = False

    @property
    def rows(self) -> int:
        """Rows of a CTA: more than one if a row has one warp."""
        return max(1, _MIN_THREADS // self.threads) if self.threads == 32 else 1

    @property
    def block(self) -> int:
        """Threads of a CTA."""
        return self.threads * self.rows

    @property
    def min_ctas(self) -> int:
        """CTAs that should be resident on an SM: 64 registers for each thread."""
        return MAX_THREADS // self.block


def row_layout(columns: int, width: int, strided: bool = False) -> RowLayout:
    """The layout for rows of ``columns`` elements in vectors of ``width``: as few threads as have
    the row in their registers.
    """
    vectors, most = -(-columns // width), _ELEMENTS // width
    threads = 32
    while threads < MAX_THREADS and threads * most < vectors:
        threads *= 2
    own = -(-vectors // threads)
    resident = own <= most
    own = own if resident else max(1, most // 2)
    return RowLayout(width, own, threads, strided, resident, vectors % (threads * own) == 0)


class MatrixRow:
    """One row of the matrix ``x``: ``columns`` elements that are ``stride`` apart.

    ``index`` is the row's number; threads without a row have left the kernel.
    """

    def __init__(
        self, k: Builder, layout: RowLayout, rows: Reg, columns: Reg, x: Pointer, row_stride: Reg,
        stride: Any = 1,
    ) -> None:  # fmt: skip
        self.k, self.layout, self.columns, self.stride = k, layout, columns, stride
        self.index, self.thread = k.ctaid.x, k.thread
        if layout.rows > 1:
            self.index = k.ctaid.x * layout.rows + k.warpid
            self.thread = k.laneid
            k.ret(self.index >= rows)
        self._x = x + self.index.to("s64") * row_stride
        if layout.programmatic:
            k.launch_dependent_grids()
        if layout.ahead:
            self._prefetch(x, rows, row_stride)
        if layout.programmatic:  # a prefetch reads no values
            k.wait_for_prior_grids()
        self._functions: list[Callable[..., Any]] = []
        self._resident: list[RowVector] = []
        if layout.resident:
            self._resident = list(self._load(0))

    def _prefetch(self, x: Pointer, rows: Reg, row_stride: Reg) -> None:
        """One thread prefetches a later row. The rows that are read at one time stay neighbours,
        which persistent CTAs with more rows in flight do not have: those are slower.
        """
        k, later = self.k, self.index + self.layout.ahead
        with k.if_((self.thread == 0) & (later < rows)):
            source = x + later.to("s64") * row_stride
            k.emit("cp.async.bulk.prefetch.L2.global", source, self.columns * x.size)

    def map(self, function: Callable[..., Any], *vectors: Pointer) -> None:
        """Replace each element v by ``function(v, …)``; further arguments are the elements of
        ``vectors``, contiguous arrays of ``columns`` elements, as f32.
        """

        def apply(vector: RowVector) -> list[Any]:
            width, exists = self.layout.width, vector.exists
            others = [
                self.k.load_vector(p + vector.index, width, dtype="f32", pred=exists)
                for p in vectors
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
        if self.layout.threads == 32:
            return self.k.warp_reduce(value, op)
        return self.k.block_reduce(value, op)

    def store(self, y: Pointer) -> None:
        """Store the elements to this row of a contiguous matrix, converted to its type."""
        y = y + self.index.to("s64") * self.columns.to("s64")
        for vector in self.vectors():
            self.k.store_vector(y + vector.index, vector.values, pred=vector.exists)

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
            index = first + i * self.layout.threads * width
            exists = True if self.layout.full else index < self.columns
            offset = index.to("s64") * self.stride if self.layout.strided else index
            values = k.load_vector(self._x + offset, width, dtype="f32", pred=exists)
            loaded.append(RowVector(index, exists, values))
        yield from loaded


@dataclass
class RowVector:
    """Neighbouring elements of a row in f32: the first one's index, whether they exist, and values,
    which mean nothing where they do not exist.
    """

    index: Reg
    exists: Reg | bool
    values: list[Any]


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
