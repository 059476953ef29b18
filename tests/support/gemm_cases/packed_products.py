"""Products of s4, u4 and b1, launched on a device with addresses of packed rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import gemm
from tilewright.dtypes import dtype
from tilewright.gemm import MatrixStrides, Problem
from tilewright.gemm.kernel_launch import MATRICES, METADATA_ADDRESSES
from tilewright.run.devices.device_protocol import ExecutionDevice

Array = np.ndarray[Any, Any]


def elements(type_: str, *shape: int) -> Array:
    """Random values of a type, over all of its range."""
    low, high = (0, 1) if type_ == "b1" else dtype(type_).range
    return np.random.default_rng(shape).integers(low, high + 1, shape).astype(np.int32)


def packed(values: Array, type_: str, pitch: int) -> Array:
    """Rows of bytes, ``pitch`` bytes apart; the first element in the lowest bits, all bits after
    the last one set.
    """
    bits = dtype(type_).bits
    fields = (values[..., None] >> np.arange(bits)) & 1
    rows = np.packbits(fields.reshape(*values.shape[:-1], -1).astype(bool), -1, "little")
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, pitch - rows.shape[-1])]
    return np.pad(rows, padding, constant_values=0xFF)


def product(
    problem: Problem, config: gemm.AnyConfig, a: Array, b: Array, c: Array, on: ExecutionDevice,
    metadata: Array | None = None,
) -> Array:  # fmt: skip
    """A Bᵀ (+ C) of values (batch, rows, K), launched with packed rows. With ``metadata``: A has
    the stored elements of a sparse matrix.
    """
    per = problem.per_byte
    align = max(problem.align_a, problem.align_b)
    pitch = -(-problem.k // (per * align)) * align + align
    inputs = [packed(a, problem.a, pitch), packed(b, problem.b, pitch), c, np.full_like(c, 77)]
    if metadata is not None:
        inputs.append(metadata)
    addresses: list[int] = []
    for array in inputs:
        rows = np.ascontiguousarray(array).view(np.uint8).reshape(1, -1)
        addresses.append(on.alloc(max(rows.size, 16)))
        on.upload(addresses[-1], rows, rows.size)
    workspace = on.alloc(max(16, gemm.workspace_bytes(problem, config, on.target)))
    named = dict(zip((*"abcd", *METADATA_ADDRESSES[:1]), addresses, strict=False))
    slots = [(named | {"w": workspace}).get(name, 0) for name in MATRICES]
    rows = {"a": problem.m, "b": problem.n}
    strides = {x: MatrixStrides(pitch * per, pitch * per * n) for x, n in rows.items()}
    strides |= {x: MatrixStrides(problem.n, problem.m * problem.n) for x in "cd"}
    for step in gemm.launches(problem, config, strides, on.target):
        traced = step.kernel.trace()
        shared = traced.dynamic_shared + step.shape.unused
        start = on.prepare(on.compile(traced), step.shape.grid, step.shape.block, shared)
        start(bytes(step.arguments.pack(slots, ((1.0, 0), (1.0, 0)))), 0)
    on.wait()
    d = np.empty((1, c.size), np.int32)
    on.download(d, addresses[3], c.size)
    return d.reshape(c.shape)
