"""Functions of epilogues: bits on the virtual machine, accuracy, limits, counted operations."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from epilogue_functions import SEVERAL, UNARY, Array, FunctionRow, graph_of, operation_count
from epilogues import hostile, run_elements, same_bits
from tilewright import errors
from tilewright.gemm.epilogue import functions
from tilewright.gemm.epilogue.functions import activations, exponentials, reduction_outputs
from tilewright.gemm.epilogue.graph import EpilogueInput, GraphBuilder
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import TracedReduction, TracedValue, epilogue

COUNT = 2048
INFINITY, NAN = np.float32(np.inf), np.float32(np.nan)
rows = pytest.mark.parametrize("row", UNARY, ids=lambda row: row.name)


def value(type_: str = "f32") -> TracedValue:
    builder = GraphBuilder()
    return TracedValue(builder, builder.add("accumulator", type_))


@pytest.mark.vm
@pytest.mark.parametrize("family", [UNARY, SEVERAL[:8], SEVERAL[8:]], ids=["1", "2", "gradients"])
def test_functions_have_numpys_bits_on_the_virtual_machine(family: list[FunctionRow]) -> None:
    graph = graph_of(family)
    acc, *operands = (hostile("f32", COUNT, seed) for seed in range(3))
    operands = operands[: len(graph.inputs)]
    inputs = {i.name: x for i, x in zip(graph.inputs, operands, strict=True)}
    got, expected = run_elements(graph, acc, inputs), evaluate(graph, acc, inputs)
    assert [o.name for o in graph.outputs] == [*got]
    wrong = {n: acc[~same_bits(got[n], np.ascontiguousarray(expected[n]))][:4] for n in got}
    assert not {name: x for name, x in wrong.items() if x.size}


@pytest.mark.parametrize("row", UNARY + SEVERAL, ids=lambda row: row.name)
def test_an_element_takes_as_many_operations_as_documented(row: FunctionRow) -> None:
    operations, approximations = operation_count(graph_of([row]))
    root = "sqrt.rn is no approximation" if row.name == "sqrt" else ""
    assert operations == row.operations
    assert approximations == row.mufu, root


def sweep(count: int) -> Array:
    """f32 values spread over the bits, and over intervals in which functions are not constant."""
    bits = np.linspace(0, 0x7F7FFFFF, count).astype(np.uint32)
    spread = [np.linspace(-b, b, count).astype(np.float32) for b in (1.2, 12, 110)]
    return np.concatenate([bits.view(np.float32), (bits | 1 << 31).view(np.float32), *spread])


def ulps(x: Array) -> Array:
    """The distance of neighbouring f32 values at ``x``."""
    magnitude = np.maximum(abs(x), 2.0**-126)
    return np.asarray(2.0 ** (np.floor(np.log2(magnitude)) - 23))


@rows
def test_the_error_is_within_the_documented_bound(row: FunctionRow) -> None:
    assert row.formula is not None
    x = sweep(1 << 13)
    with np.errstate(all="ignore"):
        got, exact = row.function(x).astype(np.float64), row.formula(x.astype(np.float64))
        normal = (abs(x) >= 2.0**-126) & (abs(exact) >= 2.0**-126) & (abs(exact) < 3.4e38)
        bound = np.maximum(row.ulp * ulps(exact), row.absolute)
        excess = abs(got - exact) / bound
    assert normal.sum() > 1000
    worst = np.argmax(np.where(normal, excess, 0))
    assert excess[worst] <= 1, (x[worst], got[worst], exact[worst])


@rows
def test_limits_and_nans_are_right(row: FunctionRow) -> None:
    """At ±∞ and ±0 a function has its limit, and only a NaN where the formula has no limit."""
    assert row.formula is not None
    x = np.array([-np.inf, np.inf, -0.0, 0.0, -3e38, 3e38], np.float32)
    near = np.array([-1e6, 1e6, 0, 0, -1e6, 1e6])
    with np.errstate(all="ignore"):
        got, formula = row.function(x), row.formula(x.astype(np.float64))
        at_limit = row.formula(near)
        expected = np.where(np.isnan(formula), at_limit, formula).astype(np.float32)
    assert np.isnan(row.function(NAN))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-30)


def test_maximum_of_a_nan_is_a_nan() -> None:
    for function in (functions.maximum, functions.minimum):
        assert np.isnan(function(NAN, np.float32(1)))
        assert np.isnan(function(np.float32(1), NAN))
    assert np.isnan(activations.relu6(NAN))
    assert functions.isnan(np.array([NAN, 1, INFINITY], np.float32)).tolist() == [1, 0, 0]


@pytest.mark.parametrize(("beta", "threshold"), [(2.0, 20.0), (1.0, 3.0), (0.5, 3.0)])
def test_softplus_has_a_slope_and_a_threshold(beta: float, threshold: float) -> None:
    x = np.linspace(-8, 30, 1000).astype(np.float32)
    scaled = x.astype(np.float64) * beta
    exact = np.where(scaled > threshold, x, np.logaddexp(0, scaled) / beta)
    got = exponentials.softplus(x, beta, threshold)
    np.testing.assert_allclose(got, exact, rtol=2e-6)


@pytest.mark.parametrize("type_", [np.float16, np.float64, np.int8, np.int32, np.int64, np.bool_])
def test_arrays_of_other_types_are_computed_in_f32(type_: type) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]], type_)
    if type_ is np.bool_:
        np.testing.assert_array_equal(functions.where(x, 2.0, [3.0][0]), np.where(x, 2, 3))
        return
    got = exponentials.exp(x)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, exponentials.exp(x.astype(np.float32)))


def test_numbers_give_numbers_and_operands_broadcast() -> None:
    assert isinstance(activations.silu(1.5), np.float32)
    assert activations.silu(1.5) == activations.silu(np.array([1.5], np.float32))[0]
    assert functions.fma(np.ones((3, 1), np.float32), np.ones(4, np.float32), 2).shape == (3, 4)
    assert functions.maximum(np.int32(3), np.int32(5)).dtype == np.int32


def test_an_epilogue_function_may_be_called_with_arrays() -> None:
    def quantised(acc: Array, bias: Array) -> dict[str, Array]:
        d = functions.gelu(functions.fma(0.5, acc, bias))
        return {"d": functions.cast(d, "e4m3"), "amax": functions.amax(d)}

    rng = np.random.default_rng(0)
    acc, bias = rng.standard_normal((8, 16)).astype(np.float32), np.float32([1.0] * 16)
    inputs = (EpilogueInput("bias", "f32", "n"),)
    expected = evaluate(epilogue(quantised).trace("f32", inputs), acc, {"bias": bias})
    for name, array in quantised(acc, bias).items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])


def test_an_s32_accumulator_is_converted() -> None:
    x = value("s32")
    assert activations.silu(x).dtype == "f32"
    assert activations.relu(x).dtype == "s32"


def test_a_function_computed_in_f32_refuses_f64() -> None:
    with pytest.raises(errors.EpilogueError, match="exp is computed in f32, got a value of f64"):
        exponentials.exp(value("f64"))


def test_gelu_names_its_approximations() -> None:
    with pytest.raises(ValueError, match="approximate must be none, tanh or fast_tanh, got 'erf'"):
        activations.gelu(1.0, "erf")


@pytest.mark.parametrize(
    ("axis", "reduced"), [(None, "bmn"), (-1, "n"), (-2, "m"), ((-1, -2), "mn"), (-3, "b")]
)
def test_a_reduction_names_dimensions(axis: object, reduced: str) -> None:
    got = reduction_outputs.sum(value(), axis)
    assert isinstance(got, TracedReduction)
    assert (got.reduction, got.reduced) == ("sum", reduced)


def test_reductions_of_arrays() -> None:
    x = np.array([[1, -5, 2], [3, 4, -1]], np.float32)
    assert reduction_outputs.amax(x) == 5
    assert reduction_outputs.max(x, -1).tolist() == [2, 4]
    assert reduction_outputs.sum(x, -2).tolist() == [4, -1, 1]
    assert np.isnan(reduction_outputs.amax(np.array([1, NAN], np.float32)))


@pytest.mark.parametrize("axis", [0, 1, -4, (), "n"])
def test_a_reduction_refuses_other_axes(axis: object) -> None:
    with pytest.raises(errors.EpilogueError, match=r"axis must be -1 \(along rows\)"):
        reduction_outputs.sum(value(), axis)


def test_the_documentation_counts_the_same_operations() -> None:
    """Each row of docs/epilogues.md that names a function has the counts of its row here."""
    text = (Path(__file__).parents[3] / "docs" / "epilogues.md").read_text(encoding="utf-8")
    counted = {(row.operations, row.mufu, row.name.split()[0]) for row in UNARY + SEVERAL}
    documented = set()
    for line in text.splitlines():
        if match := re.match(r"\| `(\w+)\(.*?\| (\d+) \| (\d)", line):
            documented.add((int(match[2]), int(match[3]), match[1]))
    assert len(documented) > 40
    other = {"where", "isnan"}
    assert {x for x in documented if x[2] not in other} <= counted
    missing = {x[2] for x in counted} - {x[2] for x in documented}
    assert missing <= {"prelu", "steep", "minimum"}, missing
