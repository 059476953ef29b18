"""Loads of an epilogue's inputs: the elements that a thread's accumulators meet.

A thread names its elements by offsets from one element of D. Neighbours along N are loaded as
vectors, as wide as their alignment allows. Elements outside of D are not loaded; they are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

from ...builder import Builder, Pointer, Reg
from ...dtypes import dtype
from ..kernel_scalars import global_pointer, scalar
from .bound_epilogue import BoundEpilogue, EpilogueOperandLayout
from .emission import element_values, widened
from .graph import EpilogueInput

Offset = tuple[int, int]  # rows, columns
MAX_VECTOR = 16  # bytes of one load


@dataclass(frozen=True)
class TileElements:
    """Elements of D that a thread computes: the ``offsets`` from (``row``, ``column``).

    ``batch`` is None for a single product. ``unit``: a power of two that divides ``column``.
    ``inside``: all elements exist, so no access is predicated.
    """

    row: Any
    column: Any
    batch: Any
    offsets: Sequence[Offset]
    unit: int
    inside: bool = False


class EpilogueOperands:
    """The inputs of an epilogue within a kernel. ``parameters`` has their fields ``x0``, …;
    ``limits``: M and N. ``load_scalars`` comes first.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any]
    ) -> None:
        self.k, self.bound, self.parameters, self.limits = k, bound, parameters, limits
        self.scalars: dict[str, Any] = {}

    def load_scalars(self, *, early: bool = False) -> None:
        """Load the scalar inputs. ``early``: the kernels before this one may not have ended."""
        for name, source, _ in self.bound.named_inputs():
            if not source.varies:
                value = getattr(self.parameters, name)
                address = getattr(self.parameters, f"{name}_ptr")
                self.scalars[source.name] = scalar(self.k, value, address, early=early)

    def values(
        self, accumulators: Sequence[tuple[Any, ...]], elements: TileElements
    ) -> list[list[Any]]:
        """Evaluate the graph for each element, of one accumulator or two: for each output, its
        values.
        """
        columns = {
            source.name: self._load(name, source, layout, elements)
            for name, source, layout in self.bound.named_inputs()
            if source.varies
        }
        results = []
        for i, (accumulator, offset) in enumerate(zip(accumulators, elements.offsets, strict=True)):
            loaded = self.scalars | {name: column[i] for name, column in columns.items()}
            indices = self._indices(elements, offset)
            results.append(element_values(self.k, self.bound.graph, accumulator, loaded, indices))
        return [list(column) for column in zip(*results, strict=True)]

    def _indices(self, elements: TileElements, offset: Offset) -> Mapping[str, Any]:
        if not any(node.op == "index" for node in self.bound.graph.nodes):
            return {}
        batch = self.k.const("u32", 0) if elements.batch is None else elements.batch
        row, column = elements.row + offset[0], elements.column + offset[1]
        return {"row": row, "column": column, "batch": batch}

    def _load(
        self,
        name: str,
        source: EpilogueInput,
        layout: EpilogueOperandLayout,
        elements: TileElements,
    ) -> list[Any]:
        """The input's element for each offset, as its compute type."""
        rows = "m" in source.varies
        columns = "n" in source.varies
        offsets = [(dr if rows else 0, dc if columns else 0) for dr, dc in elements.offsets]
        base = self._base(name, source, elements)
        vector = max(1, layout.align * 8 // dtype(source.type).bits) if layout.contiguous else 1
        loaded: dict[Offset, Any] = {}
        row_pointers: dict[int, Pointer] = {}
        for (dr, dc), count in _runs(sorted(set(offsets)), min(vector, elements.unit), source.type):
            if dr not in row_pointers:
                row_pointers[dr] = self._at_row(name, base, dr)
            pointer = self._at_column(name, row_pointers[dr], dc, layout)
            exists = self._exists(elements, (dr, dc), rows, columns)
            values = self._load_vector(pointer, source.type, count, exists)
            loaded |= {(dr, dc + i): value for i, value in enumerate(values)}
        return [loaded[offset] for offset in offsets]

    # --- addresses ---

    def _base(self, name: str, source: EpilogueInput, elements: TileElements) -> Pointer:
        """The element at (row, column, batch) of D, as far as the input varies."""
        p, offset = self.parameters, None
        parts = {"m": elements.row, "n": elements.column, "b": elements.batch}
        strides = {"m": f"{name}_m", "n": f"{name}_n", "b": f"{name}_batch"}
        for dimension in source.varies:
            index = parts[dimension]
            if index is None:
                continue
            part = index.to("u64") * getattr(p, strides[dimension])
            offset = part if offset is None else offset + part
        pointer: Pointer = global_pointer(self.k, getattr(p, name)).cast(source.type)
        return pointer if offset is None else pointer + offset

    def _at_row(self, name: str, base: Pointer, dr: int) -> Pointer:
        return base + getattr(self.parameters, f"{name}_m") * dr if dr else base

    def _at_column(
        self, name: str, row: Pointer, dc: int, layout: EpilogueOperandLayout
    ) -> Pointer:
        if layout.contiguous or not dc:
            return row + dc
        stride: Reg = getattr(self.parameters, f"{name}_n")
        return row + stride * dc

    def _exists(self, elements: TileElements, offset: Offset, rows: bool, columns: bool) -> Any:
        """Whether the element at an offset is in D; True where no test is needed."""
        if elements.inside:
            return True
        tests = []
        if rows:
            tests.append(elements.row + offset[0] < self.limits[0])
        if columns:
            tests.append(elements.column + offset[1] < self.limits[1])
        if not tests:
            return True
        return tests[0] & tests[1] if len(tests) == 2 else tests[0]

    # --- vectors ---

    def _load_vector(self, pointer: Pointer, type_: str, count: int, exists: Any) -> list[Any]:
        """``count`` neighbours, as their compute type."""
        k, bits = self.k, dtype(type_).bits
        size = bits * count
        if size == 8:
            byte = k.var("u16", 0)
            with k.when(exists):
                k.emit("ld.global.u8", pointer.cast("u8"), into=byte)
            return [widened(k, x, type_) for x in _elements(k, [byte.view("b16")], type_, 1)]
        word = _word_type(type_, size)
        words = max(1, size // max(bits, 32))
        into = [k.var(word, 0) for _ in range(words)]
        with k.when(exists):
            at = pointer.cast(word).aligned(size // 8)
            at.load(words, into=tuple(into))
        return [widened(k, x, type_) for x in _elements(k, into, type_, count)]


def _word_type(type_: str, size: int) -> str:
    """The type of the registers that a vector of this many bits is loaded into."""
    bits = dtype(type_).bits
    if bits >= 32:
        return type_
    return f"b{min(size, 32)}"


def _elements(k: Builder, words: list[Any], type_: str, count: int) -> list[Any]:
    """The elements of loaded words, each in a register as ``widened`` takes it."""
    bits = dtype(type_).bits
    if bits >= 32:
        return words
    if bits == 16:
        if count == 1:
            return [words[0].view(type_)]
        return [half for word in words for half in k.unpack(word, type_)]
    parts = [byte for word in words for byte in _bytes(k, word)][:count]
    if dtype(type_).kind == "float":
        return parts
    return [_integer(k, byte, type_) for byte in parts]


def _bytes(k: Builder, word: Any) -> Iterator[Any]:
    """The bytes of a word, each in the low byte of b16; the high byte is not 0."""
    if word.dtype.bits == 32:
        for half in k.unpack(word, "b16"):
            yield from _bytes(k, half)
        return
    yield word
    yield (word.view("u16") >> 8).view("b16")


def _integer(k: Builder, byte: Any, type_: str) -> Any:
    """An 8-bit integer in the low byte of b16 as s32."""
    wide = byte.view("u16").to("u32")
    if type_ == "u8":
        return (wide & 255).view("s32")
    return k.emit("bfe.s32", wide.view("s32"), 0, 8)


def _runs(offsets: list[Offset], vector: int, type_: str) -> Iterator[tuple[Offset, int]]:
    """(offset, number of elements) of the loads of these sorted offsets. A load is aligned to its
    size relative to the columns.
    """
    most = max(1, min(vector, MAX_VECTOR * 8 // dtype(type_).bits))
    starts = [0] + [
        i for i, (one, other) in enumerate(pairwise(offsets), 1) if other != (one[0], one[1] + 1)
    ]
    for start, end in pairwise([*starts, len(offsets)]):
        dr, first = offsets[start]
        i = 0
        while i < end - start:
            left = end - start - i
            count = gcd(first + i, most) if first + i else most
            while count > left:
                count //= 2
            yield (dr, first + i), count
            i += count
