"""Epilogue graph: what is computed from the accumulator, as nodes that are PTX operations.

A graph is a list of nodes in order of evaluation; a node names its arguments by their index. Each
node stands for one value per element of D and has a compute type: f32, f64, s32, u32 or pred.
Equal nodes are one node. A graph is hashable, and its ``repr`` identifies a kernel in caches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from ...errors import EpilogueError
from ...notebook_display import Drawable

COMPUTE_TYPES = ("f32", "f64", "s32", "u32", "pred")
ACCUMULATOR, CONSTANT, LOAD, INDEX, ROUND = "accumulator", "constant", "load", "index", "round"
SOURCES = (ACCUMULATOR, CONSTANT, LOAD, INDEX)  # nodes without arguments
TENSOR = "tensor"  # an output with an element for each element of D
BIT = "b1"  # the type of inputs that are bitmasks; their values are conditions
BITMASK = "bitmask"  # an output with a bit for each element of D (``bitmasks``)
BITMASK_COLUMNS = 8  # of a byte
ACCUMULATED_TYPE = "f32"  # of D and of an operand that is D, where a kernel adds to D


class Node(NamedTuple):
    """One operation. ``attributes``: the bits of a constant; name, storage type and varying
    dimensions of a load; the dimension of an index; the storage type of a rounding.
    """

    op: str
    type: str
    args: tuple[int, ...] = ()
    attributes: tuple[Any, ...] = ()


class EpilogueInput(NamedTuple):
    """An operand of an epilogue function.

    ``varies``: the dimensions of D along which its elements differ, of ``b`` (batch), ``m`` and
    ``n`` in this order: ``""`` is a scalar, ``"n"`` a row vector, ``"mn"`` a matrix.
    """

    name: str
    type: str
    varies: str


class EpilogueOutput(NamedTuple):
    """A result: the value of a node. ``reduction``: ``tensor``, ``bitmask``, or how the elements
    along ``reduced`` (a subset of ``bmn``) are combined: ``max``, ``sum``.
    """

    name: str
    node: int
    type: str
    reduction: str = TENSOR
    reduced: str = ""

    @property
    def atomic(self) -> bool:
        """Whether kernels combine its elements by atomic maxima: their order does not matter, and
        a work tile has one each.
        """
        return self.reduction == "max" and {*"mn"} <= {*self.reduced}


@dataclass(frozen=True, slots=True)
class EpilogueGraph(Drawable):
    """Nodes and outputs of a traced epilogue function. The first tensor output is D. ``named``: the
    function returned a dict, so a call does, too.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[EpilogueOutput, ...]
    named: bool = False

    @property
    def inputs(self) -> tuple[EpilogueInput, ...]:
        """The operands in the order of their first use."""
        loads = (EpilogueInput(*node.attributes) for node in self.nodes if node.op == LOAD)
        return tuple(dict.fromkeys(loads))

    @property
    def tensors(self) -> tuple[EpilogueOutput, ...]:
        """The outputs with an element for each element of D; D is the first."""
        return tuple(o for o in self.outputs if o.reduction == TENSOR)

    @property
    def reductions(self) -> tuple[EpilogueOutput, ...]:
        """The outputs that combine elements, in a result or (a bitmask) in a byte."""
        return tuple(o for o in self.outputs if o.reduction != TENSOR)

    @property
    def d(self) -> EpilogueOutput:
        """The output that is the result D."""
        return self.tensors[0]

    def transposed(self) -> EpilogueGraph:
        """The graph of Dᵀ: rows and columns of D exchanged. Raises EpilogueError for bitmasks."""
        if any(o.reduction == BITMASK for o in self.outputs) or any(
            source.type == BIT for source in self.inputs
        ):
            raise EpilogueError("bitmasks need a result whose rows are contiguous")
        names = {"row": "column", "column": "row"}
        nodes = []
        for node in self.nodes:
            if node.op == LOAD:
                name, type_, varies = node.attributes
                node = node._replace(attributes=(name, type_, _exchanged(varies)))
            elif node.op == INDEX:
                dimension = node.attributes[0]
                node = node._replace(attributes=(names.get(dimension, dimension),))
            nodes.append(node)
        outputs = tuple(o._replace(reduced=_exchanged(o.reduced)) for o in self.outputs)
        return replace(self, nodes=tuple(nodes), outputs=outputs)

    def text(self) -> str:
        """The graph as one assignment for each node that has arguments, and the outputs."""
        lines = [f"{self.node_name(i)} = {self.formula(i)}" for i in self._computed()]
        lines += [f"{o.name} = {self._output(o)}" for o in self.outputs]
        return "\n".join(lines)

    def _computed(self) -> Iterator[int]:
        return (i for i, node in enumerate(self.nodes) if node.op not in SOURCES)

    def node_name(self, index: int) -> str:
        """The name of a node's value: an operand with its dimensions, a constant, ``%3``."""
        node = self.nodes[index]
        if node.op == ACCUMULATOR:
            return f"acc{node.attributes[0]}" if node.attributes else "acc"
        if node.op == CONSTANT:
            return f"{constant_value(node):g}"
        if node.op == LOAD:
            name, _, varies = node.attributes
            return f"{name}[{', '.join(varies)}]" if varies else str(name)
        return str(node.attributes[0]) if node.op == INDEX else f"%{index}"

    def formula(self, index: int) -> str:
        """A node's operation, type and arguments: ``add.f32(acc, bias[n])``."""
        node = self.nodes[index]
        arguments = [self.node_name(i) for i in node.args] + list(map(str, node.attributes))
        return f"{node.op}.{node.type}({', '.join(arguments)})"

    def _output(self, output: EpilogueOutput) -> str:
        if output.reduction == BITMASK:
            return f"bitmask of {self.node_name(output.node)}"
        value = f"{self.node_name(output.node)} as {output.type}"
        if output.reduction == TENSOR:
            return value
        return f"{output.reduction} over {', '.join(output.reduced)} of {value}"


