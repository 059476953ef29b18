"""Random products with packed weights, and the bound of their error against f64.

Several problems share a kernel: the format of the weights, A's and D's type and the configuration.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import tilewright
from tilewright import gemm
from tilewright.dtypes import dtype
from tilewright.errors import ConfigError
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.quantization import Packed
from tilewright.quantization.weight_types import WEIGHT_TYPES, pack_elements
from tilewright.quantization.weight_units import prepare_weights
from tilewright.target import DEFAULT_DEVICE

INTEGERS = ("u4", "s4", "u8", "s8")
FLOATS = ("e2m1", "e4m3", "e5m2", "e2m3", "e3m2", "nf4")
BYTES = {"e4m3": ("u4", "s4", "e2m1"), "s8": ("u4", "s4")}  # 8-bit A: types of the weights
ELEMENT_ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}  # of nf4, to A's type
SCALES = ("f32", "f16", "bf16", "ue8m0", "e4m3")
OUTPUTS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), **dict.fromkeys(BYTES, ("bf16", "f32"))}
ROUNDING = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}  # of a result; a flush adds 2^-24
# Of the sum of the products' magnitudes; the tensor cores keep fewer bits of e4m3.
ACCUMULATION = {"e4m3": 2.0**-11, "f16": 2.0**-19, "bf16": 2.0**-19, "s8": 2.0**-19}


@dataclass(frozen=True)
class MixedKernel:
    """What problems of a part share. ``group``: None for all of K."""

    type: str
    group: int | None
    scale: str
    zeros: str  # "none", "integer", "one", or the type of floats
    operand: str
    output: str
    order: bool
    config: str | None
    sparse: bool = False


def random_kernel(draw: random.Random, columns: int, chosen: bool = False) -> MixedKernel:
    """A kernel with tiles of at most so many columns; or the chosen configuration."""
    type_ = draw.choice(INTEGERS + FLOATS)
    zeros = draw.choice(("none", "integer", "one", "f16", "f32")) if type_ in INTEGERS else "none"
    fitting = [a for a in OUTPUTS if type_ in BYTES.get(a, (type_,))]
    operand = "f16" if type_ == "e5m2" else draw.choice(fitting)
    groups = (32 if operand in BYTES else 16, 32, 64, 128, 128, 256, None)
    kernel = MixedKernel(
        type_, draw.choice(groups), draw.choice(SCALES), zeros, operand,
        draw.choice(OUTPUTS[operand]), draw.random() < 0.15, None,
    )  # fmt: skip
    if operand not in BYTES and (kernel.group or 32) % 32 == 0 and draw.random() < 0.25:
        kernel = replace(kernel, order=False, sparse=True)
    if chosen:
        return kernel
    sample = random_weights(kernel, np.random.default_rng(0), 64, 256)
    form = prepare_weights(sample, operand).format
    problem = Problem(64, 512, 1024, operand, operand, kernel.output, b_major="k", weights=form)
    return with_config(draw, kernel, problem, columns)


def with_config(
    draw: random.Random, kernel: MixedKernel, problem: Problem, columns: int
) -> MixedKernel:
    """The kernel with a random configuration that fits the problem, of at most so many columns."""
    fits = [c for _, c in gemm.ranked(problem, DEFAULT_DEVICE) if c.tile[1] <= columns]
    found = draw.choice(fits)
    assert isinstance(found, TmaConfig)
    stages = min(found.stages, found.slices * draw.choice((2, 3, 4)))
    return replace(kernel, config=str(replace(found, stages=stages)))


def random_weights(kernel: MixedKernel, rng: np.random.Generator, n: int, k: int) -> Packed:
    """Weights N×K of random elements; some scales are negative or 0."""
    row = WEIGHT_TYPES[kernel.type]
    codes = rng.integers(0, 1 << row.bits, (n, k))
    if kernel.type in ("e4m3", "e5m2"):  # no NaNs and infinities
        codes &= 0x77 if kernel.type == "e4m3" else 0x7B
    groups = (n, k // (kernel.group or k))
    scales = np.exp2(rng.integers(-3, 3, groups)).astype(np.float32)
    if kernel.scale != "ue8m0":
        scales *= rng.choice(np.array([1, 1.25, -1.5, 0], np.float32), groups)
    scales = scales.astype(dtype(kernel.scale).numpy)
    zeros: Any = None
    low, high = row.range
    if kernel.zeros == "one":
        zeros = int(rng.integers(low, high))
    elif kernel.zeros == "integer":
        zeros = rng.integers(low, high, groups).astype("i1" if row.name[0] == "s" else "u1")
    elif kernel.zeros != "none":
        zeros = rng.standard_normal(groups).astype(dtype(kernel.zeros).numpy)
    order = rng.permutation(k).astype(np.int32) if kernel.order else None
    packed = Packed(pack_elements(row, codes), scales, kernel.type, kernel.group, zeros, order)
    return tilewright.compress_24(packed, "magnitude") if kernel.sparse else packed


def random_sizes(draw: random.Random, kernel: MixedKernel, largest: int) -> tuple[int, int, int]:
    """M, N and K; K is a multiple of what the kernel needs. A given configuration may need rows of
    D that are aligned.
    """
    m, n = (round(math.exp(draw.random() * math.log(largest))) for _ in range(2))
    n = n if kernel.config is None else -(-n // 8) * 8
    step = kernel.group or (32 if kernel.operand in BYTES else 16)
    return m, n, step * draw.randint(1, max(1, largest // step))


def product(kernel: MixedKernel, x: Any, packed: Any, **options: Any) -> Any:
    """D of the problem. A configuration that does not fit an odd layout of A is not used."""
    options |= {"out_dtype": kernel.output}
    try:
        return tilewright.matmul(x, packed.T, config=kernel.config, **options)
    except ConfigError:
        return tilewright.matmul(x, packed.T, **options)


def check_problem(
    draw: random.Random, kernel: MixedKernel, largest: int, **options: Any
) -> tuple[Any, Any, Any]:
    """D must be right; returns A, the weights and D. Raises AssertionError."""
    m, n, k = random_sizes(draw, kernel, largest)
    rng = np.random.default_rng(draw.randrange(1 << 32))
    packed = random_weights(kernel, rng, n, k)
    x, wide = random_activations(kernel, rng, m, k)
    d = product(kernel, x, packed, **options)
    check_product(kernel, wide, packed, d)
    return x, packed, d


def check_product(kernel: MixedKernel, wide: Any, packed: Packed, d: Any) -> None:
    """D must be A, ``wide`` in f64, times the weights. Raises AssertionError."""
    w = packed.dequantize().astype(np.float64)
    exact, magnitude = wide @ w.T, np.abs(wide) @ largest_elements(kernel, packed, w).T
    rounded = ELEMENT_ROUNDING[kernel.operand] if kernel.type == "nf4" else 0.0
    bound = (
        (ACCUMULATION[kernel.operand] + rounded) * magnitude
        + ROUNDING[kernel.output] * np.abs(exact)
        + 2.0**-24
    )
    error = np.abs(d.astype(np.float64) - exact)
    finite = np.abs(exact) < 6e4  # f16 has no larger numbers
    sizes = *exact.shape, wide.shape[1]
    assert (error <= bound)[finite].all(), (kernel, sizes, (error / bound)[finite].max())


def random_activations(
    kernel: MixedKernel, rng: np.random.Generator, m: int, k: int
) -> tuple[Any, Any]:
    """A, which is Scaled where it has 8 bits, and its numbers in f64."""
    x = (rng.standard_normal((m, k)) / 8).astype(np.float32)
    if kernel.operand in BYTES:
        scaled = tilewright.quantize(x, kernel.operand, "row")
        return scaled, scaled.dequantize().astype(np.float64)
    x = x.astype(np.float16 if kernel.operand == "f16" else ml_dtypes.bfloat16)
    return x, x.astype(np.float64)


def largest_elements(kernel: MixedKernel, packed: Packed, w: Any) -> Any:
    """Magnitudes that bound what the kernel adds: float zero points are added after the group, and
    with e4m3 those of all groups are floats.
    """
    integers = kernel.operand == "e4m3" and kernel.zeros == "integer"
    if packed.zero_kind != "float" and not integers:
        return np.abs(w)
    if kernel.sparse:
        return np.abs(w) + 2 * np.repeat(np.abs(packed.zeros.astype(np.float64)), packed._group, -1)
    plain = Packed(packed.data, packed.scales, packed.type, packed.group, None, packed.order)
    zeros = packed.zeros.astype(np.float64)
    zeros = zeros * packed.scales.astype(np.float64) if integers else zeros
    zeros = np.repeat(np.abs(zeros), packed._group, -1)
    if packed.order is not None:
        zeros[:, packed.order] = zeros.copy()
    return np.abs(plain.dequantize()) + zeros
