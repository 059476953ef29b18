"""Tracing: which functions are traced once, what a graph holds, how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.errors import EpilogueError
from tilewright.gemm.epilogue.graph import EpilogueInput
from tilewright.gemm.epilogue.tracing import Epilogue

BIAS = EpilogueInput("bias", "bf16", "n")


def scaled(factor: float) -> Callable[..., Any]:
    return lambda acc: acc * factor


def test_a_lambda_without_captured_variables_is_one_epilogue() -> None:
    made = [tilewright.epilogue(lambda acc, bias: acc + bias) for _ in range(2)]
    graphs = [function.trace("f32", (BIAS,)) for function in made]
    assert graphs[0] is graphs[1]
    assert graphs[0] != tilewright.epilogue(lambda acc, bias: acc - bias).trace("f32", (BIAS,))


def test_captured_variables_and_defaults_make_another_epilogue() -> None:
    assert tilewright.epilogue(scaled(2.0)) is not tilewright.epilogue(scaled(3.0))
    twice, thrice = (tilewright.epilogue(scaled(x)).trace("f32", ()) for x in (2.0, 3.0))
    assert twice != thrice
    by_default = [tilewright.epilogue(lambda acc, s=s: acc * s) for s in (2.0, 3.0)]
    assert by_default[0].trace("f32", ()) != by_default[1].trace("f32", ())


def test_equal_functions_give_equal_graphs() -> None:
    one = Epilogue(lambda acc, bias: acc + bias).trace("f32", (BIAS,))
    other = Epilogue(lambda x, bias: x + bias).trace("f32", (BIAS,))
    assert one == other and hash(one) == hash(other) and repr(one) == repr(other)


def test_what_no_output_needs_is_dropped_and_equal_nodes_are_one() -> None:
    def function(acc: Any, bias: Any) -> Any:
        _unused = acc * 7.0
        return (acc + bias) * (acc + bias)

    graph = Epilogue(function).trace("f32", (BIAS,), (), "f16")
    assert graph.text() == "%2 = add.f32(acc, bias[n])\n%3 = mul.f32(%2, %2)\nd = %3 as f16"


def test_the_transposed_graph_exchanges_rows_and_columns() -> None:
    graph = Epilogue(lambda acc, bias: acc + bias).trace("f32", (BIAS,))
    assert graph.transposed().inputs == (BIAS._replace(varies="m"),)
    assert graph.transposed().transposed() == graph


def check_static(flag: Any, text: str) -> None:
    def function(acc: Any, kind: Any) -> Any:
        return acc * 2.0 if kind == "double" else acc

    graph = Epilogue(function).trace("f32", (), (("kind", flag),))
    assert graph.text() == text


def test_text_and_flags_reach_the_function() -> None:
    check_static("double", "%2 = mul.f32(acc, 2)\nd = %2 as f32")
    check_static(None, "d = acc as f32")


def test_values_of_two_functions_do_not_meet() -> None:
    kept: list[Any] = []
    Epilogue(lambda acc: kept.append(acc) or acc).trace("f32", ())
    with pytest.raises(EpilogueError, match="come from two epilogue functions"):
        Epilogue(lambda acc: acc + kept[0]).trace("f32", ())


def test_what_no_element_has_names_the_value_and_what_to_do() -> None:
    def check(function: Callable[..., Any], match: str, hint: str) -> None:
        with pytest.raises(EpilogueError, match=match) as caught:
            Epilogue(function).trace("f32", ())
        assert hint in caught.value.hint

    check(lambda acc: (acc * 2) @ acc, "@ is not defined for <mul of f32", "each element of D by")
    check(lambda acc: acc[0], "…. is not defined for <accumulator of f32", "each element of D by")
    check(lambda acc: sum(acc), "iteration is not defined for <accumulator", "each element of D by")
    check(lambda acc: acc / tilewright.sum(acc), "the sum of <accu.* must not be an", "an output")
    check(
        lambda acc: tilewright.amax(acc) * 2, "\\* is not defined for the max of <abs", "an output"
    )
