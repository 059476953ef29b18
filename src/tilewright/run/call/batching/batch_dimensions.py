"""Operands with any number of dimensions as matrices or stacks of matrices; nothing is copied.

NumPy's rules for ``matmul``: the dimensions before the last two are batch dimensions and broadcast;
a vector a is one row, a vector b one column, and D lacks that dimension. A kernel takes one batch
dimension. The batch dimensions are folded, by strides alone, into the rows of A and D where b has
none, else into the one of the kernel, where a stride may be 0. Leading dimensions that do not fold
stay: each of their indices is a product of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from ....errors import ProblemError
from ....quantization.weight_format import PreparedWeights
from ...arrays.array_kind import Shape
from ...arrays.array_view import ArrayView
from ...arrays.dlpack import compact_strides
from ...arrays.memory_overlap import overlaps_itself


class ProductShape(NamedTuple):
    """The sizes of a product. ``vectors``: whether a and b are vectors."""

    batch: Shape
    m: int
    n: int
    k: int
    vectors: tuple[bool, bool]

    @property
    def matrices(self) -> Shape:
        """D's shape with M and N, also where the result lacks one of them."""
        return (*self.batch, self.m, self.n)

    @property
    def result(self) -> Shape:
        """The result's shape."""
        kept = zip((self.m, self.n), self.vectors, strict=True)
        return (*self.batch, *(size for size, vector in kept if not vector))


class SplitProduct(NamedTuple):
    """A call as products of matrices or of stacks of matrices. ``shape`` of the result; ``parts``:
    the operands of each product by name. ``out`` is its part of D; the address of a new D counts
    elements from the first.
    """

    shape: Shape
    parts: tuple[dict[str, ArrayView], ...]


class BatchFolding(NamedTuple):
    """``loops`` leading batch dimensions are not folded. The others are folded into the rows of A
    and D (``into_rows``), or into one batch dimension.
    """

    shape: ProductShape
    loops: int
    into_rows: bool

    @property
    def launches(self) -> int:
        """The number of products."""
        return prod(self.shape.batch[: self.loops])


def is_one_product(a: Shape, b: Shape) -> bool:
    """Whether the operands are two matrices, or two stacks of equally many."""
    return len(a) == len(b) and (len(a) == 2 or (len(a) == 3 and a[0] == b[0]))


def product_of(views: Mapping[str, ArrayView]) -> ProductShape:
    """The sizes of the product of operands a and b. ProblemError where they disagree."""
    return product_shape(_matrix_shape(views["a"]), _matrix_shape(views["b"]))


def _matrix_shape(view: ArrayView) -> Shape:
    """The shape of an operand: of prepared weights, the weights'."""
    owner = view.owner
    return owner.shape if isinstance(owner, PreparedWeights) else view.matrix_shape


def product_shape(a: Shape, b: Shape) -> ProductShape:
    """The sizes of the product of operands with these shapes. ProblemError where they disagree."""
    got = f"got a {_shown(a)} and b {_shown(b)}"
    if not a or not b:
        raise ProblemError(f"a and b must have at least one dimension, {got}", hint="a * b")
    k, columns = (b[0], 1) if len(b) == 1 else b[-2:]
    if a[-1] != k:
        raise ProblemError(f"a must have as many columns as b has rows, {got}")
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ProblemError(f"the batch dimensions of a and b must broadcast, {got}") from None
    rows = 1 if len(a) == 1 else a[-2]
    return ProductShape(batch, rows, columns, k, (len(a) == 1, len(b) == 1))


def split_product(views: Mapping[str, ArrayView]) -> SplitProduct:
    """The products of a call with operands a and b, and perhaps c and out.

    Raises ProblemError for shapes that do not fit.
    """
    sizes = product_of(views)
    for name in ("c", "out"):
        if name in views:
            check_result_shape(sizes, name, views[name])
    if "out" in views:
        check_distinct_elements("out", views["out"])
    matrices = {name: as_matrices(sizes, name, view) for name, view in views.items()}
    matrices.setdefault("out", new_result(sizes, views["a"]))
    found = folding(sizes, matrices)
    return SplitProduct(sizes.result, tuple(products(found, matrices)))


def check_result_shape(sizes: ProductShape, name: str, view: ArrayView) -> None:
    """Raise ProblemError for a C or D of another shape than the product's."""
    if view.shape != sizes.result:
        expected, got = _shown(sizes.result), _shown(view.shape)
        raise ProblemError(f"{name} must have the product's shape {expected}, got {got}")


def check_distinct_elements(name: str, view: ArrayView) -> None:
    """Raise ProblemError for a D that shares memory with itself."""
    if overlaps_itself(view):
        what = f"{name} must have distinct elements, got overlapping strides {view.strides}"
        raise ProblemError(what)


