"""Epilogue visitor trees: an epilogue composed from nodes instead of traced from a function.

    visitor_tree(
        Compute(gelu, Compute("fma", Load("alpha"), Accumulator(), Load("bias")))
    )

is the epilogue of ``lambda acc, alpha, bias: gelu(fma(alpha, acc, bias))``, with the same graph.
``Store`` writes its child's value to an output and passes it on, as CUTLASS's Sm90AuxStore does, so
it may be anywhere in a tree. A node that several others have as a child is computed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...dtypes import DType
from ...errors import EpilogueError
from .operations import OPERATIONS
from .traced_reduction import TracedReduction
from .tracing import Epilogue, apply, cast


class VisitorNode:
    """A node of a visitor tree."""

    @property
    def inputs(self) -> tuple[VisitorNode, ...]:
        """The children, in the order of evaluation."""
        return ()


@dataclass(frozen=True, eq=False)
class Accumulator(VisitorNode):
    """The product's accumulator (Sm90AccFetch); 1 is that of the second matrix B."""

    number: int = 0


@dataclass(frozen=True, eq=False)
class Load(VisitorNode):
    """The operand of this name (Sm90SrcFetch, Sm90AuxLoad, Sm90RowBroadcast, Sm90ColBroadcast,
    Sm90ScalarBroadcast: by its shape). ``default``: the number it is if it is left out.
    """

    name: str
    default: float | None = None


@dataclass(frozen=True, eq=False, init=False)
class Compute(VisitorNode):
    """An operation of its children (Sm90Compute): a name of ``operations.OPERATIONS``, or a
    function of values such as ``gelu``. A child that is a number is a constant.
    """

    operation: str | Callable[..., Any]
    children: tuple[Any, ...]

    def __init__(self, operation: str | Callable[..., Any], *children: Any) -> None:
        if isinstance(operation, str) and operation not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise EpilogueError(f"the operation must be one of {known}, got {operation!r:.40}")
        object.__setattr__(self, "operation", operation)
        object.__setattr__(self, "children", children)

    @property
    def inputs(self) -> tuple[VisitorNode, ...]:
        return tuple(c for c in self.children if isinstance(c, VisitorNode))


@dataclass(frozen=True, eq=False)
class Store(VisitorNode):
    """An output of this name (Sm90AuxStore; of a reduction: Sm90ScalarReduction, Sm90RowReduction,
    Sm90ColReduction), cast to ``type`` if that is not None. Its value is its child's, not rounded.
    """

    name: str
    child: VisitorNode
    type: str | DType | None = None

    @property
    def inputs(self) -> tuple[VisitorNode, ...]:
        return (self.child,)


def visitor_tree(root: VisitorNode, *stores: Store) -> Epilogue:
    """The epilogue of a tree. The root's value is D (``d``, unless the root is a ``Store``);
    ``stores`` are outputs that are not part of its tree. Without any ``Store`` a call returns D,
    else a dict.

    Raises EpilogueError for nodes of another type and for two outputs of one name.
    """
    nodes = list(_nodes((root, *stores)))
    outputs = [node for node in dict.fromkeys(nodes) if isinstance(node, Store)]
    names = [s.name for s in outputs] + ([] if isinstance(root, Store) else ["d"])
    if len(set(names)) < len(names):
        raise EpilogueError(f"the outputs of a tree must have different names, got {names}")

    def epilogue(*accumulators: Any, **operands: Any) -> Any:
        visit = _Visit(accumulators, operands)
        d = visit.value(root)
        for store in stores:
            visit.value(store)
        if not outputs:
            return d
        return visit.results if isinstance(root, Store) else {"d": d, **visit.results}

    epilogue.__name__ = "visitor_tree"
    epilogue.__signature__ = _signature(nodes)  # type: ignore[attr-defined]
    return Epilogue(epilogue)


def _nodes(roots: tuple[Any, ...]) -> Iterator[VisitorNode]:
    """All nodes of trees, the children before their parents."""
    for root in roots:
        if not isinstance(root, VisitorNode):
            raise EpilogueError(f"a tree must consist of its node types, got {root!r:.60}")
        yield from _nodes(root.inputs)
        yield root


def _signature(nodes: list[VisitorNode]) -> inspect.Signature:
    """The accumulators, then the operands by name."""
    kind, none = inspect.Parameter, inspect.Parameter.empty
    last = max((node.number for node in nodes if isinstance(node, Accumulator)), default=0)
    names = ["acc", *(f"acc{i}" for i in range(1, last + 1))]
    loads = {node.name: node.default for node in nodes if isinstance(node, Load)}
    operands = [
        kind(name, kind.KEYWORD_ONLY, default=none if default is None else default)
        for name, default in loads.items()
    ]
    return inspect.Signature([*(kind(n, kind.POSITIONAL_OR_KEYWORD) for n in names), *operands])


class _Visit:
    """One evaluation of a tree while it is traced: the values of nodes, and the outputs."""

    def __init__(self, accumulators: tuple[Any, ...], operands: dict[str, Any]) -> None:
        self.accumulators, self.operands = accumulators, operands
        self.values: dict[VisitorNode, Any] = {}
        self.results: dict[str, Any] = {}

    def value(self, node: Any) -> Any:
        if not isinstance(node, VisitorNode):
            return node
        if node not in self.values:
            self.values[node] = self._evaluated(node)
        return self.values[node]

    def _evaluated(self, node: VisitorNode) -> Any:
        if isinstance(node, Accumulator):
            return self.accumulators[node.number]
        if isinstance(node, Load):
            return self.operands[node.name]
        if isinstance(node, Store):
            value = self.value(node.child)
            whole = node.type is None or isinstance(value, TracedReduction)
            self.results[node.name] = value if whole else cast(value, node.type or "f32")
            return value
        if isinstance(node, Compute):
            children = [self.value(child) for child in node.children]
            if isinstance(node.operation, str):
                return apply(node.operation, *children)
            return node.operation(*children)
        raise EpilogueError(f"a tree must consist of its node types, got {node!r:.60}")