def _exchanged(dimensions: str) -> str:
    exchanged = {{"m": "n", "n": "m"}.get(d, d) for d in dimensions}
    return "".join(d for d in "bmn" if d in exchanged)


def constant_value(node: Node) -> float | int:
    """The number of a constant node."""
    (bits,) = node.attributes
    forms = {"f32": ("<I", "<f"), "f64": ("<Q", "<d"), "s32": ("<I", "<i")}
    if node.type not in forms:
        return int(bits)
    unsigned, form = forms[node.type]
    value: float | int = struct.unpack(form, struct.pack(unsigned, bits))[0]
    return value


class FunctionCall(NamedTuple):
    """A function of ``functions`` that made a value: its name and arguments, traced values among
    them.
    """

    function: str
    arguments: Mapping[str, Any]


class GraphBuilder:
    """Collects nodes while an epilogue function is traced. ``calls``: for a value that a function
    returned, the outermost such call, whose derivative is better known than that of its nodes.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.calls: dict[int, FunctionCall] = {}
        self._index: dict[Node, int] = {}

    def add(
        self, op: str, type_: str, args: tuple[int, ...] = (), attributes: tuple[Any, ...] = ()
    ) -> int:
        """The index of this node, which is new unless an equal one exists."""
        node = Node(op, type_, args, attributes)
        index = self._index.get(node)
        if index is None:
            index = self._index[node] = len(self.nodes)
            self.nodes.append(node)
        return index

    def graph(self, outputs: tuple[EpilogueOutput, ...], named: bool = False) -> EpilogueGraph:
        """The graph of these outputs, without nodes that no output needs. A tensor output that is
        a rounding to its own type takes the value before: it is rounded once, when it is stored.
        """
        outputs = tuple(self._unrounded(o) for o in outputs)
        needed = set()
        stack = [o.node for o in outputs]
        while stack:
            index = stack.pop()
            if index not in needed:
                needed.add(index)
                stack.extend(self.nodes[index].args)
        numbers = {old: new for new, old in enumerate(sorted(needed))}
        nodes = []
        for old in numbers:
            node = self.nodes[old]
            nodes.append(node._replace(args=tuple(numbers[i] for i in node.args)))
        renumbered = tuple(o._replace(node=numbers[o.node]) for o in outputs)
        return EpilogueGraph(tuple(nodes), renumbered, named)

    def _unrounded(self, output: EpilogueOutput) -> EpilogueOutput:
        node = self.nodes[output.node]
        if output.reduction == TENSOR and node.op == ROUND and node.attributes == (output.type,):
            return output._replace(node=node.args[0])
        return output


@lru_cache(maxsize=256)
def without_sum(graph: EpilogueGraph, name: str) -> EpilogueGraph | None:
    """The graph whose D is x where that of ``graph`` is x + ``name``, an f32 matrix that nothing
    else reads; None for any other graph.

    Where the operand is the array that D is written to, a kernel may add x to D in memory. The bits
    are those of the sum in registers: both round to nearest, keep subnormals and have one NaN, and
    each element is added to once.
    """
    output = graph.d
    last = graph.nodes[output.node]
    if (last.op, last.type, output.type) != ("add", ACCUMULATED_TYPE, ACCUMULATED_TYPE):
        return None
    loads = [i for i in last.args if _is_load(graph.nodes[i], name)]
    if len(loads) != 1:
        return None
    rest = next(i for i in last.args if i != loads[0])
    builder = GraphBuilder()
    builder.nodes = list(graph.nodes)
    outputs = tuple(o._replace(node=rest) if o is output else o for o in graph.outputs)
    found = builder.graph(outputs, graph.named)
    return None if any(source.name == name for source in found.inputs) else found


def _is_load(node: Node, name: str) -> bool:
    return node.op == LOAD and node.attributes[:2] == (name, ACCUMULATED_TYPE)
