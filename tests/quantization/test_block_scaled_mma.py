"""Products of MXFP8, MXFP4 and NVFP4 matrices by block-scaled ``mma`` of sm_120a, in a kernel of
the builder on the virtual machine: published, not verified.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from rows import every_row
from tilewright.builder import Builder, Pointer, Reg, Traced, trace
from tilewright.quantization import Packed, quantize_weight
from tilewright.run import launch

pytestmark = pytest.mark.vm


class ScaledMma(NamedTuple):
    """A block-scaled mma of 16×8 tiles: its depth, and the number of scales along it."""

    opcode: str
    depth: int
    scales: int


HEAD = "mma.sync.aligned.m16n8k{}.row.col.kind::{}.block_scale.scale_vec::{}X.f32.{}.{}.f32.{}"
MMAS = {
    "mxfp8": ScaledMma(HEAD.format(32, "mxf8f6f4", 1, "e4m3", "e4m3", "ue8m0"), 32, 1),
    "mxfp8_e5m2": ScaledMma(HEAD.format(32, "mxf8f6f4", 1, "e5m2", "e5m2", "ue8m0"), 32, 1),
    "mxfp4": ScaledMma(HEAD.format(64, "mxf4", 2, "e2m1", "e2m1", "ue8m0"), 64, 2),
    "nvfp4": ScaledMma(HEAD.format(64, "mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3"), 64, 4),
}


def kernel(form: ScaledMma) -> Traced:
    """D (M×N) = A Bᵀ, a warp for each tile of 16×8; rows of packed elements and of scales."""

    def body(
        k: Builder, a: Pointer, b: Pointer, scale_a: Pointer, scale_b: Pointer, d: Pointer,
        n: Reg, blocks: Reg,
    ) -> None:  # fmt: skip
        quad, lane = k.tid.x >> 2, k.tid.x & 3
        row, column = k.ctaid.y * 16 + quad, k.ctaid.x * 8 + quad
        total = [k.var("f32", 0.0) for _ in range(4)]
        for block in k.range(0, blocks, unroll=False):

            def words(base: Pointer, row: Any, block: Any = block) -> list[Any]:
                first = (row * blocks + block) * 8 + lane  # of 32 bytes
                return [base[first], base[first + 4]]

            def scales(base: Pointer, row: Any, block: Any = block) -> Any:
                first, word = (row * blocks + block) * form.scales, k.const("u32", 0)
                for i in range(form.scales):
                    word = word | base[first + i].to("u32") << 8 * i
                return word

            (a0, a2), (a1, a3) = words(a, row), words(a, row + 8)
            results = k.emit(
                form.opcode, [a0, a1, a2, a3], words(b, column), total,
                scales(scale_a, row + (lane & 1) * 8), [0, 0], scales(scale_b, column), [0, 0],
                vector=4,
            )  # fmt: skip
            for variable, result in zip(total, results, strict=True):
                variable.set(result)
        for i, value in enumerate(total):
            d[(row + i // 2 * 8) * n + k.ctaid.x * 8 + lane * 2 + i % 2] = value

    params = {"a": "ptr b32", "b": "ptr b32", "scale_a": "ptr u8", "scale_b": "ptr u8"}
    params |= {"d": "ptr f32", "n": "u32", "blocks": "u32"}
    return trace(body, params=params, name="block_scaled", block=32, target="sm_120a")


@every_row("name", list(MMAS))
def test_products(name: str) -> None:
    rng, form = np.random.default_rng(3), MMAS[name]
    m, n, depth = 32, 24, 4 * form.depth
    left, right = (
        quantize_weight(rng.standard_normal((rows, depth)).astype(np.float32), name)
        for rows in (m, n)
    )
    d = np.empty((m, n), np.float32)
    arrays = *_bits(left, right), d, n, depth // form.depth
    launch(kernel(form), (n // 8, m // 16), (32,), arrays, device="vm:RTX 5090")
    for matrix in (left, right):
        d = d * (1 if matrix.global_scale is None else matrix.global_scale)
    one, other = (matrix.dequantize().astype(float) for matrix in (left, right))
    assert np.abs(d - one @ other.T).max() <= 2.0**-20 * (np.abs(one) @ np.abs(other).T).max()


def _bits(*matrices: Packed) -> list[Any]:
    data = [np.ascontiguousarray(x.data).view(np.uint8).view(np.uint32) for x in matrices]
    return [*data, *(np.ascontiguousarray(x.scales).view(np.uint8) for x in matrices)]
