"""Gradients of traced values, as more nodes of the same graph: reverse mode over its nodes.

dx = pulled_back([(y, dy)])[x.index]      y = f(x) was traced, dy is the gradient of y
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from ..graph import SOURCES
from ..operations import FLOATS
from ..tracing import TracedValue, convert
from .operation_rules import FUNCTION_RULES, OPERATION_RULES


def pulled_back(results: Iterable[tuple[TracedValue, TracedValue]]) -> dict[int, TracedValue]:
    """The gradients of a graph's sources (accumulators, loads), by their nodes' indices, from pairs
    of a value and its gradient. A source that no gradient reaches is absent.
    """
    pending: dict[int, TracedValue] = {}
    order: list[int] = []  # a heap: users before what they use
    found: dict[int, TracedValue] = {}

    def add(value: TracedValue, gradient: Any) -> None:
        if value.dtype not in FLOATS:
            return
        gradient = convert(value.builder, gradient, value.dtype)
        if value.index in pending:
            pending[value.index] = pending[value.index] + gradient
        else:
            pending[value.index] = gradient
            heappush(order, -value.index)

    for value, gradient in results:
        add(value, gradient)
    while order:
        index = -heappop(order)
        gradient = pending.pop(index)
        value = TracedValue(gradient.builder, index)
        if value.builder.nodes[index].op in SOURCES:
            found[index] = gradient
        for operand, part in _parts(value, gradient):
            add(operand, part)
    return found


def _parts(value: TracedValue, gradient: TracedValue) -> Iterator[tuple[TracedValue, Any]]:
    """What made a value, each with its part of the gradient."""
    builder = value.builder
    node, called = builder.nodes[value.index], builder.calls.get(value.index)
    if called is not None and called.function in FUNCTION_RULES:
        given = FUNCTION_RULES[called.function](gradient, value, called.arguments)
        for name, part in given.items():
            if isinstance(argument := called.arguments[name], TracedValue):
                yield argument, part
        return
    rule = OPERATION_RULES.get(node.op)
    if rule is not None:
        operands = [TracedValue(builder, i) for i in node.args]
        for operand, part in zip(operands, rule(gradient, value, *operands), strict=True):
            if part is not None:
                yield operand, part
