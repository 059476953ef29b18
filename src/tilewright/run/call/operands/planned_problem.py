"""The arrays of ``Plan.run`` must pose the plan's problem; the error says in what they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ....errors import ProblemError

if TYPE_CHECKING:
    from ....gemm import Problem
    from ....gemm.epilogue.bound_epilogue import BoundEpilogue
    from ....gemm.epilogue.graph import EpilogueGraph

Difference = tuple[str, Any, Any]  # what differs, the plan's, the one of the arrays


def check_planned(planned: Problem, problem: Problem) -> None:
    """Raise ProblemError unless the problem of the arrays is the plan's."""
    if problem == planned:
        return
    differences = list(_differences(planned, problem))
    if [name for name, *_ in differences] == ["accumulated operand"]:
        [(_, name, _)] = differences
        what = f"the plan adds to D in place, so {name} must be the array out, got another array"
        raise ProblemError(what, hint=f"a plan made with another {name} reads it")
    what = f"the arrays must pose the plan's problem {planned}, got {problem}"
    shown = ", ".join(f"{name} {x} and {y}" for name, x, y in differences)
    raise ProblemError(what, hint=f"planned and got: {shown}")


def _differences(planned: Problem, problem: Problem) -> Iterator[Difference]:
    for field in fields(planned):
        x, y = (getattr(p, field.name) for p in (planned, problem))
        if x != y:
            both = field.name == "epilogue" and x is not None and y is not None
            yield from _of_epilogues(x, y) if both else [(field.name, _shown(x), _shown(y))]


def _of_epilogues(x: BoundEpilogue, y: BoundEpilogue) -> Iterator[Difference]:
    if x.accumulated != y.accumulated:
        yield "accumulated operand", x.accumulated or "none", y.accumulated or "none"
    if x.graph != y.graph:
        yield "epilogue", _text(x.graph), _text(y.graph)
        return
    names = [*(i.name for i in x.graph.inputs), *(o.name for o in x.graph.tensors[1:])]
    for name, *layouts in zip(names, (*x.inputs, *x.outputs), (*y.inputs, *y.outputs), strict=True):
        for field, one, other in zip(layouts[0]._fields, *layouts, strict=True):
            if one != other:
                yield f"{field} of {name}", one, other


def _text(graph: EpilogueGraph) -> str:
    """The operations, after the operands."""
    operands = (f"{x.name} {x.type} [{', '.join(x.varies)}]" for x in graph.inputs)
    return f"({', '.join(operands)}: {'; '.join(graph.text().splitlines())})"


def _shown(x: Any) -> str:
    return repr(x) if isinstance(x, str | int | None) else str(x)
