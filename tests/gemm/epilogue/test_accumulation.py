"""Epilogues that are sums with D's own memory: which graphs are, and what is left of them."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.gemm.epilogue import functions
from tilewright.gemm.epilogue.bound_epilogue import BoundEpilogue, EpilogueOperandLayout
from tilewright.gemm.epilogue.graph import EpilogueInput, without_sum
from tilewright.gemm.epilogue.tracing import epilogue

INPUTS = tuple(EpilogueInput(name, "f32", "mn") for name in "ce")


def left(function: Any, type_: str = "f32", c: str = "f32") -> str | None:
    """The text of D's graph without the sum with c."""
    inputs = tuple(x._replace(type=c) if x.name == "c" else x for x in INPUTS)
    names = epilogue(function).parameters[1:]
    traced = tuple(x for x in inputs if x.name in names)
    graph = epilogue(function).trace("f32", traced, (), type_, 1)
    found = without_sum(graph, "c")
    return None if found is None else found.text()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda acc, c: acc + c, "d = acc as f32"),
        (lambda acc, c: c + acc, "d = acc as f32"),
        (lambda acc, c, e: acc * e + c, "%2 = mul.f32(acc, e[m, n])\nd = %2 as f32"),
        (lambda acc, c, e: e + c, "d = e[m, n] as f32"),
    ],
)
def test_the_sum_is_taken_from_graphs_that_end_with_it(function: Any, expected: str) -> None:
    assert left(function) == expected


@pytest.mark.parametrize(
    "function",
    [
        lambda acc, c: acc - c,
        lambda acc, c: c + c + acc * c,
        lambda acc, c: functions.relu(acc + c),
        lambda acc, c: (acc + c) * 2.0,
        lambda acc, c: {"d": acc + c, "x": acc + c},
        lambda acc, c: {"d": acc + c, "most": functions.max(acc + c)},
        lambda acc, c: {"d": acc + c, "x": c * 2.0},
    ],
)
def test_other_graphs_keep_their_operand(function: Any) -> None:
    assert left(function) is None


def test_only_f32_is_added_to() -> None:
    assert left(lambda acc, c: acc + c, type_="bf16") is None
    assert left(lambda acc, c: acc + c, c="bf16") is None


def test_other_outputs_stay() -> None:
    text = left(lambda acc, c: {"d": acc + c, "x": acc * 2.0, "most": functions.max(acc)})
    assert text is not None and "d = acc as f32" in text and "c[" not in text


def test_only_a_sum_is_bound_to_be_accumulated() -> None:
    c = EpilogueInput("c", "f32", "mn")
    graphs = (
        epilogue(function).trace("f32", (c,), (), "f32", 1)
        for function in (lambda acc, c: acc + c, lambda acc, c: acc * c)
    )
    total, product = (
        BoundEpilogue(graph, (EpilogueOperandLayout(),), accumulated="c") for graph in graphs
    )
    assert total.without_sum.text() == "d = acc as f32"
    with pytest.raises(AssertionError, match="no sum with 'c'"):
        _ = product.without_sum
