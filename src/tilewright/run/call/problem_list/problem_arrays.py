"""The matrices of a list of problems, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....errors import DeviceError, DtypeError, ProblemError
from ...arrays import array_view
from ...arrays.array_view import ArrayView


class ProblemArrays(NamedTuple):
    """A, B and D of a problem, D as the caller passed it."""

    a: ArrayView
    b: ArrayView
    out: ArrayView | None = None

    @property
    def mnk(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]


def problem_arrays(a: Sequence[Any], b: Any, out: Any) -> list[ProblemArrays]:
    """The matrices of each problem; ``out``: a list of D, or None.

    Raises ProblemError for lists of other lengths and shapes that do not fit, DtypeError and
    DeviceError for matrices that differ in type or device.
    """
    check_lengths(a, b, out)
    lists = {"a": _matrices("a", a), "b": _matrices("b", b)}
    if out is not None:
        lists["out"] = _matrices("out", out)
    where = lists["a"][0].device
    for name, i, view in _named(lists):
        if view.device != where:
            raise DeviceError(f"{name}[{i}] must be on {where}, where a[0] is, got {view.device}")
    problems = [ProblemArrays(*views) for views in zip(*lists.values(), strict=True)]
    for i, problem in enumerate(problems):
        _check_shapes(i, problem)
    return problems


def check_lengths(a: Sequence[Any], b: Any, out: Any) -> None:
    """Raise ProblemError unless there is a B, and an output, for each A."""
    if not isinstance(b, tuple | list) or len(b) != len(a) or not a:
        got = len(b) if isinstance(b, tuple | list) else type(b).__name__
        what = "a and b must be two lists of equal length, of 1 or more matrices"
        raise ProblemError(f"{what}, got {len(a)} and {got}")
    if out is not None and (not isinstance(out, tuple | list) or len(out) != len(a)):
        got = len(out) if isinstance(out, tuple | list) else type(out).__name__
        raise ProblemError(f"out must be a list of {len(a)} matrices, got {got}")


def element_view(name: str, array: Any) -> ArrayView:
    """The view of an element of a list. Raises ProblemError for what is no array."""
    if not array_view.is_array(array) or isinstance(array, np.generic):
        raise ProblemError(f"{name} must be an array, got {type(array).__name__}")
    return array_view.view(array)


def _matrices(name: str, arrays: Sequence[Any]) -> list[ArrayView]:
    views = [element_view(f"{name}[{i}]", x) for i, x in enumerate(arrays)]
    for i, view in enumerate(views):
        if len(view.shape) != 2:
            raise ProblemError(f"{name}[{i}] must be a matrix, got shape {view.shape}")
        if view.dtype != views[0].dtype:
            first = views[0].dtype
            raise DtypeError(f"{name}[{i}] must be {first}, as {name}[0] is, got {view.dtype}")
    return views


def _named(lists: dict[str, list[ArrayView]]) -> Iterator[tuple[str, int, ArrayView]]:
    return ((name, i, view) for name, views in lists.items() for i, view in enumerate(views))


def _check_shapes(i: int, problem: ProblemArrays) -> None:
    a, b, out = problem
    if a.shape[1] != b.shape[0]:
        shapes = f"got a[{i}] {a.shape} and b[{i}] {b.shape}"
        raise ProblemError(f"a[{i}] must have as many columns as b[{i}] has rows, {shapes}")
    if out is None:
        return
    shape = a.shape[0], b.shape[1]
    if out.shape != shape:
        raise ProblemError(f"out[{i}] must have the shape {shape}, got {out.shape}")
    if out.readonly:
        raise ProblemError(f"out[{i}] must be writable, got a read-only array")
    rows, pitch = shape[0], out.strides[0]
    contiguous = shape[1] <= 1 or out.strides[1] == 1
    if 0 not in shape and (not contiguous or (rows > 1 and pitch < shape[1])):
        raise ProblemError(f"out[{i}] must have contiguous rows, got strides {out.strides}")
