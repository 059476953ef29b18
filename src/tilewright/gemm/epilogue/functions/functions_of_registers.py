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
from ..graph import COMPUTE_TYPES
from .traced_function import traced_function


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
    types = [_type(x) if isinstance(x, Reg) else None for x in values]
    graph, several = traced_function(function, values, types, options)
    registers = {str(i): x for i, x in enumerate(values) if isinstance(x, Reg)}
    emitted = element_values(k, graph, (), registers, {})
    made = tuple(
        x if isinstance(x, Reg) else k.const(o.type, x)
        for x, o in zip(emitted, graph.outputs, strict=True)
    )
    return made if several else made[0]


def _type(x: Reg) -> str:
    if x.dtype.name not in COMPUTE_TYPES:
        raise KernelError(
            f"registers must be {', '.join(COMPUTE_TYPES)}, got {x.dtype.name}",
            hint="x.to('f32') converts it",
        )
    return x.dtype.name
