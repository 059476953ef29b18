"""The epilogue of a list of problems: operands of each problem, or of all of them.

number, array of one element       a scalar of all problems
array                              it broadcasts to D of every problem
list of arrays                     element i broadcasts to D of problem i
list of numbers                    a scalar for each problem
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ....errors import EpilogueError
from ....gemm.epilogue.bound_epilogue import EpilogueOperandLayout, operand_align
from ....gemm.epilogue.graph import EpilogueGraph
from ....gemm.epilogue.tracing import epilogue
from ....gemm.tma.problem_list.problem_table import OperandOfProblems
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ..alpha_beta import ScaleFactor, scale_factor
from ..epilogue_request import ONE, ZERO, Operands, is_scalar, named_operands, traced_graph
from ..matrix_layout import MAX_ALIGN
from ..operands.array_operand import ArrayOperand, array_operand
from ..request import MatmulOptions, Request
from .problem_arrays import ProblemArrays, element_view

SCALAR = "f32"
NOWHERE = (0, 0, 0)  # strides of an operand that does not vary


class ListOperand(NamedTuple):
    """An operand that is no scalar of all problems: arrays, one for each, or ``numbers``."""

    arrays: tuple[ArrayOperand, ...]
    numbers: tuple[float, ...] = ()

    @property
    def operand(self) -> ArrayOperand:
        """The operand as the graph has it: it varies as that of any problem does."""
        varies = "".join(d for d in "mn" if any(d in x.varies for x in self.arrays))
        return self.arrays[0]._replace(varies=varies or "n")

    @property
    def key(self) -> Any:
        """Strides, alignments, and the bits of numbers, since -0.0 equals 0.0."""
        arrays = ((x.strides, x.view.address % MAX_ALIGN) for x in self.arrays)
        return np.array(self.numbers).tobytes(), *arrays

    def strides(self, numbers: Sequence[int]) -> OperandOfProblems:
        """The strides of these problems, or their numbers."""
        if self.numbers:
            zeros = np.zeros(len(numbers), np.int64)
            return OperandOfProblems(zeros, zeros, np.array([self.numbers[i] for i in numbers]))
        m, n = (np.array([self.arrays[i].strides[d] for i in numbers], np.int64) for d in (0, 1))
        return OperandOfProblems(m, n)

    def layout(self, numbers: Sequence[int], columns: Sequence[int]) -> EpilogueOperandLayout:
        """How these problems' arrays are stored: aligned as the least aligned one."""
        if self.numbers:
            return EpilogueOperandLayout(4, contiguous=False)
        arrays = [self.arrays[i] for i in numbers]
        contiguous = all(x.strides[1] == 1 or n == 1 for x, n in zip(arrays, columns, strict=True))
        align = min(
            operand_align(x.view.address % MAX_ALIGN, x.strides[0], 0, n, x.view.dtype)
            for x, n in zip(arrays, columns, strict=True)
        )
        return EpilogueOperandLayout(align, contiguous)


class ListEpilogue(NamedTuple):
    """The graph, the operands by name, and the scalars in the graph's order."""

    graph: EpilogueGraph
    operands: Mapping[str, ListOperand]
    scalars: Mapping[str, ScaleFactor]

    @property
    def inputs(self) -> tuple[ListOperand | None, ...]:
        """The graph's inputs, None for scalars of all problems."""
        return tuple(self.operands.get(source.name) for source in self.graph.inputs)

    @property
    def key(self) -> Any:
        """What a plan depends on besides the graph."""
        return tuple(x and x.key for x in self.inputs)

    @property
    def scales(self) -> tuple[ScaleFactor, ...]:
        """α and β, which have no effect, then the scalars."""
        return (ONE, ZERO, *(self.scalars[i.name] for i in self.graph.inputs if not i.varies))


def list_epilogue(
    function: Any, given: Mapping[str, Any], problems: Sequence[ProblemArrays], request: Request,
    options: MatmulOptions,
) -> ListEpilogue:  # fmt: skip
    """The epilogue of a call; ``request``: of the first problem.

    Raises EpilogueError for operands that do not broadcast to D, and for results besides D.
    """
    traced = epilogue(function)
    named = named_operands(traced.parameters[1:], traced, given)
    operands, lists = Operands({}, {}, {}), dict[str, ListOperand]()
    for name, value in named.items():
        if value is None or isinstance(value, bool | str):
            operands.static[name] = value
        elif not isinstance(value, tuple | list) and is_scalar(value, SCALAR):
            where = request.a.device
            operands.scalars[name] = scale_factor(name, value, where, SCALAR)
        else:
            lists[name] = _list_operand(name, value, problems, request)
            operands.arrays[name] = lists[name].operand
    types = "s32" if request.a.dtype in ("s8", "u8") else "f32", request.a.dtype
    graph = traced_graph(traced, operands, types, 1, options, problems[0].out)
    if len(graph.outputs) > 1:
        more = graph.outputs[1].name
        raise EpilogueError(f"an epilogue of a list of problems must return D alone, got {more}")
    return ListEpilogue(graph, lists, operands.scalars)


def _list_operand(
    name: str, value: Any, problems: Sequence[ProblemArrays], request: Request
) -> ListOperand:
    """An operand whose arrays or numbers are of the problems."""
    if not isinstance(value, tuple | list):
        value = [value] * len(problems)
    if len(value) != len(problems):
        count = len(problems)
        raise EpilogueError(f"{name} must have an element for each of {count}, got {len(value)}")
    if all(isinstance(x, Real) and not array_view.is_array(x) for x in value):
        factors = (scale_factor(name, x, request.a.device, SCALAR) for x in value)
        number = ArrayView(0, (1, 1), (1, 1), SCALAR, request.a.device, True, None)
        return ListOperand(
            (ArrayOperand(number, "n", NOWHERE, SCALAR),), tuple(f.value for f in factors)
        )
    arrays = []
    for i, (x, problem) in enumerate(zip(value, problems, strict=True)):
        view, (m, n, k) = element_view(f"{name}[{i}]", x), problem.mnk
        own = request._replace(
            a=request.a._replace(shape=(m, k)), b=request.b._replace(shape=(k, n))
        )
        operand = array_operand(f"{name}[{i}]", view, (1, m, n), own, request.a.device)
        arrays.append(_compact(operand) if view.device == "cpu" else operand)
        if arrays[i].type != arrays[0].type:
            one, other = arrays[0].type, arrays[i].type
            raise EpilogueError(f"{name}[{i}] must be {one}, as {name}[0] is, got {other}")
    return ListOperand(tuple(arrays))


def _compact(operand: ArrayOperand) -> ArrayOperand:
    """An array on the CPU as it is uploaded: what it varies along, contiguous."""
    m, n, _ = operand.strides
    columns = operand.view.shape[-1] if n else 1
    return operand._replace(strides=(columns if m else 0, int(n != 0), 0))
