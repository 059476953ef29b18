"""The dimensions of a result D for a backward kernel: as a matrix, or as a stack of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor


class ResultDimensions:
    """D's shape (…, M, N). Its leading dimensions are rows of a matrix, or, where an epilogue reads
    an element's index, one dimension of a stack. ``grouped``: the shape of that.
    """

    def __init__(self, shape: Sequence[int], indexed: bool) -> None:
        self.shape = tuple(shape)
        *lead, rows, columns = self.shape
        self.groups = [tuple(lead), (rows,), (columns,)]
        if not (lead and indexed):
            self.groups = [(*lead, rows), (columns,)]
        self.grouped = tuple(prod(sizes) for sizes in self.groups)

    def operand(self, x: Tensor) -> Tensor:
        """What broadcasts to D, so that it broadcasts to the grouped shape."""
        shape = self._expanded(x)
        sizes = [prod(s) for s in self._split(shape)]
        return x.reshape(self._aligned(x)).expand(shape).reshape(sizes)

    def broadcast_axes(self, x: Tensor) -> tuple[int, ...]:
        """The axes of the grouped shape along which an operand does not vary, from the end."""
        parts = self._split(self._expanded(x))
        return tuple(i - len(parts) for i, sizes in enumerate(parts) if prod(sizes) == 1)

    def of_operand(self, gradient: Tensor, x: Tensor) -> Tensor:
        """An operand's gradient: that of a kernel, which may have added up ``broadcast_axes``."""
        shape = self.shape if gradient.shape == self.grouped else self._expanded(x)
        gradient = gradient.reshape(shape).sum_to_size(self._aligned(x))
        return gradient.reshape(x.shape).to(x.dtype)

    def unreduced(self, gradient: Tensor, reduced: str) -> Tensor:
        """The gradient of a sum along some of the dimensions b, m, n, as it broadcasts to D."""
        names = "b" * (len(self.shape) - 2) + "mn"
        sizes = [1 if name in reduced else n for name, n in zip(names, self.shape, strict=True)]
        return gradient.reshape(sizes)

    def _aligned(self, x: Tensor) -> tuple[int, ...]:
        return (*(1,) * (len(self.shape) - x.ndim), *x.shape)

    def _split(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        """A shape's sizes in the groups of D's dimensions."""
        parts, at = [], 0
        for sizes in self.groups:
            parts.append(tuple(shape[at : at + len(sizes)]))
            at += len(sizes)
        return parts

    def _expanded(self, x: Tensor) -> tuple[int, ...]:
        """The operand's shape, expanded to D's in each group of dimensions where it varies."""
        parts = zip(self._split(self._aligned(x)), self.groups, strict=True)
        return tuple(
            n for own, full in parts for n in (full if any(size != 1 for size in own) else own)
        )
