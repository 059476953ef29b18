"""Each operation of epilogue graphs: the virtual machine gives the bits that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from epilogues import hostile, run_elements, same_bits
from tilewright.gemm.epilogue import tracing
from tilewright.gemm.epilogue.graph import EpilogueGraph, EpilogueOutput, GraphBuilder
from tilewright.gemm.epilogue.operations import OPERATIONS
from tilewright.gemm.epilogue.reference import NUMPY_TYPES, evaluate

CASES = [
    (name, type_) for name, row in OPERATIONS.items() for type_ in row.opcodes if type_ != "pred"
]
COUNT = 1024


def graph_of(name: str, type_: str) -> EpilogueGraph:
    """One operation on the accumulator and inputs x1, x2; predicates become 1 or 0."""
    builder = GraphBuilder()
    row = OPERATIONS[name]
    operands = [tracing.TracedValue(builder, builder.add("accumulator", type_))]
    for i in range(1, row.arity - row.condition):
        node = builder.add("load", type_, (), (f"x{i}", type_, "mn"))
        operands.append(tracing.TracedValue(builder, node))
    if row.condition:
        operands.insert(0, tracing.apply("lt", *operands))
    value = tracing.apply(name, *operands)
    if value.dtype == "pred":
        one, zero = (tracing.constant(builder, x, "f32") for x in (1.0, 0.0))
        value = tracing.apply("select", value, one, zero)
    return builder.graph((EpilogueOutput("d", value.index, value.dtype),))


@pytest.mark.vm
@pytest.mark.parametrize(("name", "type_"), CASES)
def test_operation_has_numpys_bits(name: str, type_: str) -> None:
    graph = graph_of(name, type_)
    acc, *inputs = (hostile(type_, COUNT, seed) for seed in range(3))
    if name in ("shl", "shr"):
        inputs[0] = inputs[0] % np.uint32(40)
    names = [i.name for i in graph.inputs]
    named = dict(zip(names, inputs, strict=False))
    got = run_elements(graph, acc, named)["d"]
    expected = evaluate(graph, acc, named)["d"]
    wrong = ~same_bits(got, np.ascontiguousarray(expected))
    assert got.dtype == expected.dtype == NUMPY_TYPES[graph.nodes[graph.d.node].type]
    assert not wrong.any(), (acc[wrong][:4], got[wrong][:4], expected[wrong][:4])
