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
from tilewright.quantization import Packed

COMPARED = {False: "tma:128x32x128:2:3~", True: "tma:128x32x256:2:3~"}  # by sparsity
GATE, UP = "gate", "up"


def both(gate: Any, up: Any) -> dict[str, Any]:
    """The epilogue: both accumulators."""
    return {GATE: gate, UP: up}


def random_pair_kernel(draw: random.Random, columns: int) -> MixedKernel:
    """A kernel for two matrices with tiles of at most so many columns."""
    kernel, rng = random_kernel(draw, columns, chosen=True), np.random.default_rng(0)
    kernel = replace(kernel, output="f32")
    pair = random_pair(kernel, rng, 512, 1024)
    x, _ = random_activations(kernel, rng, 64, 1024)
    b, options = [w.T for w in pair], {"device": "vm", "out_dtype": "f32", "config": "tma"}
    problem = tilewright.plan(x, b, epilogue=both, **options).problem
    return with_config(draw, kernel, problem, columns)


def random_pair(
    kernel: MixedKernel, rng: np.random.Generator, n: int, k: int
) -> tuple[Packed, Packed]:
    """Two matrices of one order, and one zero point if it is of all elements."""
    gate, up = (random_weights(kernel, rng, n, k) for _ in range(2))
    if kernel.zeros == "one" and not kernel.sparse:
        up = replace(up, zeros=gate.zeros)
    elif kernel.zeros == "one":
        up = gate
    return gate, up if gate.order is None else replace(up, order=gate.order)


def check_pair(
    draw: random.Random, kernel: MixedKernel, largest: int, **options: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Both accumulators must be right, and have the bits of two products unless K is divided.
    Returns A, the weights and the result. Raises AssertionError.
    """
    m, n, k = random_sizes(draw, kernel, largest)
    rng = np.random.default_rng(draw.randrange(1 << 32))
    gate, up = random_pair(kernel, rng, n, k)
    x, wide = random_activations(kernel, rng, m, k)
    options |= {"out_dtype": "f32"}
    result = pair_product(kernel, x, (gate, up), **options)
    assert kernel.config is not None
    config = TmaConfig.parse(kernel.config)
    divided = config.slices > 1 or config.split > 1
    for name, weights in ((GATE, gate), (UP, up)):
        check_product(kernel, wide, weights, result[name])
        if not divided:
            alone = tilewright.matmul(x, weights.T, config=COMPARED[kernel.sparse], **options)
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
