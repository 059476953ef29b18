"""An epilogue's outputs from registers, rows of a few neighbours per thread: stores of the tensors,
atomic maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...builder import Builder, Pointer
from ...dtypes import dtype
from ..kernel_scalars import global_pointer
from .atomic_maxima import AtomicMaxima
from .bitmasks import BitmaskStores
from .emission import store_vector
from .graph import TENSOR
from .operand_loads import EpilogueOperands, TileElements
from .tile_reductions import WARP_LANES, ReductionUnit, TileReductions

# The lanes of the next elements of a row, and of those after them, in all kernels that store rows
# of a few neighbours per thread.
NEIGHBOUR_LANES = (1, 2)


class StridedMatrix(NamedTuple):
    """A matrix in a kernel: its first element (as bytes), the leading dimension, the batch stride;
    None if the pointer is the batch's already.
    """

    pointer: Pointer
    leading: Any
    batch_stride: Any

    def at(self, type_: str, position: tuple[Any, Any, Any]) -> Pointer:
        """The element at (row, column, batch)."""
        row, column, batch = position
        offset = row.to("u64") * self.leading + column.to("u64")
        if batch is not None and self.batch_stride is not None:
            offset = offset + batch.to("u64") * self.batch_stride
        first: Pointer = self.pointer.cast(type_) + offset
        return first


class OutputStores:
    """Evaluates an epilogue for neighbours of a row of D, stores all tensor outputs and combines
    its maxima; for these all lanes of a warp take part.

    ``d``: the matrix D, whose address and rows are aligned to ``align_d`` bytes.
    """

    def __init__(
        self, k: Builder, operands: EpilogueOperands, d: StridedMatrix, align_d: int
    ) -> None:
        self.k, self.operands = k, operands
        self.reductions = TileReductions(k, operands.bound, operands.parameters, operands.limits)
        self.maxima = AtomicMaxima(k, operands.bound, operands.parameters, operands.limits)
        more = operands.bound, operands.parameters, operands.limits, NEIGHBOUR_LANES
        self.bitmasks = BitmaskStores(k, *more)
        self.outputs = [(d, align_d)]
        for name, _, layout in operands.bound.named_outputs():
            p = operands.parameters
            pointer = global_pointer(k, getattr(p, name))
            matrix = StridedMatrix(pointer, getattr(p, f"{name}_m"), getattr(p, f"{name}_batch"))
            self.outputs.append((matrix, layout.align))

    def store(
        self, accumulators: Sequence[Any], position: tuple[Any, Any, Any], valid: Any, full: bool,
        down: int = 0,
    ) -> None:  # fmt: skip
        """Store the outputs of neighbours, each of one accumulator or of a tuple of them, from
        (row, column, batch) on, whose column is a multiple of their number. ``valid``: whether this
        thread has any, and their row exists; ``full``: all elements are in D. ``down``: they are
        this many rows below ``position``, which is that of this thread's first ones in a unit of
        reductions; ``end_unit`` follows those of the unit.
        """
        k, count, (row, column, batch) = self.k, len(accumulators), position
        offsets = [(down, i) for i in range(count)]
        elements = TileElements(row, column, batch, offsets, count, full)
        tuples = [x if isinstance(x, tuple) else (x,) for x in accumulators]
        values = self.operands.values(tuples, elements)
        self.reductions.add(values, elements)
        self.bitmasks.add(values, elements, valid)
        self.maxima.begin()
        self.maxima.add(values, elements)
        self.maxima.end_lines(elements)
        self.maxima.store(batch)
        position = (row + down if down else row), column, batch
        outputs = zip(self.operands.bound.graph.outputs, values, strict=True)
        tensors = [(o.type, v) for o, v in outputs if o.reduction == TENSOR]
        for (type_, vector), (matrix, align) in zip(tensors, self.outputs, strict=True):
            target, size = matrix.at(type_, position), dtype(type_).bits // 8
            width = max(1, min(count, align // size))
            for first in range(0, count, width):
                part = vector[first : first + width]
                if full:
                    with k.if_(valid):
                        store_vector(k, target + first, part, type_)
                else:
                    self._store_inside(target + first, part, type_, column + first, valid)

    def _store_inside(
        self, target: Pointer, values: Sequence[Any], type_: str, column: Any, valid: Any
    ) -> None:
        """Store a vector that may cross the end of its row, whose other elements are not D's."""
        k, left = self.k, self.operands.limits[1].view("s32") - column.view("s32")
        count = len(values)
        with k.if_(valid & (left >= count)):
            store_vector(k, target, values, type_)
        if count > 1:
            with k.if_(valid & (left > 0) & (left < count)):
                for i in range(count - 1):
                    with k.if_(left > i):
                        store_vector(k, target + i, values[i : i + 1], type_)

    def end_unit(
        self, position: tuple[Any, Any, Any], shape: tuple[int, int], row_lanes: int
    ) -> None:
        """Store the partial results of a unit's rows and columns, to whose elements ``position`` is
        this thread's first. ``row_lanes``: lanes, a power of two, that hold a row one after
        another; the next lanes hold the next row. All lanes of the warp take part.
        """
        across = tuple(lane for lane in WARP_LANES if lane < row_lanes)
        self.end_unit_of(position, shape, across)

    def end_unit_of(
        self, position: tuple[Any, Any, Any], shape: tuple[int, int], across: tuple[int, ...]
    ) -> None:
        """The same where lanes that differ in these bits hold other columns."""
        if not self.reductions.outputs:
            return
        (row, column, batch), (rows, columns) = position, shape
        down = tuple(lane for lane in WARP_LANES if lane not in across)
        unit = ReductionUnit(rows, columns, row & -rows, column & -columns, down, across)
        self.reductions.store(TileElements(row, column, batch, (), 1), unit)
