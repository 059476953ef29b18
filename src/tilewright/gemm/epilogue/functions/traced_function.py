"""The graph of a function for epilogues that is called with values of other kinds: registers of a
kernel, arrays of a library that traces programs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....errors import EpilogueError
from ..graph import LOAD, EpilogueGraph, EpilogueOutput, GraphBuilder
from ..tracing import TracedValue


def traced_function(
    function: Callable[..., Any], arguments: Sequence[Any], types: Sequence[str | None],
    options: dict[str, Any],
) -> tuple[EpilogueGraph, bool]:  # fmt: skip
    """The graph of ``function(*arguments, **options)``, and whether it returns a tuple.

    An argument with a compute type is the graph's input of its position (``"0"``, …), another one
    (type None) is passed as it is. Raises EpilogueError if the function returns something else.
    """
    builder = GraphBuilder()
    traced = [
        x if type_ is None
        else TracedValue(builder, builder.add(LOAD, type_, (), (str(i), type_, "bmn")))
        for i, (x, type_) in enumerate(zip(arguments, types, strict=True))
    ]  # fmt: skip
    result = function(*traced, **options)
    results = result if isinstance(result, tuple) else (result,)
    for x in results:
        if not isinstance(x, TracedValue):
            raise EpilogueError(
                f"{function!r:.60} must return values of its arguments, got {x!r:.60}"
            )
    outputs = tuple(EpilogueOutput(str(i), x.index, x.dtype) for i, x in enumerate(results))
    return builder.graph(outputs), isinstance(result, tuple)
