"""Forty products of kernel ``multistage`` whose bits are kept: ``data/matmul_sm_90a.json`` has what
an H200 returned.

All four layouts, both types, odd sizes, sub-views, α and β, C, some configurations, and operands
with NaN, infinities, subnormals, signed zeros and a huge spread. ``python -m gemm_cases.problems
cuda`` (with PYTHONPATH=tests/support) prints the digests that a device gives.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from references.hostile import Source
from tilewright.dtypes import dtype

DIGESTS = Path(__file__).parents[2] / "data" / "matmul_sm_90a.json"


def matrix(rng: np.random.Generator, rows: int, columns: int, type_: str, sort: str) -> Any:
    """A row-major matrix of one sort of numbers."""
    t = dtype(type_)
    source = Source(rng, t)
    shape = (rows, columns)
    made = {
        "normal": lambda: source.normal(shape),
        "spread": lambda: source.between(-12, 12, shape),
        "subnormal": lambda: source.one_of(shape, source.subnormal, source.normal),
        "zeros": lambda: source.one_of(shape, source.zero, source.zero, source.normal),
        "special": lambda: _rarely(rng, source, shape),
        "bits": lambda: source.uniform(shape),
    }[sort]()
    return np.asarray(made, t.storage).view(t.numpy)


def _rarely(rng: np.random.Generator, source: Source, shape: tuple[int, int]) -> Any:
    """Normal numbers with an infinity or a NaN here and there."""
    odd = np.array([source.t.nan, source.t.max_finite + 1], source.t.storage)
    normal = np.asarray(source.normal(shape), source.t.storage)
    return np.where(rng.random(shape) < 0.002, rng.choice(odd, shape), normal)


def laid(a: Any, major: str, pad: int) -> Any:
    """The same matrix, row-major (``t``) or column-major (``n``), as a view of lines that have
    ``pad`` more elements.
    """
    lines = a if major == "t" else a.T
    room = np.full((lines.shape[0], lines.shape[1] + pad), 1, a.dtype)
    view = room[:, pad // 2 : pad // 2 + lines.shape[1]]
    view[...] = lines
    return view if major == "t" else view.T


SMALL, LARGE = "16x64x64:1x2:6/2", "256x128x64:4x2:3p"

# name: M, N, K, type, type of D, layout, sort, pad, α, β, configuration
ROWS: dict[str, tuple[Any, ...]] = {
    f"{type_} {layout}": (192, 256, 128, type_, type_, layout, "normal", 0, 1.0, 0.0, SMALL)
    for type_ in ("f16", "bf16")
    for layout in ("tn", "tt", "nn", "nt")
}
ROWS |= {
    f"odd {layout} {type_}": (131, 77, 61, type_, "f32", layout, "normal", 0, 0.75, -1.25, SMALL)
    for type_, layout in (("f16", "tn"), ("bf16", "tt"), ("f16", "nn"), ("bf16", "nt"))
}
ROWS |= {
    f"view by {pad} {layout}": (100, 72, 90, "f16", "f16", layout, "spread", pad, 1.0, 0.5, SMALL)
    for pad, layout in ((1, "tn"), (2, "tt"), (3, "nn"), (4, "nt"), (8, "tn"), (16, "tt"))
}
ROWS |= {
    f"{sort} {type_}": (144, 112, 96, type_, d, layout, sort, 0, 1.0, 0.0, SMALL)
    for sort, type_, d, layout in (
        ("special", "f16", "f16", "tn"), ("special", "bf16", "f32", "nt"),
        ("bits", "f16", "f32", "tt"), ("bits", "bf16", "bf16", "tn"),
        ("subnormal", "f16", "f16", "nn"), ("subnormal", "bf16", "f32", "tt"),
        ("zeros", "f16", "f32", "nt"), ("zeros", "bf16", "bf16", "nn"),
        ("spread", "f16", "f32", "tn"), ("spread", "bf16", "f32", "tn"),
    )
}  # fmt: skip
ROWS |= {
    f"config {config}": (300, 280, 200, "bf16", "bf16", "tn", "spread", 0, 1.5, 2.5, config)
    for config in (
        "256x128x64:4x2:3", "128x128x64:2x2:3/2", "64x128x64:2x2:3/2", "32x64x64:1x2:5",
        "16x64x64:1x2:6",
    )
}  # fmt: skip
ROWS |= {
    "one": (1, 1, 1, "f16", "f16", "tn", "normal", 0, 1.0, 0.0, SMALL),
    "row": (1, 200, 300, "bf16", "bf16", "tn", "normal", 0, 1.0, 0.0, SMALL),
    "column": (200, 1, 300, "f16", "f32", "tt", "normal", 0, 1.0, 0.0, SMALL),
    "no depth": (40, 50, 0, "f16", "f16", "tn", "normal", 0, 1.0, 2.0, LARGE),
    "long": (16, 64, 5000, "f16", "f32", "tn", "normal", 0, 1.0, 0.0, SMALL),
    "infinite scale": (64, 64, 64, "bf16", "bf16", "tn", "normal", 0, float("inf"), 1.0, SMALL),
    # 136 tiles: a few of an H200's 132 CTAs compute two
    "persistent": (4352, 1024, 64, "bf16", "bf16", "tn", "normal", 0, 1.0, 0.0, LARGE),
}  # fmt: skip


def digest(name: str, device: str) -> str:
    """SHA-256 of D as the device computes it."""
    m, n, k, type_, d, layout, sort, pad, alpha, beta, config = ROWS[name]
    rng = np.random.default_rng(list(ROWS).index(name))
    a = laid(matrix(rng, m, k, type_, sort), layout[0], pad)
    b = laid(matrix(rng, k, n, type_, sort), layout[1], pad)
    c = laid(matrix(rng, m, n, d, "normal" if sort == "normal" else "spread"), "t", pad)
    options: dict[str, Any] = {"c": c, "alpha": alpha, "beta": beta} if beta else {"alpha": alpha}
    result = tilewright.matmul(a, b, out_dtype=d, device=device, config=config, **options)
    return hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()


def digests(device: str) -> Iterator[tuple[str, str]]:
    for name in ROWS:
        yield name, digest(name, device)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dict(digests(sys.argv[1])), indent=1) + "\n")
