"""Epilogue functions beside 192 accumulators of a thread: NVIDIA's assembler spills nothing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from ptxas import assemble, ptxas

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

M, N, K = 4096, 14336, 4096


def zeros(shape: tuple[int, ...], type_: Any) -> Any:
    return np.zeros(shape, type_)  # takes no memory until it is read


def silu_residual(acc, bias, residual):
    return tilewright.silu(acc + bias) * residual


def gelu_e4m3(acc, bias, scale):
    y = tilewright.gelu(acc + bias)
    return {"d": tilewright.cast(y * scale, "e4m3"), "amax": tilewright.amax(y)}


def scaled_gelu(acc, bias, row, column):
    return tilewright.gelu(acc * row * column + bias, approximate="tanh")


def swiglu(gate, up, bias):
    return tilewright.silu(gate) * up + bias


def relu_and_mask(acc, bias):
    y = acc + bias
    return {"d": tilewright.relu(y), "mask": tilewright.bitmask(y > 0)}


def masked(acc, bias, mask):
    return tilewright.drelu(acc + bias, mask)


BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
LAYERS: dict[str, tuple[Any, Any, str, dict[str, Any]]] = {
    "silu residual": (
        silu_residual, BF16, "tma:128x192x64:2p:4", {"residual": zeros((M, N), BF16)},
    ),
    "silu residual, split": (
        silu_residual, BF16, "tma:128x192x64:2p:4/1x1+3", {"residual": zeros((M, N), BF16)},
    ),
    "gelu e4m3": (gelu_e4m3, BF16, "tma:128x192x64:2p:5", {"scale": 1.0}),
    "gelu e4m3, split": (gelu_e4m3, BF16, "tma:128x192x64:2p:4/1x1+3", {"scale": 1.0}),
    "scaled gelu": (
        scaled_gelu, E4M3, "tma:128x192x128:2p:4",
        {"row": zeros((M, 1), "f4"), "column": zeros((N,), "f4")},
    ),
    "bitmask": (relu_and_mask, BF16, "tma:128x192x64:2p:4", {}),
    "gradient by a bitmask": (
        masked, BF16, "tma:128x192x64:2p:4", {"mask": zeros((M, N // 8), "u1")},
    ),
    "swiglu, swapped": (swiglu, BF16, "tma:128x16x128:1:6~", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_epilogues_do_not_spill(name: str) -> None:
    function, type_, config, operands = LAYERS[name]
    a, b = zeros((M, K), type_), zeros((N, K), type_).T
    if function is swiglu:
        b = b, b
    plan = tilewright.plan(
        a, b, epilogue=function, bias=zeros((N,), BF16), device="vm", config=config,
        fast_accum=type_ is E4M3, **operands,
    )  # fmt: skip
    cubin = assemble(plan.ptx, "sm_90a")
    assert not cubin.warnings and cubin.spills == 0
