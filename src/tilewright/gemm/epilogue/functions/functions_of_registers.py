"""Functions for epilogues in kernels: ``k.exp(x)``, ``k.elementwise(tilewright.gelu, x)``.

A function is traced to a graph, as in an epilogue, and the graph is emitted for the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....builder import Builder, Reg
from ....errors import KernelError
from .. import functions
from ..emission import element_values
from ..graph import COMPUTE_TYPES, LOAD, EpilogueOutput, GraphBuilder
from ..tracing import TracedValue


def named(name: str) -> Callable[..., Any]:
    """The function of this name."""
    function: Callable[..., Any] = getattr(functions, name)
    return function


def call(
    k: Builder, function: Callable[..., Any], values: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """``function(*values, **options)`` in a kernel: a register, or a tuple of registers.

    Raises KernelError for a register of a type that functions for epilogues do not take.
    """
    graph = GraphBuilder()
    registers = {str(i): x for i, x in enumerate(values) if isinstance(x, Reg)}
    traced = [_traced(graph, str(i), x) for i, x in enumerate(values)]
    result = function(*traced, **options)
    results = result if isinstance(result, tuple) else (result,)
    for x in results:
        if not isinstance(x, TracedValue):
            raise KernelError(
                f"{function!r:.60} must return values of its registers, got {x!r:.60}"
            )
    outputs = tuple(EpilogueOutput(str(i), x.index, x.dtype) for i, x in enumerate(results))
    emitted = element_values(k, graph.graph(outputs), (), registers, {})
    made = tuple(
        x if isinstance(x, Reg) else k.const(o.type, x)
        for x, o in zip(emitted, outputs, strict=True)
    )
    return made if isinstance(result, tuple) else made[0]


def _traced(graph: GraphBuilder, name: str, x: Any) -> Any:
    if not isinstance(x, Reg):
        return x
    type_ = x.dtype.name
    if type_ not in COMPUTE_TYPES:
        raise KernelError(
            f"registers must be {', '.join(COMPUTE_TYPES)}, got {type_}",
            hint="x.to('f32') converts it",
        )
    return TracedValue(graph, graph.add(LOAD, type_, (), (name, type_, "bmn")))
