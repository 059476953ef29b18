"""Random products with two matrices of packed weights, against two products and against f64."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

import tilewright
from gemm_cases.mixed_problems import (
    MixedKernel,
    check_product,
    random_activations,
    random_kernel,
    random_sizes,
    random_weights,
    with_config,
)
from tilewright.gemm.tma.tma_config import TmaConfig

COMPARED = {False: "tma:128x32x128:2:3~", True: "tma:128x32x256:2:3~"}  # by sparsity
GATE, UP = "gate", "up"


def both(gate: Any, up: Any) -> dict[str, Any]:
    """The epilogue: both accumulators."""
    return {GATE: gate, UP: up}


def random_pair_kernel(draw: random.Random, columns: int) -> MixedKernel:
    """A kernel for two matrices with tiles of at most so many columns."""
    kernel = replace(random_kernel(draw, columns, chosen=True), output="f32")
    return with_config(draw, kernel, columns, pair=True)


def check_pair(
    draw: random.Random, kernel: MixedKernel, largest: int, **options: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Both accumulators must be right, and have the bits of two products unless a product is
    sliced along K; returns A, the weights and the result. Raises AssertionError.
    """
    m, n, k = random_sizes(draw, kernel, largest)
    rng = np.random.default_rng(draw.randrange(1 << 32))
    gate, up = (random_weights(kernel, rng, n, k) for _ in range(2))
    if gate.order is not None:
        up = replace(up, order=gate.order)
    x, wide = random_activations(kernel, rng, m, k)
    options |= {"out_dtype": "f32"}
    result = pair_product(kernel, x, (gate, up), **options)
    assert kernel.config is not None
    sliced = TmaConfig.parse(kernel.config).slices > 1
    for name, weights in ((GATE, gate), (UP, up)):
        check_product(kernel, wide, weights, result[name])
        if not sliced:
            config = COMPARED[kernel.sparse]
            alone = tilewright.matmul(x, weights.T, config=config, **options)
            assert np.array_equal(bits(result[name]), bits(alone)), (kernel, (m, n, k), name)
    return x, (gate, up), result


def pair_product(kernel: MixedKernel, x: Any, pair: Any, **options: Any) -> dict[str, Any]:
    """Both accumulators, by the kernel's configuration."""
    b = tuple(weights.T for weights in pair)
    plan = tilewright.plan(x, b, epilogue=both, config=kernel.config, **options)  # of one kernel
    assert plan.problem.pair
    made: dict[str, Any] = tilewright.matmul(x, b, epilogue=both, config=kernel.config, **options)
    return made


def bits(array: Any) -> Any:
    """The array's bits."""
    return np.ascontiguousarray(array).view(np.uint32)
