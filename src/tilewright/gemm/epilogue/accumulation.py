"""Accumulation in place: an epilogue whose D ends with a sum with D's own memory.

Where D = x + c, and c is the array that D is written to, a kernel needs no c: it adds x to D by
reductions in memory (kernel ``tma``: ``cp.reduce.async.bulk.tensor``). The bits are those of the
sum in registers: both round to nearest, keep subnormals and have one NaN, and each element is
added to once.
"""

from __future__ import annotations

from functools import lru_cache

from .graph import LOAD, EpilogueGraph, GraphBuilder

SUM_TYPE = "f32"  # of D, of the operand and of their sum


@lru_cache(maxsize=256)
def without_sum(graph: EpilogueGraph, name: str) -> EpilogueGraph | None:
    """The graph whose D is x where that of ``graph`` is x + ``name``, an f32 matrix that nothing
    else reads; None for any other graph.
    """
    output = graph.d
    last = graph.nodes[output.node]
    if (last.op, last.type, output.type) != ("add", SUM_TYPE, SUM_TYPE):
        return None
    loads = [i for i in last.args if _is_load(graph, i, name)]
    if len(loads) != 1:
        return None
    rest = next(i for i in last.args if i != loads[0])
    builder = GraphBuilder()
    builder.nodes = list(graph.nodes)
    outputs = tuple(o._replace(node=rest) if o is output else o for o in graph.outputs)
    found = builder.graph(outputs, graph.named)
    return None if any(source.name == name for source in found.inputs) else found


def _is_load(graph: EpilogueGraph, index: int, name: str) -> bool:
    node = graph.nodes[index]
    return node.op == LOAD and node.attributes[:2] == (name, SUM_TYPE)
