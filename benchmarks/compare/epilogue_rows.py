"""Products with an epilogue that are compared: functions, operands and figures.

Rows need neither torch nor a GPU: ``inputs`` makes arrays of any library. B is the transpose of a
row-major matrix of weights (N, K), as in a linear layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tilewright
from tilewright import cast, gelu, gemm, silu

Shape = tuple[int, int, int]
LARGE, NARROW, SKINNY = (4096, 14336, 4096), (512, 4096, 4096), (16, 14336, 4096)
SHAPES: tuple[Shape, ...] = (LARGE, NARROW, SKINNY)


class Values(NamedTuple):
    """Random numbers: normal, or ``uniform`` from 0.5 to 1.5; times ``scale``."""

    type: str
    scale: float = 1.0
    uniform: bool = False


class OperandSpec(NamedTuple):
    """An operand of an epilogue: its values and the dimensions along which it varies."""

    values: Values
    varies: str


class Inputs(NamedTuple):
    """The arrays of a call; ``b`` is a pair if the epilogue takes two accumulators."""

    a: Any
    b: Any
    operands: dict[str, Any]


MakeArray = Callable[[tuple[int, ...], Values], Any]  # of a shape, with random numbers


def silu_residual(acc: Any, bias: Any, residual: Any) -> Any:
    return silu(acc + bias) * residual


def swiglu(gate: Any, up: Any) -> Any:
    return silu(gate) * up


def gelu_bias(acc: Any, bias: Any) -> Any:
    return gelu(acc + bias, approximate="tanh")


def gelu_e4m3(acc: Any, bias: Any, scale: Any) -> dict[str, Any]:
    """Delayed scaling: multiplies by the previous call's scale, returns amax for the next one."""
    y = gelu(acc + bias)
    return {"d": cast(y * scale, "e4m3"), "amax": tilewright.amax(y)}


def scaled_gelu(acc: Any, row: Any, column: Any, bias: Any) -> Any:
    return gelu(acc * row * column + bias, approximate="tanh")


def dequantized(acc: Any, row: Any, column: Any) -> Any:
    return cast(acc * row * column, "bf16")


