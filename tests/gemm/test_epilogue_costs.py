"""The terms of epilogue functions in the cost models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.gemm import Problem, choose, ranked
from tilewright.gemm.cost_model import estimate, terms
from tilewright.gemm.epilogue.bound_epilogue import BoundEpilogue, EpilogueOperandLayout
from tilewright.gemm.epilogue.functions import gelu, silu
from tilewright.gemm.epilogue.graph import EpilogueInput
from tilewright.gemm.epilogue.tracing import cast, epilogue
from tilewright.gemm.epilogue_costs import epilogue_cost
from tilewright.gemm.kernel_dispatch import parse
from tilewright.target import DEFAULT_DEVICE

BIAS, RESIDUAL = EpilogueInput("bias", "bf16", "n"), EpilogueInput("residual", "bf16", "mn")


@epilogue
def silu_residual(acc: Any, bias: Any, residual: Any) -> Any:
    return cast(silu(acc + bias) * residual, "bf16")


@epilogue
def gelu_bias(acc: Any, bias: Any) -> Any:
    return cast(gelu(acc + bias, approximate="tanh"), "bf16")


@epilogue
def identity(acc: Any) -> Any:
    return cast(acc, "bf16")


def plain(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, "bf16", "bf16", "bf16")


def fused(function: Any, inputs: tuple[EpilogueInput, ...], *sizes: int) -> Problem:
    graph = function.trace("f32", inputs)
    bound = BoundEpilogue(graph, (EpilogueOperandLayout(),) * len(inputs))
    return replace(plain(*sizes), epilogue=bound)


ROWS = [
    (silu_residual, (BIAS, RESIDUAL), (4096, 14336, 4096)),
    (gelu_bias, (BIAS,), (4096, 14336, 4096)),
]


@pytest.mark.parametrize(("function", "inputs", "sizes"), ROWS)
def test_the_tail_wave_is_split_as_for_the_plain_product(
    function: Any, inputs: Any, sizes: Any
) -> None:
    """Measured on an H200: 1.045 of the plain product's time, 1.094 with five stages and no
    split.
    """
    problem = fused(function, inputs, *sizes)
    chosen = choose(problem, DEFAULT_DEVICE)
    assert chosen == choose(plain(*sizes), DEFAULT_DEVICE)
    five = parse("tma:128x192x64:2p:5/1x1@8")
    assert estimate(problem, five, DEFAULT_DEVICE) > estimate(problem, chosen, DEFAULT_DEVICE)


@pytest.mark.parametrize("sizes", [(512, 4096, 4096), (16, 14336, 4096), (300, 300, 300)])
def test_more_operations_and_inputs_take_longer(sizes: tuple[int, int, int]) -> None:
    problems = [
        fused(identity, (), *sizes), fused(gelu_bias, (BIAS,), *sizes),
        fused(silu_residual, (BIAS, RESIDUAL), *sizes),
    ]  # fmt: skip
    for text in ("tma:128x128x64:2:4", "tma:128x128x64:2p:4", "128x128x32:2x2:4"):
        seconds = [estimate(p, parse(text), DEFAULT_DEVICE) for p in problems]
        assert seconds[0] < min(seconds[1:])
        assert epilogue_cost(problems[1]).matrix_loads < epilogue_cost(problems[2]).matrix_loads
    best = [ranked(p, DEFAULT_DEVICE)[0][0] for p in problems]
    assert best[0] < min(best[1:])


def test_pingpong_hides_most_of_a_function() -> None:
    problem = fused(silu_residual, (BIAS, RESIDUAL), 4096, 14336, 4096)

    def added(text: str) -> float:
        config, product = parse(text), plain(4096, 14336, 4096)
        with_function = terms(problem, config, DEFAULT_DEVICE)["epilogues"]
        return with_function - terms(product, config, DEFAULT_DEVICE)["epilogues"]

    assert added("tma:128x128x64:2p:4") < 0.7 * added("tma:128x128x64:2:4")


def test_operands_count_as_memory_traffic() -> None:
    problem = fused(silu_residual, (BIAS, RESIDUAL), 100, 200, 300)
    assert problem.bytes == plain(100, 200, 300).bytes + 2 * 200 + 2 * 100 * 200
