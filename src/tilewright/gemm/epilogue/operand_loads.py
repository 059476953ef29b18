"""Loads of an epilogue's inputs: the elements that a thread's accumulators meet.

A thread names its elements by offsets from one element of D. Neighbours along N are loaded as
vectors, as wide as their alignment allows. For elements outside of D the nearest one inside is
loaded: a predicated load would need its register from before, where the loads of a tile exceed
the registers beside its accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from types import MappingProxyType
from typing import Any

from ...builder import Builder, Pointer, Reg
from ...dtypes import dtype
from ..kernel_scalars import global_pointer, limited, scalar
from .bound_epilogue import BoundEpilogue, EpilogueOperandLayout
from .emission import element_values, widened
from .graph import BIT, BITMASK_COLUMNS, EpilogueInput

Offset = tuple[int, int]  # rows, columns
MAX_VECTOR = 16  # bytes of one load


@dataclass(frozen=True)
class TileElements:
    """Elements of D that a thread computes: the ``offsets`` from (``row``, ``column``).

    ``batch`` is None for a single product. ``unit``: a power of two that divides ``column``.
    ``inside``: all elements exist, so no address is clamped.
    """

    row: Any
    column: Any
    batch: Any
    offsets: Sequence[Offset]
    unit: int
    inside: bool = False


class EpilogueOperands:
    """The inputs of an epilogue within a kernel. ``parameters`` has their fields ``x0``, …;
    ``limits``: M and N. ``load_scalars`` comes first. ``accumulates``: the kernel adds to D
    what would else be the sum with D.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any],
        *, accumulates: bool = False,
    ) -> None:  # fmt: skip
        self.k, self.bound, self.parameters, self.limits = k, bound, parameters, limits
        self.graph = bound.without_sum if accumulates else bound.graph
        self._read = {source.name for source in self.graph.inputs}
        self.layouts = {name: layout for name, _, layout in bound.named_inputs()}
        self.scalars: dict[str, Any] = {}

    def load_scalars(self, *, early: bool = False) -> None:
        """Load the scalar inputs. ``early``: the kernels before this one may not have ended."""
        for name, source, _ in self.bound.named_inputs():
            if not source.varies:
                value = getattr(self.parameters, name)
                address = getattr(self.parameters, f"{name}_ptr")
                self.scalars[source.name] = scalar(self.k, value, address, early=early)

    def values(
        self,
        accumulators: Sequence[tuple[Any, ...]],
        elements: TileElements,
        loaded: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    ) -> list[list[Any]]:
        """Evaluate the graph for each element, of one accumulator or two: for each output, its
        values. ``loaded``: the elements of inputs that need no load, by the inputs' names.
        """
        columns = dict(loaded) | {
            source.name: self.load(name, source, layout, elements)
            for name, source, layout in self.bound.named_inputs()
            if source.varies and source.name in self._read and source.name not in loaded
        }
        results = []
        for i, (accumulator, offset) in enumerate(zip(accumulators, elements.offsets, strict=True)):
            inputs = self.scalars | {name: column[i] for name, column in columns.items()}
            indices = self._indices(elements, offset)
            results.append(element_values(self.k, self.graph, accumulator, inputs, indices))
        return [list(column) for column in zip(*results, strict=True)]

    def _indices(self, elements: TileElements, offset: Offset) -> Mapping[str, Any]:
        if not any(node.op == "index" for node in self.graph.nodes):
            return {}
        batch = self.k.const("u32", 0) if elements.batch is None else elements.batch
        row, column = elements.row + offset[0], elements.column + offset[1]
        return {"row": row, "column": column, "batch": batch}

    def load(
        self,
        name: str,
        source: EpilogueInput,
        layout: EpilogueOperandLayout,
        elements: TileElements,
    ) -> list[Any]:
        """The input's element for each offset, as its compute type."""
        if source.type == BIT:
            return self._load_bits(name, source, elements)
        rows = "m" in source.varies
        columns = "n" in source.varies
        offsets = [(dr if rows else 0, dc if columns else 0) for dr, dc in elements.offsets]
        vector = max(1, layout.align * 8 // dtype(source.type).bits) if layout.contiguous else 1
        start = self._start(name, source, elements)
        row_pointers: dict[int, Pointer] = {}
        loaded: dict[Offset, Any] = {}
        for (dr, dc), count in _runs(sorted(set(offsets)), min(vector, elements.unit), source.type):
            if dr not in row_pointers:
                row_pointers[dr] = self._at_row(name, source, start, elements, dr)
            pointer = self._at_column(name, source, row_pointers[dr], elements, dc, count)
            values = load_vector(self.k, pointer, source.type, count)
            loaded |= {(dr, dc + i): value for i, value in enumerate(values)}
        return [loaded[offset] for offset in offsets]

    def _load_bits(self, name: str, source: EpilogueInput, elements: TileElements) -> list[Any]:
        """A bitmask's condition for each offset: one load for neighbours in a byte."""
        k, p, (m, n) = self.k, self.parameters, self.limits
        base: Pointer = global_pointer(k, getattr(p, name)).cast("u8")
        if "b" in source.varies and elements.batch is not None:
            base = base + elements.batch.to("u64") * getattr(p, f"{name}_batch")
        count, found = min(elements.unit, BITMASK_COLUMNS), dict[Offset, list[Any]]()
        for dr, dc in elements.offsets:
            first = dc - dc % count
            if (dr, first) not in found:
                row = k.min(elements.row + dr, m - 1).to("u64") * getattr(p, f"{name}_m")
                column = elements.column + first
                byte = (k.min(column, n - 1) >> 3).to("u64") * getattr(p, f"{name}_n")
                loaded = k.emit("ld.global.u8", base + (row + byte), dtype="u16").to("u32")
                bits = loaded >> (column & (BITMASK_COLUMNS - 1))
                found[dr, first] = [(bits & (1 << i)) != 0 for i in range(count)]
        return [found[dr, dc - dc % count][dc % count] for dr, dc in elements.offsets]

    # --- addresses ---

    def _start(self, name: str, source: EpilogueInput, elements: TileElements) -> Pointer:
        """The first element, of this batch; inside of D the one at (row, column)."""
        p = self.parameters
        pointer: Pointer = global_pointer(self.k, getattr(p, name)).cast(source.type)
        offset = None
        if "b" in source.varies and elements.batch is not None:
            offset = elements.batch.to("u64") * getattr(p, f"{name}_batch")
        if elements.inside:
            for dimension, index in (("m", elements.row), ("n", elements.column)):
                if dimension in source.varies:
                    part = index.to("u64") * getattr(p, f"{name}_{dimension}")
                    offset = part if offset is None else offset + part
        return pointer if offset is None else pointer + offset

    def _at_row(
        self, name: str, source: EpilogueInput, start: Pointer, elements: TileElements, dr: int
    ) -> Pointer:
        stride: Reg = getattr(self.parameters, f"{name}_m")
        if "m" not in source.varies:
            return start
        if elements.inside:
            return start + stride * dr if dr else start
        row = self.k.min(elements.row + dr, self.limits[0] - 1)
        if gathered := self.layouts[name].gathered:
            indices = global_pointer(self.k, self.parameters.gather).cast(gathered)
            index = (indices + row).load(1)[0]
            row = limited(self.k, index, self.k.const("u32", 0), self.parameters.rows_a - 1)
        return start + row.to("u64") * stride

    def _at_column(
        self, name: str, source: EpilogueInput, row: Pointer, elements: TileElements, dc: int,
        count: int,
    ) -> Pointer:  # fmt: skip
        """``count`` neighbours: they are all in D or none, for rows end at their multiples."""
        layout = self.layouts[name]
        if "n" not in source.varies:
            return row
        stride: Reg = getattr(self.parameters, f"{name}_n")
        if elements.inside:
            return row + (dc if layout.contiguous else stride * dc)
        column = self.k.min(elements.column + dc, self.limits[1] - count)
        return row + (column.to("u64") if layout.contiguous else column.to("u64") * stride)


# --- vectors ------------------------------------------------------------------------------------


def load_vector(k: Builder, pointer: Pointer, type_: str, count: int) -> list[Any]:
    """``count`` neighbours, as their compute type."""
    bits = dtype(type_).bits
    size = bits * count
    if size == 8:
        byte = k.emit(f"ld.{pointer.space}.u8", pointer.cast("u8"), dtype="u16")
        return widened_elements(k, [byte.view("b16")], type_, 1)
    word = _word_type(type_, size)
    words = max(1, size // max(bits, 32))
    into = [k.var(word) for _ in range(words)]
    pointer.cast(word).aligned(size // 8).load(words, into=tuple(into))
    return widened_elements(k, into, type_, count)


def widened_elements(k: Builder, words: list[Any], type_: str, count: int) -> list[Any]:
    """The elements of loaded words as their compute type."""
    if type_ == "bf16" and count > 1:
        return [half for word in words for half in _bf16_halves(word.view("u32"))]
    return [widened(k, x, type_) for x in _elements(k, words, type_, count)]


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


def _bf16_halves(word: Any) -> tuple[Any, Any]:
    """The two elements of a word as f32, whose upper halves they are: an instruction each."""
    return (word << 16).view("f32"), (word & 0xFFFF0000).view("f32")


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
