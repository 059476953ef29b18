"""Many random epilogue trees in one kernel: the virtual machine gives the bits that NumPy gives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from epilogue_trees import NODES, Step, as_type, one_graph
from epilogues import hostile, run_elements, same_bits
from examples import ALL
from tilewright.gemm.epilogue.graph import EpilogueOutput
from tilewright.gemm.epilogue.reference import evaluate

COUNT, TREES, DEPTH = 512, 16, 12
TYPES = ("f32", "f32", "s32", "u32", "f32")


def random_steps(rng: random.Random, count: int, first: int) -> list[Step]:
    """Steps of which the first is node ``first`` of ``NODES``, so that many trees have them all."""
    choices = [first, *(rng.randrange(len(NODES)) for _ in range(count - 1))]
    return [(c, rng.randrange(50), rng.randrange(50), rng.randrange(50)) for c in choices]


@pytest.mark.vm
@pytest.mark.parametrize("seed", range(60 if ALL else 5))
def test_trees_have_numpys_bits(seed: int) -> None:
    rng = random.Random(seed)
    recipes = [random_steps(rng, rng.randint(1, DEPTH), seed * TREES + i) for i in range(TREES)]
    builder, values = one_graph(recipes, TYPES)
    values = [as_type(x, "f32") if x.dtype == "pred" else x for x in values]
    outputs = tuple(EpilogueOutput(f"y{i}", x.index, x.dtype) for i, x in enumerate(values))
    graph = builder.graph(outputs)
    acc, *operands = (hostile(t, COUNT, seed + i) for i, t in enumerate(TYPES))
    every = {f"x{i}": x for i, x in enumerate(operands)}
    inputs = {source.name: every[source.name] for source in graph.inputs}
    got = run_elements(graph, acc, inputs)
    shaped = {name: x.reshape(-1, 16) for name, x in inputs.items()}
    expected = evaluate(graph, acc.reshape(-1, 16), shaped)
    for i, steps in enumerate(recipes):
        bits = np.ascontiguousarray(expected[f"y{i}"]).reshape(-1)
        wrong = ~same_bits(got[f"y{i}"], bits)
        tree = [(NODES[c % len(NODES)], *picks) for c, *picks in steps]
        assert not wrong.any(), (tree, acc[wrong][:4], got[f"y{i}"][wrong][:4], bits[wrong][:4])