def as_matrices(shape: ProductShape, name: str, view: ArrayView) -> ArrayView:
    """An operand with D's batch dimensions and two more; ``name``: a, b, or any other for an array
    of the result's shape or one that broadcasts to it.
    """
    sizes, strides = list(view.shape), list(view.strides)
    is_b, is_a = name in ("b", "b2"), name == "a"
    if shape.vectors[0] and not is_b:  # the row that a vector a and its result are
        at = len(sizes) - (1 if is_a or not shape.vectors[1] else 0)
        sizes.insert(max(at, 0), 1)
        strides.insert(max(at, 0), 0)
    if shape.vectors[1] and not is_a:  # the column that a vector b and its result are
        sizes.append(1)
        strides.append(0)
    missing = len(shape.batch) + 2 - len(sizes)
    sizes, strides = [1] * missing + sizes, [0] * missing + strides
    for i, size in enumerate(shape.batch if is_a or is_b else shape.matrices):
        if sizes[i] != size:  # it is 1
            sizes[i], strides[i] = size, 0
    return view._replace(shape=tuple(sizes), strides=tuple(strides))


def new_result(shape: ProductShape, like: ArrayView) -> ArrayView:
    """A D that is not allocated yet: row-major, at address 0, of elements of one byte."""
    strides = compact_strides(shape.matrices)
    return ArrayView(0, shape.matrices, strides, "u8", like.device, False, None)


def folding(shape: ProductShape, views: Mapping[str, ArrayView], rows: bool = True) -> BatchFolding:
    """The folding with the fewest products. ``views``: operands ``as_matrices``, b among them, and
    D; ``rows``: whether it may fold into the rows.
    """
    rows = rows and not any(_varies(v) for name, v in views.items() if name in ("b", "b2"))
    for loops in range(len(shape.batch) + 1):
        for into_rows in (True, False) if rows else (False,):
            found = BatchFolding(shape, loops, into_rows)
            if all(
                folded(found, name, view) is not None and not _repeats(found, name, view)
                for name, view in views.items()
            ):
                return found
    raise AssertionError("products of matrices, or of stacks along the last dimension, fold")


def _repeats(found: BatchFolding, name: str, view: ArrayView) -> bool:
    """Whether a product would read a sparse matrix or packed weights again for another matrix of a
    batch: a kernel reads as many metadata, or units of weights, as matrices. Products read the same
    ones: where they have no batch dimension one matrix, else the whole stack.
    """
    if not (view.sparse or isinstance(view.owner, PreparedWeights)):
        return False
    sizes = [*zip(view.shape[:-2], view.strides[:-2], strict=True)]
    outer, inner = sizes[: found.loops], sizes[found.loops :]
    if _varies(view):
        return any(size > 1 and bool(stride) for size, stride in outer) or any(
            size > 1 and not stride for size, stride in inner
        )
    into_rows = found.into_rows and name in ("b", "b2")
    return not into_rows and found.loops < len(found.shape.batch)


def products(found: BatchFolding, views: Mapping[str, ArrayView]) -> Iterator[dict[str, ArrayView]]:
    """The operands of each product: matrices, or stacks of matrices."""
    parts = {name: folded(found, name, view) for name, view in views.items()}
    for index in product(*map(range, found.shape.batch[: found.loops])):
        at = {}
        for name, view in parts.items():
            assert view is not None
            steps = zip(index, views[name].strides[: found.loops], strict=True)
            offset = sum(i * stride for i, stride in steps) * view.itemsize
            at[name] = view._replace(address=view.address + offset)
        yield at


def folded(found: BatchFolding, name: str, view: ArrayView) -> ArrayView | None:
    """An operand ``as_matrices`` of the first product; None if its dimensions do not fold."""
    sizes, strides = view.shape[found.loops :], view.strides[found.loops :]
    if found.into_rows and name in ("b", "b2"):
        return view._replace(shape=sizes[-2:], strides=strides[-2:])
    kept = 1 if found.into_rows else 2
    if len(sizes) == 2:
        return view._replace(shape=sizes, strides=strides)
    merged = _merged(sizes[:-kept], strides[:-kept])
    if merged is None:
        return None
    size, stride = merged
    return view._replace(shape=(size, *sizes[-kept:]), strides=(stride, *strides[-kept:]))


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether an array of this shape broadcasts to the other, by NumPy's rules."""
    pairs = zip(shape[::-1], target[::-1], strict=False)
    return len(shape) <= len(target) and all(size in (1, n) for size, n in pairs)


def _merged(sizes: Shape, strides: Shape) -> tuple[int, int] | None:
    """Size and stride of the one dimension that these are; None if no stride gives all elements."""
    if 0 in sizes:
        return 0, 0
    kept = [(size, step) for size, step in zip(sizes, strides, strict=True) if size > 1]
    if not kept:
        return 1, strides[-1]
    for (_, outer), (size, inner) in pairwise(kept):
        if outer != inner * size:
            return None
    return prod(size for size, _ in kept), kept[-1][1]


def _own_batch(view: ArrayView) -> Shape:
    """The batch dimensions of an operand ``as_matrices``, 1 where it is broadcast."""
    batch = zip(view.shape[:-2], view.strides[:-2], strict=True)
    return tuple(size if stride else 1 for size, stride in batch)


def _varies(view: ArrayView) -> bool:
    """Whether the matrices of a batch differ."""
    return any(size > 1 for size in _own_batch(view))


def _shown(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "()"