@dataclass(frozen=True)
class EpilogueKind:
    """An epilogue with the values of A, B and its operands. ``figures``: for each of ``SHAPES``,
    the ratio of its time to our plain product's that it must reach; None for any.
    """

    function: Callable[..., Any]
    a: Values
    b: Values
    operands: dict[str, OperandSpec]
    figures: tuple[float | None, float | None, float | None]
    pair: bool = False
    fast: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``matmul`` and ``plan``."""
        return {"fast_accum": True} if self.fast else {}


BF16, WEIGHTS = Values("bf16"), Values("bf16", 2.0**-6)
BIAS = OperandSpec(BF16, "n")
E4M3, S8 = Values("e4m3"), Values("s8")


def _scales(scale: float) -> dict[str, OperandSpec]:
    return {
        "row": OperandSpec(Values("f32", scale, uniform=True), "m"),
        "column": OperandSpec(Values("f32", 1.0, uniform=True), "n"),
    }


KINDS = {
    "silu_residual": EpilogueKind(
        silu_residual, BF16, WEIGHTS, {"bias": BIAS, "residual": OperandSpec(BF16, "mn")},
        (1.03, 1.07, 1.03),
    ),
    "swiglu": EpilogueKind(swiglu, BF16, WEIGHTS, {}, (1.03, None, None), pair=True),
    "gelu": EpilogueKind(gelu_bias, BF16, WEIGHTS, {"bias": BIAS}, (None, None, None)),
    "gelu_e4m3": EpilogueKind(
        gelu_e4m3, BF16, WEIGHTS,
        {"bias": BIAS, "scale": OperandSpec(Values("f32", 8.0, uniform=True), "")},
        (1.04, None, None),
    ),
    "scaled_gelu": EpilogueKind(
        scaled_gelu, E4M3, E4M3, _scales(2.0**-6) | {"bias": BIAS}, (1.06, None, None), fast=True
    ),
    "dequantized": EpilogueKind(dequantized, S8, S8, _scales(2.0**-18), (None, None, None)),
}  # fmt: skip


@dataclass(frozen=True)
class EpilogueRow:
    """A kind of epilogue for a shape. N is that of D: a pair has weights of 2 N × K."""

    kind: str
    m: int
    n: int
    k: int

    @property
    def spec(self) -> EpilogueKind:
        return KINDS[self.kind]

    @property
    def shape(self) -> Shape:
        return self.m, self.n, self.k

    @property
    def figure(self) -> float | None:
        """The ratio to our plain product that the row must reach."""
        return dict(zip(SHAPES, self.spec.figures, strict=True)).get(self.shape)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * (1 + self.spec.pair)

    @property
    def weight_rows(self) -> int:
        """Rows of the matrix of weights, columns of the plain product."""
        return self.n * (1 + self.spec.pair)

    def __str__(self) -> str:
        return f"{self.kind} {self.m}×{self.n}×{self.k}"

    def small(self, config: Any) -> EpilogueRow:
        """The row with a few tiles of a configuration, the last ones partly outside D. Rows of D
        are aligned to 16 bytes for every type.
        """
        (rows, columns, depth), split = config.tile, getattr(config, "split", 1)
        if getattr(config, "swap", False):
            rows, columns = columns, rows
        return replace(self, m=min(self.m, rows + 40), n=columns + 48, k=4 * depth * split)

    def inputs(self, make: MakeArray) -> tuple[Inputs, Any]:
        """The arrays of the call, and the transposed weights, which are B of the plain product."""
        a = make((self.m, self.k), self.spec.a)
        weights = make((self.weight_rows, self.k), self.spec.b)
        b = (weights[: self.n].T, weights[self.n :].T) if self.spec.pair else weights.T
        sizes = {"": (1,), "n": (self.n,), "m": (self.m, 1), "mn": (self.m, self.n)}
        operands = {
            name: make(sizes[operand.varies], operand.values)
            for name, operand in self.spec.operands.items()
        }
        return Inputs(a, b, operands), weights.T


def rows(kinds: list[str], shapes: list[Shape]) -> list[EpilogueRow]:
    """All kinds with all shapes."""
    return [EpilogueRow(kind, *shape) for kind, shape in product(kinds, shapes)]


# --- plans --------------------------------------------------------------------------------------

NUMPY = {
    "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "s8": np.int8, "f32": np.float32,
}  # fmt: skip


def numpy_values(seed: int) -> MakeArray:
    """Random numbers on the CPU."""
    rng = np.random.default_rng(seed)

    def make(shape: tuple[int, ...], values: Values) -> Any:
        if values.type == "s8":
            return rng.integers(-127, 128, shape, dtype=np.int8)
        x = rng.random(shape) + 0.5 if values.uniform else rng.standard_normal(shape)
        return (x * values.scale).astype(NUMPY[values.type])

    return make


def _zeros(shape: tuple[int, ...], values: Values) -> Any:
    return np.zeros(shape, NUMPY[values.type])  # takes no memory until it is read


def fused_plan(row: EpilogueRow, device: str, config: str | None = None) -> tilewright.Plan:
    """The plan of a row, from shapes alone. Raises ConfigError where a configuration does not
    fit.
    """
    (a, b, operands), _ = row.inputs(_zeros)
    return tilewright.plan(
        a, b, epilogue=row.spec.function, device=device, config=config, **row.spec.options,
        **operands,
    )  # fmt: skip


def plain_plan(row: EpilogueRow, device: str, config: str | None = None) -> tilewright.Plan:
    """The plan of the product alone, of A and all weights."""
    return tilewright.plan(
        row.m, row.weight_rows, row.k, dtype=row.spec.a.type, layout="tn", device=device,
        config=config, **row.spec.options,
    )  # fmt: skip


def candidates(row: EpilogueRow, device: str, count: int) -> list[tuple[float, str]]:
    """The ``count`` best configurations of the ranking, with their estimated microseconds."""
    plan = fused_plan(row, device)
    problem = plan.original_problem or plan.problem
    ranking = gemm.ranked(problem, plan.device.target)[:count]
    return [(1e6 * seconds, str(config)) for seconds, config in ranking]
