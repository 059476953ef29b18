"""Random calls of ``grouped_matmul``: sizes, types, layouts, configurations, by a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewright
from tilewright import dtypes
from tilewright.quantization import Scaled

TYPES = ("bf16", "f16", "e4m3", "s8", "tf32")
SCALE_BLOCKS = ((1, 1), (1, 128), (0, 0))  # rows of A and B that share a scale; 0: a row has one
WEIGHTS = ("u4", "s8", "sparse")  # of bf16 or f16 activations; None: plain matrices
CONFIGS = (
    None, "tma:64x64x64:1:3", "tma:64x32x64:1:3~", "tma:128x64x64:2:3", "tma:128x48x64:2:3~",
    "tma:128x64x64:2:3/2x1", "tma:128x128x64:2p:3",
)  # fmt: skip
UNWRITTEN = 7


@dataclass(frozen=True)
class RandomCall:
    """The arguments of a call, and the rows of A and D of each group; where rows are gathered, both
    apart. ``sizes``: indices, too; ``b``: the elements of
    ``weights``, which the call gets, as it gets ``scaled`` for A; ``more``: other arguments.
    """

    a: Any
    b: Any
    sizes: dict[str, Any]
    rows: list[Any]
    out: Any
    config: str | None
    bias: Any
    weights: Any
    more: dict[str, Any] = field(default_factory=dict)
    scaled: Any = None

    def run(self, device: Any) -> Any:
        """The result on a device."""
        given: dict[str, Any] = {"epilogue": _cast(str(self.out.dtype))}
        if self.bias is not None:
            given = {"epilogue": _with_bias, "bias": self.bias}
        out = self.out.copy()
        return tilewright.grouped_matmul(
            self.a if self.scaled is None else self.scaled, self.weights, **self.sizes, out=out,
            config=self.config, device=device, **given, **self.more,
        )  # fmt: skip

    def check(self, d: Any) -> None:
        """Assert that each group's rows are the product within rounding, and others unwritten."""
        rest = d.copy()
        for g, at in enumerate(self.rows):
            of_a, at = at if "gather" in self.sizes else (at, at)
            x, w = self.a[of_a].astype(np.float64), self.b[g].astype(np.float64)
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
    sizes = random_sizes(rng)
    unit = 16 if type_ == "s8" or rng.random() < 0.7 else 1
    n, k = (int(rng.integers(1, most)) * unit for most in (240 // unit, 400 // unit))
    form = str(rng.choice(WEIGHTS)) if type_ in ("bf16", "f16") and rng.random() < 0.4 else ""
    if form:
        k, config = -(-k // 64) * 64, config if config and "~" in config else None
    k_tile = {"e4m3": "x128:", "s8": "x128:", "u4": "x128:", "tf32": "x32:"}.get(form or type_)
    if k_tile and config:
        config = config.replace("x64:", k_tile, 1)
    if type_ == "e4m3" and config:  # two accumulators: of a k-block, and the total
        config = config.replace("128x128x", "128x64x")
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
    result = {"e4m3": "bf16", "s8": "s32", "tf32": "f32"}.get(type_, type_)
    out = np.full((*lead, n), UNWRITTEN, dtypes.dtype(result).numpy)
    bias = None
    if type_ != "s8" and rng.random() < 0.5:
        bias = rng.standard_normal((len(sizes), 1, n)).astype(np.float32)
    more: dict[str, Any] = {"precision": "tf32"} if type_ == "tf32" else {}
    if config is None and rng.random() < 0.5:
        more["expected_rows"] = int(rng.choice([1, 16, 300]))
    if type_ == "e4m3" and rng.random() < 0.5:
        blocks = SCALE_BLOCKS[rng.integers(len(SCALE_BLOCKS))]
        x, w = (
            tilewright.quantize(m.astype(np.float32), block=(1, k) if side == 0 else (side, 128))
            for m, side in zip((a, b), blocks, strict=True)
        )
        b = w.dequantize().transpose(0, 2, 1)
        if not capacity and rng.random() < 0.5:
            kept, rows, out, indices = _with_indices(rng, len(a), rows, out)
            given |= indices
            x = Scaled(x.data[kept], x.scales[kept], x.block)
        return RandomCall(x.dequantize(), b, given, rows, out, config, bias, w.T, more, x)
    if not capacity and rng.random() < 0.3:
        kept, rows, out, indices = _with_indices(rng, len(a), rows, out)
        given |= indices
        a = a[kept]
    if form:
        weights, elements = _weights(form, b)
        b = elements.transpose(0, 2, 1)
        return RandomCall(a, b, given, rows, out, config, bias, weights, more)
    b = b.transpose(0, 2, 1)
    if rng.random() < 0.3:
        b = np.ascontiguousarray(b)
    return RandomCall(a, b, given, rows, out, config, bias, b, more)


def _with_indices(
    rng: np.random.Generator, count: int, rows: list[Any], out: Any
) -> tuple[Any, list[Any], Any, dict[str, Any]]:
    """The rows of an A with fewer or more of them, which are gathered; the rows of groups as pairs
    (of A, of D); a D with more rows, to which they are scattered; and the indices.
    """
    index = np.int32 if rng.random() < 0.5 else np.int64
    gather = rng.integers(0, int(rng.integers(1, 2 * count)), count)
    kept = rng.integers(0, count, gather.max() + 1)
    scatter = rng.permutation(count + 5)[:count]
    out = np.full((count + 5, out.shape[1]), UNWRITTEN, out.dtype)
    pairs = [(gather[at], scatter[at]) for at in rows]
    return kept, pairs, out, {"gather": gather.astype(index), "scatter": scatter.astype(index)}


def _weights(form: str, b: Any) -> tuple[Any, Any]:
    """Weights of this form, as B of a call, and their elements."""
    if form == "sparse":
        sparse = tilewright.compress_24(b, prune="magnitude")
        return sparse.T, sparse.decompress()
    packed = tilewright.quantize_weight(b.astype(np.float32), form, group=64)
    return packed.T, packed.dequantize()


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
    return rng.standard_normal(shape).astype(
        dtypes.dtype("f32" if type_ == "tf32" else type_).numpy
    )


def _with_bias(acc: Any, bias: Any) -> Any:
    return acc + bias


def _cast(type_: str) -> Any:
    names = {"float16": "f16", "bfloat16": "bf16"}
    return {"f16": _to_f16, "bf16": _to_bf16}.get(names.get(type_), _accumulator)


def _to_f16(acc: Any) -> Any:
    return tilewright.cast(acc, "f16")


def _to_bf16(acc: Any) -> Any:
    return tilewright.cast(acc, "bf16")


def _accumulator(acc: Any) -> Any:
    return acc
