"""Random lists of problems: sizes, types, layouts, operands, configurations, by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright
from tilewright import dtypes
from tilewright.quantization import Scaled

TYPES = ("bf16", "f16", "e4m3", "s8", "tf32")
RESULTS = {"e4m3": "bf16", "s8": "f32", "tf32": "f32"}
CONFIGS = (
    None, "tma:64x64x64:1:3", "tma:64x32x64:1:3~", "tma:128x64x64:2:3", "tma:128x48x64:2:3~",
    "tma:128x64x64:2:3/2x1", "tma:128x64x64:2p:3",
)  # fmt: skip
K_TILES = {"e4m3": "x128:", "s8": "x128:", "tf32": "x32:"}


@dataclass(frozen=True)
class RandomList:
    """The arguments of a call: a matrix A, B and operands for each problem."""

    a: list[Any]
    b: list[Any]
    operands: dict[str, Any]
    config: str | None
    more: dict[str, Any]
    scaled: tuple[list[Any], list[Any]] | None = None  # what A and B are of, if they are Scaled

    def run(self, device: Any, **arrays: Any) -> list[Any]:
        """The results; ``arrays`` replace those of the call."""
        a, b = self.scaled or (self.a, self.b)
        given = {"a": a, "b": b, **self.operands} | arrays
        found: list[Any] = tilewright.grouped_matmul(
            **given, epilogue=_linear, config=self.config, device=device, **self.more
        )
        return found

    def check(self, found: list[Any]) -> None:
        """Assert that each result is what it must be within rounding."""
        of_columns, scale = self.operands["columns"], self.operands["scale"]
        rows, factor = self.operands["rows"], self.operands["factor"]
        for i, d in enumerate(found):
            x, y = (m[i].astype(np.float64) for m in (self.a, self.b))
            exact = factor * (scale[i] * (x @ y) + of_columns[i]) + rows[i]
            bound = abs(factor) * (abs(scale[i]) * (np.abs(x) @ np.abs(y)) + np.abs(of_columns[i]))
            assert d.shape == exact.shape
            error = np.abs(d.astype(np.float64) - exact)
            assert (error <= 2**-7 * (bound + np.abs(rows[i])) + 1e-3).all(), i


def _linear(acc: Any, columns: Any, rows: Any, scale: Any, factor: Any) -> Any:
    return factor * (acc * scale + columns) + rows


def random_list(seed: int, count: int = 6) -> RandomList:
    """The call of a seed."""
    rng = np.random.default_rng(seed)
    type_, config = str(rng.choice(TYPES)), CONFIGS[seed % len(CONFIGS)]
    if config and type_ in K_TILES:
        config = config.replace("x64:", K_TILES[type_], 1)
    unit = 16 if rng.random() < 0.6 else 1
    mixed = rng.random() < 0.4
    sizes = [(_extent(rng, 200, 1), _extent(rng, 200, unit), _extent(rng, 300, unit))
             for _ in range(count)]  # fmt: skip
    a = [_matrix(rng, type_, m, k, mixed and rng.random() < 0.5) for m, _, k in sizes]
    b = [_matrix(rng, type_, n, k, mixed and rng.random() < 0.5).T for _, n, k in sizes]
    operands = {
        "columns": [rng.standard_normal((1, n)).astype(np.float32) for _, n, _ in sizes],
        "rows": [rng.standard_normal((m, 1)).astype(np.float32) for m, _, _ in sizes],
        "scale": [float(x) for x in rng.standard_normal(count).astype(np.float32)],
        "factor": 0.5,
    }
    if rng.random() < 0.3:
        operands["rows"] = [rng.standard_normal((m, n)).astype(np.float32) for m, n, _ in sizes]
    more = {"precision": "tf32"} if type_ == "tf32" else {}
    more["out_dtype"] = RESULTS.get(type_, type_)
    if type_ in ("e4m3", "s8") and rng.random() < 0.5:
        scaled = ([_scaled(rng, x, "row") for x in a], [_scaled(rng, x, "column") for x in b])
        a, b = ([x.dequantize() for x in each] for each in scaled)
        return RandomList(a, b, operands, config, more, scaled)
    return RandomList(a, b, operands, config, more)


def _scaled(rng: np.random.Generator, data: Any, block: str) -> Scaled:
    """A matrix with scales of its lines, or sometimes one."""
    if rng.random() < 0.2:
        return Scaled(data, np.full((1, 1), 0.5, np.float32), "tensor")
    lines = data.shape[0 if block == "row" else 1]
    return Scaled(data, rng.choice([0.25, -0.5, 1], lines).astype(np.float32), block)


def _extent(rng: np.random.Generator, most: int, unit: int) -> int:
    """An extent, small ones as often as large ones; sometimes 0."""
    if rng.random() < 0.06:
        return 0
    return int(np.ceil(most ** rng.random() / unit)) * unit


def _matrix(rng: np.random.Generator, type_: str, rows: int, k: int, columns_first: bool) -> Any:
    """A matrix whose rows are contiguous, or its columns; part of a wider one, or alone."""
    name = "f32" if type_ == "tf32" else type_
    shape = (k, rows) if columns_first else (rows, k)
    shape = shape[0], shape[1] + int(rng.integers(0, 2)) * 16
    values = rng.standard_normal(shape) * (8 if type_ == "s8" else 1)
    values = np.rint(values) if type_ == "s8" else values
    whole = values.astype(dtypes.dtype(name).numpy)
    return whole.T[:rows] if columns_first else whole[:, :k]
