"""Two matrices of packed weights: one kernel, with the bits of two products."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.gated_problems import bits, both, check_pair, random_pair_kernel
from rows import every_row
from tilewright import gemm
from tilewright.errors import ConfigError, ProblemError
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.quantization import Packed, quantize_weight
from tilewright.quantization.weight_format import WeightFormat
from tilewright.target import DEFAULT_DEVICE

pytestmark = pytest.mark.vm

PARTS, EACH = 20, 8
COLUMNS, LARGEST = 64, 500
SMALL = "tma:128x16x128:2:2~"  # one kernel for the tests that are not slow
M, N, K = 9, 72, 384
F32 = {"device": "vm", "out_dtype": "f32"}


def weights(seed: int, form: Any = ("u4", 128, "integer"), n: int = N) -> Packed:
    w = np.random.default_rng(seed).standard_normal((n, K)).astype(np.float32)
    return quantize_weight(w, *form)


def activations(m: int = M) -> Any:
    return (np.random.default_rng(m).standard_normal((m, K)) / 8).astype(np.float16)


def alone(x: Any, w: Packed) -> Any:
    return tilewright.matmul(x, w.T, config="tma:64x16x128:1:2~", **F32)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_problems(part: int) -> None:
    draw = random.Random(part)
    kernel = random_pair_kernel(draw, COLUMNS)
    for _ in range(EACH):
        check_pair(draw, kernel, LARGEST, device="vm")


def test_a_sample() -> None:
    draw = random.Random(1000)
    kernel = random_pair_kernel(draw, 16)
    for _ in range(3):
        check_pair(draw, kernel, 300, device="vm")


@pytest.mark.slow
@every_row(
    "config",
    [
        "tma:256x32x128:2:3~", "tma:128x32x128:1:3~", "tma:128x32x128:2:3/2x1~",
        "tma:128x32x128:2:3/1x2~", "tma:256x32x128:2:3/1x2~", "tma:128x24x256:2:2d~",
        "tma:128x160x128:2:2~",
    ],
)  # fmt: skip
def test_every_schedule_has_the_same_bits(config: str) -> None:
    x, gate, up = activations(70), weights(1, n=300), weights(2, n=300)
    found = tilewright.matmul(x, (gate.T, up.T), epilogue=both, config=config, **F32)
    for name, w in (("gate", gate), ("up", up)):
        assert np.array_equal(bits(found[name]), bits(alone(x, w))), name


@every_row("order", ["one", "equal", "different"], parts=3)
def test_act_order(order: str) -> None:
    """Different orders of A's columns, and only these, need two products."""
    x, rng = activations(), np.random.default_rng(3)
    order_of_gate = rng.permutation(K).astype(np.int32)
    order_of_up = {"one": order_of_gate, "equal": order_of_gate.copy()}.get(order)
    if order_of_up is None:
        order_of_up = rng.permutation(K).astype(np.int32)
    gate, up = replace(weights(1), order=order_of_gate), replace(weights(2), order=order_of_up)
    pair = gate.T, up.T
    if order == "different":
        with pytest.raises(ProblemError, match="plan is of one kernel"):
            tilewright.plan(x, pair, epilogue=both, device="vm")
    else:
        assert tilewright.plan(x, pair, epilogue=both, device="vm", config=SMALL).problem.pair
    found = tilewright.matmul(x, pair, epilogue=both, config=SMALL, **F32)
    for name, w in (("gate", gate), ("up", up)):
        assert np.array_equal(bits(found[name]), bits(alone(x, w)))


@pytest.mark.slow
def test_two_formats_are_two_products() -> None:
    x, gate, up = activations(), weights(1), weights(2, ("s8", 32, None))
    found = tilewright.matmul(x, (gate.T, up.T), epilogue=both, config=SMALL, **F32)
    for name, w in (("gate", gate), ("up", up)):
        assert np.array_equal(bits(found[name]), bits(alone(x, w)))


def test_an_operand_may_have_the_name_of_the_first_product() -> None:
    """Two products are combined by an operand, whose name is another then."""
    x, pair = activations(), (weights(1).T, weights(2, ("s8", 32, None)).T)

    def f(gate: Any, up: Any, first_product: Any) -> Any:
        return gate * up + first_product

    found = tilewright.matmul(x, pair, epilogue=f, first_product=2.0, config=SMALL, **F32)
    expected = tilewright.matmul(x, pair, epilogue=lambda g, u: g * u + 2.0, config=SMALL, **F32)
    assert np.array_equal(bits(found), bits(expected))


