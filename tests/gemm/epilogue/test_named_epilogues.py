"""CUTLASS's named epilogues and visitor trees: they are the graphs of plain functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import errors
from tilewright.gemm.epilogue.functions import amax, fma, gelu, relu, silu, swiglu, where
from tilewright.gemm.epilogue.graph import EpilogueGraph, EpilogueInput
from tilewright.gemm.epilogue.named_epilogues import (
    ACTIVATIONS,
    ScaleType,
    bias_activation,
    linear_combination,
    linear_combination_bias,
    linear_combination_bias_elementwise,
    linear_combination_bias_relu,
    per_row_linear_combination,
)
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import Epilogue, cast, epilogue
from tilewright.gemm.epilogue.visitor_tree import Accumulator, Compute, Load, Store, visitor_tree

VARIES = {"alpha": "", "beta": "", "c": "mn", "bias": "n", "residual": "mn"}


def graph(function: Callable[..., Any], **varies: str) -> EpilogueGraph:
    traced = epilogue(function)
    names = [n for n in VARIES if n in traced.parameters]
    inputs = tuple(EpilogueInput(n, "f32", varies.get(n, VARIES[n])) for n in names)
    return traced.trace("f32", inputs)


SCALES = {
    "Default": lambda acc, c, alpha, beta: fma(alpha, acc, beta * c),
    "NoBetaScaling": lambda acc, c, alpha: fma(alpha, acc, c),
    "OnlyAlphaScaling": lambda acc, alpha: alpha * acc,
    "PerChannelScaling": lambda acc, c, alpha, beta: fma(alpha, acc, beta * c),
    "OnlyAlphaPerChannelScaling": lambda acc, alpha: alpha * acc,
    "Nothing": lambda acc: acc,
}


@pytest.mark.parametrize("scale", ScaleType)
def test_a_scale_type_decides_the_operands(scale: ScaleType) -> None:
    function = SCALES[scale.value]
    assert graph(linear_combination(scale)) == graph(function)
    assert graph(linear_combination(scale.value)) == graph(function)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_linear_combination_has_an_activation(name: str) -> None:
    activation = ACTIVATIONS[name]
    expected = graph(lambda acc, c, alpha, beta: activation(fma(alpha, acc, beta * c)))
    assert graph(linear_combination(activation=name)) == expected
    assert graph(linear_combination(activation=activation)) == expected


def test_a_bias_is_added_after_the_linear_combination() -> None:
    def plain(acc: Any, c: Any, bias: Any, alpha: Any, beta: Any) -> Any:
        return relu(fma(alpha, acc, beta * c) + bias)

    assert graph(linear_combination_bias_relu()) == graph(plain)
    assert graph(linear_combination_bias(relu)) == graph(plain)
    assert graph(linear_combination_bias_elementwise("ReLu")) == graph(plain)


def test_d_is_cast_and_t_is_an_output() -> None:
    got = graph(bias_activation("GELU", "e4m3", store_t=True))
    assert [(o.name, o.type) for o in got.outputs] == [("d", "e4m3"), ("t", "f32")]
    assert graph(linear_combination("OnlyAlphaScaling", "SiLu", "bf16")).d.type == "bf16"
    product = linear_combination_bias_elementwise(binary=lambda z, b: z * b, store_t=True)
    acc = np.array([[2.0, 3.0]], np.float32)
    inputs = {"c": acc, "bias": np.array([5, 7], np.float32), "alpha": 1, "beta": 1}
    arrays = {name: np.asarray(x, np.float32) for name, x in inputs.items()}
    assert evaluate(graph(product), acc, arrays)["t"].tolist() == [[20, 42]]
    for name, d in (("multiplies", [[20, 42]]), ("minus", [[-1, -1]]), ("maximum", [[5, 7]])):
        named = linear_combination_bias_elementwise(binary=name)
        assert evaluate(graph(named), acc, arrays)["d"].tolist() == d


def test_scales_and_a_bias_per_row() -> None:
    per_row = {"alpha": "m", "beta": "m", "bias": "m"}
    traced = graph(per_row_linear_combination(), **per_row)
    column = np.array([[1.0], [10.0]], np.float32)
    acc, c = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    got = evaluate(traced, acc, {"alpha": column, "beta": column * 2, "bias": column, "c": c})["d"]
    np.testing.assert_array_equal(got, [[6] * 3, [60] * 3])


def test_unknown_names_are_errors() -> None:
    with pytest.raises(errors.EpilogueError, match="scale must be one of Default, NoBetaScaling"):
        linear_combination("Alpha")
    with pytest.raises(errors.EpilogueError, match="activation must be a function or one of Id"):
        linear_combination_bias("relu7")
    with pytest.raises(errors.EpilogueError, match="binary must be a function or one of plus, mi"):
        linear_combination_bias_elementwise(binary="plus7")


# --- visitor trees ------------------------------------------------------------------------------


def scaled_gelu() -> Epilogue:
    inner = Compute("fma", Load("alpha"), Accumulator(), Load("bias"))
    return visitor_tree(Compute(gelu, inner))


def with_outputs() -> Epilogue:
    sum_ = Store("t", Compute("add", Accumulator(), Load("bias")), "bf16")
    activation = Compute(silu, sum_)
    return visitor_tree(
        Store("d", Compute("mul", activation, Load("residual")), "e4m3"),
        Store("largest", Compute(amax, activation)),
    )


def with_constants() -> Epilogue:
    scaled = Compute("mul", Accumulator(), 0.5)
    return visitor_tree(Compute(where, Compute("gt", scaled, 0.0), scaled, Compute("neg", scaled)))


def same_outputs(acc: Any, bias: Any, residual: Any) -> Any:
    t = acc + bias
    h = silu(t)
    return {"t": cast(t, "bf16"), "d": cast(h * residual, "e4m3"), "largest": amax(h)}


def same_constants(acc: Any) -> Any:
    scaled = acc * 0.5
    return where(scaled > 0.0, scaled, -scaled)


@pytest.mark.parametrize(("tree", "function"), [
    (scaled_gelu, lambda acc, alpha, bias: gelu(fma(alpha, acc, bias))),
    (with_outputs, same_outputs),
    (with_constants, same_constants),
])  # fmt: skip
def test_a_visitor_tree_is_the_graph_of_a_function(tree: Any, function: Any) -> None:
    assert graph(tree()) == graph(function)


def test_a_tree_may_have_two_accumulators() -> None:
    tree = visitor_tree(Compute(swiglu, Accumulator(), Accumulator(1)))
    assert tree.parameters == ("acc", "acc1")
    function = epilogue(lambda gate, up: swiglu(gate, up))
    assert tree.trace("f32", (), accumulators=2) == function.trace("f32", (), accumulators=2)


def test_a_load_may_have_a_default() -> None:
    tree = visitor_tree(Compute("mul", Accumulator(), Load("alpha", 2.0)))
    assert tree.defaults == {"alpha": 2.0}
    assert tree.trace("f32", ()) == epilogue(lambda acc: acc * 2.0).trace("f32", ())


def test_a_stores_value_is_not_rounded() -> None:
    tree = visitor_tree(Compute("mul", Store("low", Accumulator(), "f16"), 1.0))
    acc = np.array([[1 + 2**-20]], np.float32)
    got = evaluate(tree.trace("f32", ()), acc, {})
    assert list(got) == ["d", "low"]
    assert (got["d"], got["low"]) == (acc, 1)


def test_wrong_trees_are_errors() -> None:
    with pytest.raises(
        errors.EpilogueError, match=r"the operation must be one of add, .* got 'ad'"
    ):
        Compute("ad", Accumulator(), 1.0)
    with pytest.raises(errors.EpilogueError, match="a tree must consist of its node types, got 3"):
        visitor_tree(3)
    with pytest.raises(errors.EpilogueError, match=r"different names, got \['x', 'x', 'd'\]"):
        visitor_tree(Compute("add", Store("x", Accumulator()), Store("x", Load("c"))))
