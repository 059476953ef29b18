"""Kernels with annotations that mypy checks in strict mode (``test_annotations.py``)."""

from __future__ import annotations

from typing import Annotated

from tilewright import kernel
from tilewright.builder import Builder, Pointer, Reg, Var, f32, ptr, u32


@kernel(block=256)
def saxpy(k: Builder, n: u32, a: f32, x: ptr[f32], y: ptr[f32]) -> None:
    i = k.ctaid.x * 256 + k.tid.x
    with k.if_(i < n):
        y[i] = k.fma(a, x[i], y[i])


@kernel
def row_sum(
    k: Builder, n: u32, x: Annotated[Pointer, ptr(f32, align=16)], y: ptr[f32], *, width: int
) -> None:
    total: Var = k.var("f32", 0.0)
    for i in k.range(n):
        element: Reg = x[i * width + k.tid.x]
        total += element
    y[k.tid.x] = total
