"""Arithmetic on one number or on a column of them (a NumPy array): one formula for a configuration
and for all candidates of a problem at once.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .problem import Problem

Column = npt.NDArray[Any]
N = TypeVar("N", int, Column)  # an integer of one configuration, or a column of candidates


def select(condition: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the condition holds, else ``no``; elementwise if the condition is a column."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def larger(x: Any, y: Any) -> Any:
    """The larger of two, elementwise for columns."""
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return np.maximum(x, y)
    return max(x, y)


def smaller(x: Any, y: Any) -> Any:
    """The smaller of two, elementwise for columns."""
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return np.minimum(x, y)
    return min(x, y)


def power_of_two_divisor(x: Any, limit: Any) -> Any:
    """The largest power of two that divides ``x``, at most ``limit``, a power of two."""
    return (x | limit) & -(x | limit)


def power4(x: Any) -> Any:
    """The fourth power, elementwise for columns."""
    square = x * x
    return square * square


def power6(x: Any) -> Any:
    """The sixth power, elementwise for columns."""
    square = x * x
    return square * square * square


def tile_count(problem: Problem, down: Column, across: Column) -> Column:
    """Tiles of the whole batch, exact: a column of Python's integers where D has more than 2⁴⁸
    elements.
    """
    large = problem.m * problem.n * problem.batch > 1 << 48
    return (down * across).astype(object if large else np.int64, copy=False) * problem.batch
