"""Batch dimensions of a call with an epilogue: its operands and outputs fold as D does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....errors import EpilogueError, ProblemError
from ....gemm.epilogue.graph import BITMASK, INDEX, TENSOR, EpilogueGraph, EpilogueOutput
from ...arrays.array_kind import Shape
from ...arrays.array_view import ArrayView
from .batch_dimensions import (
    BatchFolding,
    as_matrices,
    broadcasts_to,
    check_result_shape,
    folded,
    folding,
    new_result,
    product_of,
)
from .batch_loop import UnfoldedBatch


class EpilogueBatch(NamedTuple):
    """How the batch dimensions of a call with an epilogue are folded."""

    folding: BatchFolding

    def part(self, name: str, view: ArrayView) -> ArrayView:
        """An operand, or D as ``out``, as a matrix or a stack of matrices.

        Raises ProblemError for a D of another shape, or whose strides do not fold.
        """
        shape = self.folding.shape
        if name == "out":
            check_result_shape(shape, name, view)
        found = folded(self.folding, name, as_matrices(shape, name, view))
        if found is None:
            what = f"{name} must have strides that fold into one batch, got {view.strides}"
            raise ProblemError(what, hint="make it contiguous")
        return found

    def operand(self, name: str, view: ArrayView) -> ArrayView:
        """An operand of the epilogue; it has size 1 along dimensions where it does not vary."""
        _check_broadcasts(name, view, self.folding.shape.result)
        part = self.part("operand", view)
        pairs = zip(part.shape, part.strides, strict=True)
        return part._replace(shape=tuple(size if stride else 1 for size, stride in pairs))

    def keeps(self, graph: EpilogueGraph) -> bool:
        """Whether the graph computes the same if the batch dimensions are rows of D: it reads no
        index, and reduces all of D or nothing.
        """
        if not self.folding.into_rows:
            return True
        reads_index = any(node.op == INDEX for node in graph.nodes)
        return not reads_index and all(o.reduced == "bmn" for o in graph.reductions)

    def output_shape(self, output: EpilogueOutput) -> Shape:
        """The caller's shape of an output. Raises EpilogueError for a reduction along one of
        several batch dimensions, or of a product with a vector.
        """
        shape, reduced = self.folding.shape, output.reduced
        if reduced == "bmn":
            return ()
        if output.reduction == BITMASK and not any(shape.vectors):
            return (*shape.result[:-1], -(-shape.n // 8))
        if output.reduction == TENSOR:
            return shape.result
        if any(shape.vectors) or ("b" in reduced and len(shape.batch) > 1):
            what = (
                f"{output.name} must reduce all of D, which is neither a matrix nor a stack of them"
            )
            raise EpilogueError(what, hint="reshape a and b to stacks of matrices")
        dimensions = ((shape.batch, "b"), ((shape.m,), "m"), ((shape.n,), "n"))
        return tuple(n for sizes, name in dimensions if name not in reduced for n in sizes)


def epilogue_batches(
    views: Mapping[str, ArrayView], operands: Mapping[str, ArrayView]
) -> Iterator[EpilogueBatch]:
    """The foldings of a call, that with the larger matrices first. ``views``: A, B, B2 and ``out``.

    Raises UnfoldedBatch where batch dimensions do not fold.
    """
    sizes = product_of(views)
    if "b2" in views:
        product_of({**views, "b": views["b2"]})
    if "out" in views:
        check_result_shape(sizes, "out", views["out"])
    matrices = {name: as_matrices(sizes, name, view) for name, view in views.items()}
    matrices.setdefault("out", new_result(sizes, views["a"]))
    for name, view in operands.items():
        _check_broadcasts(name, view, sizes.result)
        matrices[f"operand {name}"] = as_matrices(sizes, "operand", view)
    for rows in (True, False):
        found = folding(sizes, matrices, rows)
        if found.loops:
            shapes = ", ".join(f"{name} {view.shape}" for name, view in views.items())
            raise UnfoldedBatch(found, shapes)
        yield EpilogueBatch(found)


def _check_broadcasts(name: str, view: ArrayView, shape: Shape) -> None:
    if not broadcasts_to(view.shape, shape):
        shown = "×".join(map(str, shape))
        raise EpilogueError(f"{name} must broadcast to D, {shown}, got shape {view.shape}")
