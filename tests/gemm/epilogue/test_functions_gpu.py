"""Functions of epilogues on a GPU: the bits that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from epilogue_functions import SEVERAL, UNARY, FunctionRow, graph_of
from epilogues import hostile, run_elements, same_bits
from tilewright.gemm.epilogue.functions import dropout
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import epilogue

pytestmark = pytest.mark.gpu
COUNT = 1 << 18


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize("row", UNARY + SEVERAL, ids=lambda row: row.name)
def test_a_function_has_numpys_bits(row: FunctionRow) -> None:
    graph = graph_of([row])
    acc, *operands = (hostile("f32", COUNT, seed) for seed in range(3))
    inputs = {i.name: x for i, x in zip(graph.inputs, operands, strict=False)}
    got = run_elements(graph, acc, inputs, "cuda")
    expected = evaluate(graph, acc, inputs)
    for name, array in got.items():
        wrong = ~same_bits(array, np.ascontiguousarray(expected[name]))
        assert not wrong.any(), (acc[wrong][:4], array[wrong][:4], expected[name][wrong][:4])


def test_dropout_has_numpys_bits() -> None:
    graph = epilogue(lambda acc: dropout(acc, 0.1, 2**40 + 3, 5)).trace("f32", ())
    acc = hostile("f32", COUNT, 0)
    expected = evaluate(graph, acc.reshape(-1, 16), {})["d"].ravel()
    assert same_bits(
        run_elements(graph, acc, {}, "cuda")["d"], np.ascontiguousarray(expected)
    ).all()
