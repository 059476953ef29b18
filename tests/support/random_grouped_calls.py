"""Random calls of ``grouped_matmul``: sizes, types, layouts, configurations, by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright
from tilewright import dtypes

TYPES = ("bf16", "f16", "e4m3", "s8")
CONFIGS = (
    None, "tma:64x64x64:1:3", "tma:64x32x64:1:3~", "tma:128x64x64:2:3", "tma:128x48x64:2:3~",
    "tma:128x64x64:2:3/2x1", "tma:128x128x64:2p:3",
)  # fmt: skip
UNWRITTEN = 7


@dataclass(frozen=True)
class RandomCall:
    """The arguments of a call, and the rows of A and D of each group. ``type``: of A and B."""

    a: Any
    b: Any
    sizes: dict[str, Any]
    rows: list[Any]
    out: Any
    config: str | None
    bias: Any

    def run(self, device: Any) -> Any:
        """The result on a device."""
        given: dict[str, Any] = {"epilogue": _cast(str(self.out.dtype))}
        if self.bias is not None:
            given = {"epilogue": _with_bias, "bias": self.bias}
        out = self.out.copy()
        return tilewright.grouped_matmul(
            self.a, self.b, **self.sizes, out=out, config=self.config, device=device, **given
        )

    def check(self, d: Any) -> None:
        """Assert that each group's rows are the product within rounding, and others unwritten."""
        rest = d.copy()
        for g, at in enumerate(self.rows):
            x, w = self.a[at].astype(np.float64), self.b[g].astype(np.float64)
            expected, scale = x @ w, np.abs(x) @ np.abs(w)
            if self.bias is not None:
                expected, scale = expected + self.bias[g], scale + np.abs(self.bias[g])
            assert (np.abs(d[at].astype(np.float64) - expected) <= 2**-7 * scale + 1e-3).all()
            rest[at] = UNWRITTEN
        assert (rest.astype(np.float64) == UNWRITTEN).all()


def random_call(seed: int) -> RandomCall:
    """The call of a seed."""
    rng = np.random.default_rng(seed)
    type_, config = rng.choice(TYPES), CONFIGS[seed % len(CONFIGS)]
    if type_ in ("e4m3", "s8") and config:  # their k-tile has 128 elements
        config = config.replace("x64:", "x128:", 1)
    sizes = random_sizes(rng)
    unit = 16 if type_ == "s8" or rng.random() < 0.7 else 1
    n, k = (int(rng.integers(1, most)) * unit for most in (240 // unit, 400 // unit))
    capacity = max(sizes) + int(rng.integers(0, 9)) if rng.random() < 0.3 else 0
    before, after = (int(x) for x in rng.integers(0, 5, 2))
    index = np.int32 if rng.random() < 0.5 else np.int64
    begins = before + np.cumsum([0, *sizes])
    lead = (len(sizes), capacity) if capacity else (int(begins[-1]) + after,)
    a, b = _random(rng, type_, (*lead, k)), _random(rng, type_, (len(sizes), n, k))
    rows: list[Any] = [slice(i, i + s) for i, s in zip(begins, sizes, strict=False)]
    given: dict[str, Any] = {"offsets": begins.astype(index)}
    if capacity:
        rows = [(g, slice(0, s)) for g, s in enumerate(sizes)]
        given = {"counts": np.array(sizes, index)}
    result = {"e4m3": "bf16", "s8": "s32"}.get(type_, type_)
    out = np.full((*lead, n), UNWRITTEN, dtypes.dtype(result).numpy)
    bias = None
    if type_ != "s8" and rng.random() < 0.5:
        bias = rng.standard_normal((len(sizes), 1, n)).astype(np.float32)
    b = b.transpose(0, 2, 1)
    if rng.random() < 0.3:
        b = np.ascontiguousarray(b)
    return RandomCall(a, b, given, rows, out, config, bias)


def random_sizes(rng: np.random.Generator) -> list[int]:
    """Ragged, with empty groups; sometimes one giant, or none that has rows but one."""
    groups = int(rng.integers(1, 9))
    sizes = rng.integers(0, int(rng.choice([3, 40, 150])), groups)
    sizes[rng.random(groups) < 0.3] = 0
    if rng.random() < 0.3:
        sizes[rng.integers(groups)] = 300
    return [int(size) for size in sizes] if sizes.any() else [1, *map(int, sizes)]


def _random(rng: np.random.Generator, type_: str, shape: tuple[int, ...]) -> Any:
    if type_ == "s8":
        return rng.integers(-100, 100, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(dtypes.dtype(type_).numpy)


def _with_bias(acc: Any, bias: Any) -> Any:
    return acc + bias


def _cast(type_: str) -> Any:
    names = {"float16": "f16", "bfloat16": "bf16", "int32": "s32"}
    return {"f16": _to_f16, "bf16": _to_bf16, "s32": _to_s32}[names[type_]]


def _to_f16(acc: Any) -> Any:
    return tilewright.cast(acc, "f16")


def _to_bf16(acc: Any) -> Any:
    return tilewright.cast(acc, "bf16")


def _to_s32(acc: Any) -> Any:
    return acc
