"""Operators of matrices that are more than one array: ``Scaled``, ``Packed`` and ``Sparse24``."""

from __future__ import annotations

from typing import Any

from ..lazy_imports import provided
from .array_access import Array, numbers


class MatrixOperators:
    """``a @ b`` is ``tilewright.matmul(a, b)``, on either side of an array; ``numpy.asarray`` makes
    the dense matrix.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves ``array @ matrix`` to ``__rmatmul__``

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dense matrix."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def _dense(self) -> Any:
        """The dense matrix."""
        raise NotImplementedError

    def __matmul__(self, other: Any) -> Any:
        """``tilewright.matmul(self, other)``."""
        return provided("matmul")(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        """``tilewright.matmul(other, self)``."""
        return provided("matmul")(other, self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The dense matrix as a NumPy array. Raises DeviceError for arrays on a GPU, ValueError if
        ``copy`` is False.
        """
        if copy is False:
            name = type(self).__name__
            raise ValueError(f"the dense matrix of a {name} is a new array, got copy=False")
        values = numbers("the dense matrix", self._dense())
        return values.astype(dtype or values.dtype, copy=False)
