"""The kernels of the benchmark's table, with problems small enough for the virtual machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright.dtypes import dtype
from tilewright.gemm import TmaConfig
from tilewright.run.devices.device_protocol import ExecutionDevice

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from compare.rows import GROUPS, rows_of


class KernelVariant(NamedTuple):
    """Everything that selects the kernel of a row, except the sizes."""

    config: TmaConfig
    type: str
    result: str
    layout: str
    fast: bool

    def __str__(self) -> str:
        return f"{self.config} {self.type} {self.layout}{' fast' * self.fast}"


def kernel_variants() -> list[KernelVariant]:
    """The variants of all rows that use kernel ``tma``."""
    found = {}
    for row in (row for name in GROUPS if name not in ("f32", "random") for row in rows_of(name)):
        how: dict[str, Any] = {"out_dtype": row.result, "fast_accum": row.fast, "device": "vm:H200"}
        plan = tilewright.plan(row.m, row.n, row.k, dtype=row.type, layout=row.layout, **how)
        assert isinstance(plan.config, TmaConfig)
        found[KernelVariant(plan.config, row.type, row.result, row.layout, row.fast)] = None
    return list(found)


def numbers(rng: np.random.Generator, shape: tuple[int, int], type_: str, letter: str) -> Any:
    """A matrix, row-major for ``t``; as large as its type has them, now and then."""
    of = dtype("f32" if type_ == "tf32" else type_).numpy
    if np.dtype(of).kind == "i":
        made = rng.integers(-128, 128, shape).astype(of)
    else:
        made = (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)).astype(of)
    return made if letter == "t" else np.asfortranarray(made)


def product(variant: KernelVariant, on: ExecutionDevice) -> bytes:
    """D as the device computes it."""
    rng = np.random.default_rng(0)
    m, n, k = 264, 400, variant.config.tile[2] * 8 - 16
    a, b = (
        numbers(rng, shape, variant.type, letter)
        for shape, letter in zip(((m, k), (k, n)), variant.layout, strict=True)
    )
    made = tilewright.matmul(
        a, b, out_dtype=variant.result, fast_accum=variant.fast, config=variant.config, device=on,
        precision="tf32" if variant.type == "tf32" else "ieee",
    )  # fmt: skip
    return bytes(made.tobytes())
