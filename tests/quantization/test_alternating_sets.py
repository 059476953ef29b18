"""Packed weights where two sets of accumulators alternate: the bits are those of one set."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from gemm_cases.gated_problems import GATE, UP, both
from rows import every_row
from tilewright import gemm
from tilewright.gemm.tma.mixed_input.alternating_mainloop import alternates
from tilewright.run import VmDevice

ONE = "tma:64x32x128:1:2~"
TWO_OF_A_PAIR = "tma:128x32x128:2:3~"
CASES = (
    (("u4", 128, "integer"), "bf16", "tma:128x64x128:2:2~"),  # a chunk for each k-block
    (("s4", 128, None), "f16", "tma:128x80x128:2:3~"),  # two
    (("u4", 128, "integer"), "f16", "tma:128x32x128:2:2~"),
    (("s8", None, None), "bf16", "tma:128x48x128:2:2~"),
)


def operands(form: tuple[Any, ...], type_: str, depth: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(depth)
    packed = tilewright.quantize_weight(rng.standard_normal((200, depth)).astype("f4"), *form)
    x = rng.standard_normal((40, depth)).astype(np.float32)
    return x.astype(np.float16 if type_ == "f16" else ml_dtypes.bfloat16), packed


def of(x: Any, packed: Any, config: str, device: Any = "vm") -> Any:
    plan = tilewright.plan(x, packed.T, out_dtype="f32", device=device, config=config)
    assert isinstance(plan.config, gemm.TmaConfig) and plan.problem.weights is not None
    assert alternates(plan.problem.weights, plan.config) == (config != ONE)
    assert ("two sets of accumulators" in plan.explain()) == (config != ONE)
    return plan.run(x, packed.T)


@pytest.mark.slow
@every_row("form, type_, config", CASES[:1], ids=str)
def test_bits_are_those_of_one_set(form: Any, type_: str, config: str) -> None:
    for k_blocks in (1, 2, 3, 4):
        x, packed = operands(form, type_, 128 * k_blocks)
        assert np.array_equal(of(x, packed, config), of(x, packed, ONE))


@pytest.mark.slow
@every_row("form, type_, config", CASES[1:], ids=str)
def test_bits_of_other_formats(form: Any, type_: str, config: str) -> None:
    for k_blocks in (1, 2, 5):
        x, packed = operands(form, type_, 128 * k_blocks)
        assert np.array_equal(of(x, packed, config), of(x, packed, ONE))


def test_a_pair_has_the_bits_of_one_set() -> None:
    """Where a warpgroup has 64 rows of one of two matrices."""
    x, gate = operands(("u4", 128, "integer"), "bf16", 640)
    pair = (gate.T, tilewright.quantize_weight(-gate.dequantize()[::-1], "u4", 128, "integer").T)
    of_pair: dict[str, Any] = {"epilogue": both, "out_dtype": "f32"}
    plan = tilewright.plan(x, pair, device="vm", config=TWO_OF_A_PAIR, **of_pair)
    assert isinstance(plan.config, gemm.TmaConfig) and plan.problem.weights is not None
    assert plan.problem.pair and alternates(plan.problem.weights, plan.config)
    for seed in range(2):
        on = VmDevice(checked=True, seed=seed)
        found = tilewright.matmul(x, pair, device=on, config=TWO_OF_A_PAIR, **of_pair)
        for name, b in zip((GATE, UP), pair, strict=True):
            assert np.array_equal(found[name], of(x, b.T, ONE)), name


def test_the_checked_machine_finds_no_race() -> None:
    x, packed = operands(("u4", 128, "integer"), "bf16", 640)
    one = of(x, packed, ONE)
    for seed in range(2):
        on = VmDevice(checked=True, seed=seed)
        assert np.array_equal(of(x, packed, "tma:128x64x128:2:2~", on), one)


@every_row("type_", ["s8", "e4m3"], parts=2)
def test_eight_bit_activations(type_: str) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((200, 384)).astype(np.float32)
    packed = tilewright.quantize_weight(w, "u4", 128, "integer" if type_ == "s8" else None)
    x = tilewright.quantize(rng.standard_normal((40, 384)).astype(np.float32), type_, "row")
    assert np.array_equal(of(x, packed, "tma:128x64x128:2:2~"), of(x, packed, ONE))
