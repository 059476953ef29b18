"""Outputs of a list of problems: their type, and the memory that they share with no other array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ....errors import DtypeError, ProblemError
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
from ..operands.output_overlap import same_elements
from .list_epilogue import SCALAR, ListEpilogue
from .problem_arrays import ProblemArrays

OUT = "out"


class ListedArray(NamedTuple):
    """An array of the call in the order of addresses. ``number``: of its problem; None for a scalar
    of all problems.
    """

    low: int
    end: int
    name: str
    number: int | None
    view: ArrayView

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}[{self.number}]"


def check_outputs(problems: Sequence[ProblemArrays], epilogue: ListEpilogue) -> None:
    """Raise DtypeError for outputs of another type than D's, and what ``check_outputs_apart``
    raises.
    """
    first = problems[0].out
    if first is None:
        return
    if first.dtype != epilogue.graph.d.type:
        raise DtypeError(f"out[0] must be {epilogue.graph.d.type}, as D is, got {first.dtype}")
    check_outputs_apart(_arrays(problems, epilogue))


def check_outputs_apart(arrays: Iterable[ListedArray]) -> None:
    """Raise ProblemError where an output shares memory with another array, unless that is an
    operand of its own problem, element by element. Only arrays whose spans meet are compared.
    """
    outs: list[ListedArray] = []  # those that end behind the array at hand
    others: list[ListedArray] = []
    for array in sorted(arrays, key=lambda x: x[:2]):
        outs = [x for x in outs if x.end > array.low]
        others = [x for x in others if x.end > array.low]
        for other in (*outs, *(others if array.name == OUT else ())):
            _check_apart(*((array, other) if array.name == OUT else (other, array)))
        (outs if array.name == OUT else others).append(array)


def _check_apart(out: ListedArray, other: ListedArray) -> None:
    d, x = out.view, other.view
    may_be_d = other.name not in (OUT, "a", "b") and other.number == out.number
    if overlap(d, x) and not (may_be_d and same_elements(x, d)):
        first, second = (other, out) if other.name == OUT else (out, other)
        raise ProblemError(f"{first} must not share memory with {second}")


def _arrays(problems: Sequence[ProblemArrays], epilogue: ListEpilogue) -> Iterator[ListedArray]:
    """All arrays with elements."""
    for name in ProblemArrays._fields:
        for i, problem in enumerate(problems):
            yield from listed_array(name, i, getattr(problem, name))
    for name, operand in epilogue.operands.items():
        for i, x in enumerate(() if operand.numbers else operand.arrays):
            yield from listed_array(name, i, x.view)
    device = problems[0].a.device
    for name, factor in epilogue.scalars.items():
        if factor.address:
            view = ArrayView(factor.address, (1,), (1,), SCALAR, device, True, None)
            yield from listed_array(name, None, view)


def listed_array(name: str, number: int | None, view: ArrayView) -> Iterator[ListedArray]:
    """An array of the call, if it has elements."""
    if 0 in view.shape:
        return
    steps = [(size - 1) * x for size, x in zip(view.shape, view.strides, strict=True)]
    low, high = sum(x for x in steps if x < 0), sum(x for x in steps if x > 0)
    begin, end = (view.address + x * view.itemsize for x in (low, high + 1))
    yield ListedArray(begin, end, name, number, view)
