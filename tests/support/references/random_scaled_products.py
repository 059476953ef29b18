"""Random products of ``Scaled`` matrices, in parts of a few kernels with several shapes each."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import tilewright
from references.block_scaled_products import HOSTILE, reference, same
from tilewright import gemm
from tilewright.dtypes import dtype
from tilewright.errors import ConfigError
from tilewright.gemm.block_scaling import BlockScaling
from tilewright.quantization import Scaled
from tilewright.run.call.request import BlockScales
from tilewright.target import DEFAULT_DEVICE

PARTS, KERNELS, SHAPES = 50, 2, 10  # 1,000 problems
SCALE_TYPES = ("f32", "f32", "bf16", "ue8m0")
PLAIN = "tma:64x64x128:1:4"
LINES = ("tensor", "row"), ("tensor", "column")
TOLERANCE = {"f32": 2.0**-11, "bf16": 2.0**-8, "f16": 2.0**-10}  # of |A| |B|


class ScaledKind(NamedTuple):
    """What decides a kernel: types of A, B, their scales and D, and both blocks."""

    types: tuple[str, str]
    scale_types: tuple[str, str]
    d: str
    blocks: tuple[Any, Any]
    fast: bool

    @property
    def scaling(self) -> BlockScaling | None:
        """The block scaling, of scales that vary along K."""
        left, right = self.blocks
        return None if isinstance(left, str) else BlockScaling(left[0], right[1], self.scale_types)


class ScaledProblem(NamedTuple):
    """Operands on the CPU, and the configuration of their product."""

    kind: ScaledKind
    a: Scaled
    b: Scaled
    config: str

    def product(self, device: str, out_dtype: str) -> Any:
        """D as a device computes it."""
        return tilewright.matmul(
            self.a, self.b, out_dtype=out_dtype, fast_accum=self.kind.fast, config=self.config,
            device=device,
        )  # fmt: skip

    def check(self, device: str) -> None:
        """The bits of D are the reference's, unless K is split, and D is right against f64."""
        found, kind = self.product(device, "f32"), self.kind
        if not {"*", "+"} & {*self.config}:
            assert same(found, self._reference(device)), self
        with np.errstate(over="ignore"):
            narrow = found.astype(dtype(kind.d).numpy)
        if kind.d != "f32":
            assert same(self.product(device, kind.d).astype(np.float32), narrow.astype(np.float32))
        left, right = (x.dequantize().astype(float) for x in (self.a, self.b))
        if np.isfinite(left).all() and np.isfinite(right).all() and np.isfinite(narrow).all():
            bound = TOLERANCE[kind.d] * (np.abs(left) @ np.abs(right)) + 1e-5
            assert (np.abs(narrow.astype(float) - left @ right) <= bound).all(), self

    def _reference(self, device: str) -> Any:
        if (scaling := self.kind.scaling) is not None:
            scales = BlockScales(scaling, self.a.scales, self.b.scales)
            return reference(self.a.data, self.b.data, scales, device)
        plain = tilewright.matmul(
            self.a.data, self.b.data, out_dtype=None if self.kind.types[0] == "s8" else "f32",
            fast_accum=self.kind.fast, config=self.config, device=device,
        )  # fmt: skip
        with np.errstate(all="ignore"):
            scales = (x.scales.astype(np.float32) for x in (self.a, self.b))
            return plain.astype(np.float32) * next(scales) * next(scales)


def problems(part: int) -> Iterator[ScaledProblem]:
    """The problems of a part."""
    draw = random.Random(part)
    for _ in range(KERNELS):
        kind = _kind(draw)
        place = draw.random()
        for _ in range(SHAPES):
            yield _problem(draw, kind, place)


def _kind(draw: random.Random) -> ScaledKind:
    scale_types = draw.choice(SCALE_TYPES), draw.choice(SCALE_TYPES)
    d, fast = draw.choice(("f32", "bf16", "f16")), draw.random() < 0.3
    if draw.random() < 0.75:
        types = draw.choice(("e4m3", "e5m2")), draw.choice(("e4m3", "e5m2"))
        blocks: Any = (draw.choice((1, 128)), 128), (128, draw.choice((1, 128)))
        return ScaledKind(types, scale_types, d, blocks, fast)
    types = draw.choice((("e4m3", "e5m2"), ("e4m3", "e4m3"), ("s8", "s8")))
    return ScaledKind(types, scale_types, d, tuple(map(draw.choice, LINES)), fast)


def _problem(draw: random.Random, kind: ScaledKind, place: float) -> ScaledProblem:
    m, n = (round(math.exp(draw.uniform(math.log(2), math.log(300)))) for _ in range(2))
    k = draw.choice((draw.randrange(129, 800), 128 * draw.randrange(2, 6)))
    rng, hostile = np.random.default_rng(draw.randrange(1 << 30)), draw.random() < 0.3
    a = _operand(rng, (m, k), 0, kind, hostile)
    b = _operand(rng, (k, n), 1, kind, hostile)
    config = PLAIN if kind.scaling is None else _config(kind, place)
    return ScaledProblem(kind, a, b, config)


@lru_cache(maxsize=8)
def _config(kind: ScaledKind, place: float) -> str:
    """A candidate, from this place of the ranking on, that fits D of f32 and of its own type, and
    scales contiguous along K, which take most shared memory.
    """
    along_k = tuple("k" if t == "f32" else "" for t in kind.scale_types)
    scaling = replace(kind.scaling, contiguous=along_k)
    narrow, wide = (
        gemm.Problem(300, 300, 800, *kind.types, d, align_d=size, scaling=scaling)
        for d, size in (("f16", 2), ("f32", 4))
    )
    ranking = gemm.ranked(narrow, DEFAULT_DEVICE)
    for _, config in ranking[int(place * len(ranking)) :] + ranking[:]:
        with suppress(ConfigError):
            gemm.check(wide, config, DEFAULT_DEVICE)
            return str(config)
    raise AssertionError(f"no configuration fits {kind}")


def _operand(
    rng: np.random.Generator, shape: tuple[int, int], which: int, kind: ScaledKind, hostile: bool
) -> Scaled:
    type_, block = kind.types[which], kind.blocks[which]
    if type_ == "s8":
        values = rng.integers(-128, 128, shape).astype(np.int8)
    else:
        values = rng.standard_normal(shape).astype(np.float32).astype(dtype(type_).numpy)
    sides = {"tensor": shape, "row": (1, shape[1]), "column": (shape[0], 1)}.get(block, block)
    grid = tuple(-(-size // side) for size, side in zip(shape, sides, strict=True))
    scales = rng.uniform(0.25, 4, grid)
    if kind.scale_types[which] == "ue8m0":
        scales = np.exp2(np.round(np.log2(scales)))
    scales = scales.astype(dtype(kind.scale_types[which]).numpy)
    if hostile and kind.scale_types[which] != "ue8m0":
        flat = scales.reshape(-1)
        flat[rng.integers(0, flat.size, 4)] = rng.choice(HOSTILE, 4)
    return Scaled(values, scales, sides)
