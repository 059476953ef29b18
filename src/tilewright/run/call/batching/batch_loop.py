"""Batches of a call with an epilogue that no stride gives: a launch for each index of the leading
dimensions, on parts of the arrays where they are.

    a (4, 1, M, K), b (1, 5, K, N)      4 launches, each of 5 products with one A
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from ....errors import ProblemError
from ....quantization.weight_format import PreparedWeights
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
from ..operands.output_overlap import same_elements
from .array_part import ArrayPart
from .batch_dimensions import BatchFolding, as_matrices, check_distinct_elements, check_result_shape


class UnfoldedBatch(ProblemError):
    """Leading dimensions of a batch do not fold: ``folding`` says how many. It is raised to the
    caller where a call cannot be divided.
    """

    def __init__(self, folding: BatchFolding, shapes: str) -> None:
        super().__init__(
            f"batch dimensions must fold into one where there is an epilogue, got {shapes}",
            hint="make the operands contiguous, or broadcast them first",
        )
        self.folding = folding


class BatchArrays(NamedTuple):
    """The arrays of a call: A, B (one, or two), operands of the epilogue, outputs by name."""

    a: Any
    b: Any
    operands: Mapping[str, Any]
    outs: Mapping[str, Any]

    @property
    def matrices(self) -> dict[str, Any]:
        """A and each B, by name."""
        right = self.b if isinstance(self.b, tuple | list) else (self.b,)
        return {"a": self.a, **dict(zip(("b", "b2"), right, strict=False))}


def batch_parts(arrays: BatchArrays, unfolded: UnfoldedBatch) -> Iterator[BatchArrays]:
    """The arrays of each launch. Raises the error for arrays that have no parts: sparse matrices
    and packed weights that vary along the loops, immutable ones; and for products with vectors.
    """
    shape, loops = unfolded.folding.shape, unfolded.folding.loops
    views = {name: array_view.view(x) for name, x in arrays.matrices.items()}
    first = arrays.a.values if views["a"].sparse else arrays.a
    if any(shape.vectors) or array_view.kind_of(first).finish:
        raise unfolded
    whole: dict[str, Any] = {name: as_matrices(shape, name, view) for name, view in views.items()}
    for name, view in views.items():
        if view.sparse or isinstance(view.owner, PreparedWeights):
            if any(whole[name].strides[:loops]):
                raise unfolded
            whole[name] = arrays.matrices[name]
    operands = {
        name: as_matrices(shape, "operand", array_view.view(x))
        if array_view.is_array(x) and len(x.shape) > 2  # else it does not vary along the batch
        else x
        for name, x in arrays.operands.items()
    }
    outs = {name: array_view.view(x) for name, x in arrays.outs.items()}
    for name, view in outs.items():
        check_result_shape(shape, name, view)
        check_distinct_elements(name, view)
    for index in product(*map(range, shape.batch[:loops])):
        a, *b = (_part(view, index) for view in whole.values())
        yield BatchArrays(
            a,
            b[0] if len(b) == 1 else tuple(b),
            {name: _part(x, index) for name, x in operands.items()},
            {name: _part(view, index) for name, view in outs.items()},
        )


def _part(x: Any, index: Sequence[int]) -> Any:
    """The part of an array with all batch dimensions; what is no view is for all parts."""
    if not isinstance(x, ArrayView):
        return x
    offset = sum(i * stride for i, stride in zip(index, x.strides, strict=False)) * x.itemsize
    sizes, strides = x.shape[len(index) :], x.strides[len(index) :]
    return ArrayPart(x._replace(address=x.address + offset, shape=sizes, strides=strides))


def check_outputs_apart(arrays: BatchArrays) -> None:
    """Raise ProblemError where an output shares memory with an input or another output: a launch
    would read, or write, what another one wrote. An operand of the epilogue may be an output
    element by element, of which each launch has the same part.
    """
    outs, matrices, operands = (
        [(name, array_view.view(x)) for name, x in given.items() if array_view.is_array(x)]
        for given in (arrays.outs, arrays.matrices, arrays.operands)
    )
    for i, (name, out) in enumerate(outs):
        apart = [(other, x) for other, x in operands if not same_elements(out, x)]
        for other, x in (*matrices, *apart, *outs[:i]):
            if overlap(out, x):
                what = f"{name} must not share memory with {other} where a batch does not fold"
                raise ProblemError(what, hint="out= another array, or all of the operand")
