"""Reverse-mode derivatives of graphs: finite differences of each function's f64 formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from epilogue_functions import SEVERAL, UNARY, Array, FunctionRow, normal, sigmoid
from rows import every_row
from tilewright.gemm.epilogue.derivatives.operation_rules import OPERATION_RULES
from tilewright.gemm.epilogue.derivatives.reverse_mode import pulled_back
from tilewright.gemm.epilogue.graph import LOAD, EpilogueOutput, GraphBuilder
from tilewright.gemm.epilogue.operations import FLOATS, OPERATIONS
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import TracedValue

STEP = 1e-5
KINKS = (-3.0, 0.0, 3.0, 6.0)


def gradients(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    """The gradients of ``function(*arrays)`` for a gradient of 1, by NumPy."""
    builder = GraphBuilder()
    names = [*map(str, range(len(arrays))), "dy"]
    sources = [
        TracedValue(builder, builder.add(LOAD, "f32", (), (name, "f32", "mn"))) for name in names
    ]
    found = pulled_back([(function(*sources[:-1]), sources[-1])])
    outputs = tuple(
        EpilogueOutput(name, found[source.index].index, "f32")
        for name, source in zip(names, sources[:-1], strict=False)
        if source.index in found
    )
    inputs = dict(zip(names, (*arrays, np.ones_like(arrays[0])), strict=True))
    named = evaluate(builder.graph(outputs), arrays[0], inputs)
    return [named.get(name, np.zeros_like(arrays[0])) for name in names[:-1]]


def slopes(formula: Callable[..., Any], *arrays: Array) -> list[Array]:
    """Central differences in f64."""
    wide = [x.astype(np.float64) for x in arrays]
    found = []
    for i, x in enumerate(wide):
        ends = [formula(*wide[:i], x + step, *wide[i + 1 :]) for step in (STEP, -STEP)]
        found.append((ends[0] - ends[1]) / (2 * STEP))
    return found


def agree(function: Callable[..., Any], formula: Callable[..., Any], *arrays: Array) -> None:
    for got, want in zip(gradients(function, *arrays), slopes(formula, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def points(positive: bool) -> Array:
    """Values apart from the kinks of all functions."""
    x = np.linspace(0.02 if positive else -8, 8, 997).astype(np.float32).reshape(1, -1)
    return x[:, np.all([abs(x[0] - kink) > 1e-3 for kink in KINKS], axis=0)]


def _id(row: FunctionRow) -> str:
    return row.name


@pytest.mark.parametrize("row", [r for r in UNARY if r.formula], ids=_id)
def test_functions_of_one_value(row: FunctionRow) -> None:
    positive = any(name in row.name for name in ("log", "sqrt", "reciprocal"))
    agree(row.function, row.formula or abs, points(positive))


@pytest.mark.parametrize("row", [r for r in SEVERAL if r.formula], ids=_id)
def test_functions_of_several_values(row: FunctionRow) -> None:
    random = np.random.default_rng(0)
    arrays = [(2 * random.standard_normal((1, 500))).astype(np.float32) for _ in range(row.arity)]
    if row.name == "clamp":
        arrays[1], arrays[2] = -abs(arrays[1]), abs(arrays[2]) + 0.1
    agree(row.function, row.formula or abs, *arrays)


def test_functions_that_are_composed() -> None:
    def function(x: Any, y: Any) -> Any:
        gated = tilewright.geglu(x, y) - tilewright.swiglu(y, x)
        kept = tilewright.where(x > y, gated, x * x)
        return abs(kept) / (1 + y**2) + tilewright.cast(x, "f32") ** 3 * 0.1 + (-x) * y

    def formula(x: Array, y: Array) -> Array:
        gated = x * normal(x) * y - y * sigmoid(y) * x
        kept = np.where(x > y, gated, x * x)
        return abs(kept) / (1 + y**2) + x**3 * 0.1 - x * y

    random = np.random.default_rng(1)
    agree(function, formula, *random.standard_normal((2, 1, 300)).astype(np.float32))


def test_a_branch_that_is_not_taken_adds_no_nan() -> None:
    """The polynomial of log near 1 overflows for a large x."""
    x = np.array([[1e5, 3e38, 1e-30]], np.float32)
    np.testing.assert_allclose(gradients(tilewright.log, x)[0], 1 / x, rtol=1e-6)


def test_dropout_and_ties() -> None:
    x = np.ones((4, 64), np.float32)
    (got,) = gradients(lambda x: tilewright.dropout(x, 0.25, 3) * 2.0, x)
    np.testing.assert_array_equal(got, tilewright.dropout(x, 0.25, 3) * 2)
    one, two = gradients(tilewright.maximum, x, x)
    assert (one == 0.5).all() and (two == 0.5).all()
    zero = np.zeros((1, 8), np.float32)
    for function, slope in ((tilewright.relu, 0), (tilewright.sign, 0), (abs, 0)):
        assert (gradients(function, zero)[0] == slope).all()
    limits = np.array([[-1.0, 2.0, 3.0]], np.float32)
    assert gradients(lambda x: tilewright.clamp(x, -1, 2), limits)[0].tolist() == [[1, 1, 0]]


@every_row("name", OPERATIONS)
def test_every_operation_on_floats_has_a_rule(name: str) -> None:
    """So that no gradient is dropped silently."""
    row = OPERATIONS[name]
    differentiable = any(t in FLOATS and row.result_type(t) in FLOATS for t in row.opcodes)
    assert differentiable == (name in OPERATION_RULES)