def test_a_configuration_of_one_matrix_is_of_two_products() -> None:
    """Its tile has no rows of the second one."""
    x, gate, up = activations(), weights(1), weights(2)
    y = tilewright.linear(x, up, gate=gate, activation="silu", config="tma:64x16x128:1:2~", **F32)
    z = tilewright.linear(x, up, gate=gate, activation="silu", config=SMALL, **F32)
    assert np.array_equal(bits(y), bits(z))


def test_halves_of_one_matrix() -> None:
    wide, x = weights(5, n=2 * N), activations()
    gate, up = wide.halves
    assert np.shares_memory(gate.data, wide.data) and gate.shape == (N, K)
    assert wide.halves[0] is gate  # prepared once
    assert [half.shape for half in wide.T.halves] == [(K, N), (K, N)]
    whole = wide.dequantize()
    assert np.array_equal(gate.dequantize(), whole[:N])
    assert np.array_equal(up.dequantize(), whole[N:])
    found = tilewright.matmul(x, (gate.T, up.T), epilogue=both, config=SMALL, **F32)
    assert np.array_equal(bits(found["gate"]), bits(alone(x, wide)[:, :N]))
    assert np.array_equal(bits(found["up"]), bits(alone(x, wide)[:, N:]))
    with pytest.raises(ProblemError, match="even number of rows"):
        _ = weights(1, n=7).halves


@pytest.mark.slow
def test_global_scales_and_scales_of_tokens() -> None:
    """Each accumulator is multiplied by its own matrix' scale."""
    x = activations()
    pair = [weights(seed, ("nvfp4",)) for seed in (1, 2)]
    found = tilewright.matmul(x, [w.T for w in pair], epilogue=both, config=SMALL, **F32)
    for name, w in zip(("gate", "up"), pair, strict=True):
        assert np.array_equal(bits(found[name]), bits(alone(x, w)))


@pytest.mark.slow
@every_row("type_", ["e4m3", "s8"])
def test_8_bit_activations(type_: str) -> None:
    tokens = tilewright.quantize(activations(), type_, "row")
    gate, up = weights(1), weights(2)
    found = tilewright.matmul(tokens, (gate.T, up.T), epilogue=both, config=SMALL, **F32)
    for name, w in (("gate", gate), ("up", up)):
        assert np.array_equal(bits(found[name]), bits(alone(tokens, w)))


@pytest.mark.slow
def test_stacks_of_matrices() -> None:
    draws = [np.random.default_rng(seed).standard_normal((3, N, K)) for seed in (1, 2)]
    gate, up = (quantize_weight(w.astype(np.float32), "s4", 64) for w in draws)
    x = np.stack([activations() for _ in range(3)])
    found = tilewright.matmul(x, (gate.T, up.T), epilogue=both, config=SMALL, **F32)
    for name, w in (("gate", gate), ("up", up)):
        expected = tilewright.matmul(x, w.T, config="tma:64x16x128:1:2~", **F32)
        assert np.array_equal(bits(found[name]), bits(expected))


def test_what_does_not_fit_is_an_error() -> None:
    x, gate, up = activations(), weights(1), weights(2, n=64)
    with pytest.raises(ProblemError, match="two matrices b must have one shape"):
        tilewright.matmul(x, (gate.T, up.T), epilogue=both, device="vm")
    with pytest.raises(ProblemError, match="packed weights must be b, or both b"):
        tilewright.matmul(x, (gate.T, up.dequantize().T), epilogue=both, device="vm")
    form = WeightFormat("u4", "f16", 128, "f32")
    one = Problem(64, 512, 512, b_major="k", weights=form)
    for text in ("tma:128x16x128:4:4~", "tma:192x16x128:4:4~"):
        with pytest.raises(ConfigError):
            gemm.check(one, TmaConfig.parse(text), DEFAULT_DEVICE)


@every_row("m, n, k", [(1, 8192, 8192), (64, 14336, 4096), (4096, 8192, 8192)])
def test_one_kernel_where_it_is_estimated_to_be_faster(m: int, n: int, k: int) -> None:
    form = WeightFormat("u4", "bf16", 128, "f16")
    pair = Problem(m, 2 * n, k, "bf16", "bf16", "bf16", b_major="k", weights=form, pair=True)
    assert gemm.is_faster_together(pair, DEFAULT_DEVICE)
