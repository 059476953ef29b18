"""An epilogue bound to arrays: the graph, and how its operands are stored. Part of a ``Problem``.

Operands that are arrays have addresses by their position: the inputs in the graph's order, then the
tensor outputs after D, then the reductions. The parameters of operand ``i`` begin with ``x{i}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import gcd, prod
from typing import NamedTuple

from ...dtypes import dtype
from .graph import (
    BIT,
    BITMASK,
    TENSOR,
    EpilogueGraph,
    EpilogueInput,
    EpilogueOutput,
    without_sum,
)

TENSOR_COPY_BYTES = 16  # must divide the address and the strides of what a tensor copy loads
MAX_LOADED_BYTES = 8  # of an element of D, from all inputs that tensor copies load
MAX_SHARED_VECTORS = 4  # vectors that a kernel brings through shared memory


class EpilogueOperandLayout(NamedTuple):
    """How an array of an epilogue is stored. ``align``: the bytes, 16 to 1, that divide its
    address, its strides along M and the batch, and the end of its rows. ``contiguous``: neighbours
    along N are neighbours in memory. ``gathered``: the type of the indices of its rows, which are
    those that A's rows are gathered by; empty: it has D's rows.
    """

    align: int = 16
    contiguous: bool = True
    gathered: str = ""


@dataclass(frozen=True, slots=True)
class BoundEpilogue:
    """A graph with the layouts of its inputs (in the order of ``graph.inputs``) and of the tensor
    outputs after D (in the order of ``graph.tensors[1:]``). ``in_table``: a problem table has the
    addresses and strides of the inputs, which threads load. ``accumulated``: the input that is D
    itself, which D is the sum with (``without_sum``); empty: none.
    """

    graph: EpilogueGraph
    inputs: tuple[EpilogueOperandLayout, ...] = ()
    outputs: tuple[EpilogueOperandLayout, ...] = ()
    in_table: bool = False
    accumulated: str = ""

    @property
    def without_sum(self) -> EpilogueGraph:
        """The graph of what is added to D, where an input is ``accumulated``."""
        found = without_sum(self.graph, self.accumulated)
        assert found is not None, f"D is no sum with {self.accumulated!r}"
        return found

    @property
    def output_bytes(self) -> tuple[int, ...]:
        """The bytes of an element of each tensor output, D first."""
        return tuple(dtype(o.type).bits // 8 for o in self.graph.tensors)

    def operand_bits(self, m: int, n: int, batch: int) -> int:
        """The bits of all inputs and of the tensor outputs after D, of M×N D's."""
        extents = {"b": batch, "m": m, "n": n}
        inputs = (
            dtype(x.type).bits * prod(extents[dimension] for dimension in x.varies)
            for x in self.graph.inputs
        )
        outputs = (dtype(o.type).bits * m * n * batch for o in self.graph.tensors[1:])
        return sum(inputs) + sum(outputs)

    def named_inputs(self) -> Iterator[tuple[str, EpilogueInput, EpilogueOperandLayout]]:
        """(parameter, input, layout) of each input."""
        for i, pair in enumerate(zip(self.graph.inputs, self.inputs, strict=True)):
            yield f"x{i}", *pair

    def tensor_inputs(self) -> Iterator[tuple[str, EpilogueInput]]:
        """(parameter, input) of the matrices that tensor copies can load, in order as many as
        ``MAX_LOADED_BYTES`` permits; the others are loaded by threads.
        """
        left = 8 * MAX_LOADED_BYTES
        for name, source, layout in self.named_inputs():
            bits = dtype(source.type).bits
            aligned = layout.contiguous and layout.align == TENSOR_COPY_BYTES
            if source.type == BIT or self.in_table or source.name == self.accumulated:
                continue
            if "mn" in source.varies and bits <= 32 and aligned and bits <= left:
                left -= bits
                yield name, source

    def shared_vectors(self) -> Iterator[tuple[str, EpilogueInput, EpilogueOperandLayout]]:
        """(parameter, input, layout) of the vectors, which vary along M or N alone and also along
        the batch, that a kernel can bring through shared memory: the first ones in order.
        """
        vectors = (
            x
            for x in self.named_inputs()
            if ("m" in x[1].varies) != ("n" in x[1].varies) and not x[2].gathered
            if x[1].name != self.accumulated
        )
        return islice(vectors, 0 if self.in_table else MAX_SHARED_VECTORS)

    def named_outputs(self) -> Iterator[tuple[str, EpilogueOutput, EpilogueOperandLayout]]:
        """(parameter, output, layout) of each tensor output after D."""
        pairs = zip(self.graph.tensors[1:], self.outputs, strict=True)
        for i, pair in enumerate(pairs, len(self.inputs)):
            yield f"x{i}", *pair

    def named_reductions(self) -> Iterator[tuple[str, int, EpilogueOutput]]:
        """(parameter, number among the graph's outputs, output) of each reduction or bitmask."""
        outputs = enumerate(self.graph.outputs)
        reductions = (x for x in outputs if x[1].reduction != TENSOR)
        for i, (number, output) in enumerate(reductions, len(self.inputs) + len(self.outputs)):
            yield f"x{i}", number, output

    @property
    def maxima(self) -> tuple[tuple[str, int, EpilogueOutput], ...]:
        """Those of ``named_reductions`` that kernels combine by atomic maxima."""
        return tuple(x for x in self.named_reductions() if x[2].atomic)

    @property
    def partial_reductions(self) -> tuple[tuple[str, int, EpilogueOutput], ...]:
        """Those that kernels store partial results of, which a reduction kernel combines."""
        return tuple(x for x in self.named_reductions() if x[2].reduced and not x[2].atomic)

    @property
    def bitmasks(self) -> tuple[tuple[str, int, EpilogueOutput], ...]:
        """Those that are bitmasks."""
        return tuple(x for x in self.named_reductions() if x[2].reduction == BITMASK)


def operand_align(
    address: int, row_stride: int, batch_stride: int, columns: int, type_: str
) -> int:
    """The alignment of an array with these strides in elements, for ``EpilogueOperandLayout``; less
    than ``TENSOR_COPY_BYTES`` where one is negative, which tensor maps do not have.
    """
    size = dtype(type_).bits // 8
    negative = min(row_stride, batch_stride) < 0
    most = TENSOR_COPY_BYTES // 2 if negative else TENSOR_COPY_BYTES
    return gcd(address, row_stride * size, batch_stride * size, columns * size, most)
