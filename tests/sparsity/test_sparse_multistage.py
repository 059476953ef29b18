"""Sparse products by kernel ``multistage`` (mma.sp): every type and side, as an A100 has them;
the bits of the instruction. 4-bit types, which have no arrays, by addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.packed_products import elements, product
from rows import every_row
from sparse_cases import MULTISTAGE, SparseProduct
from tilewright import compress_24, gemm, linear, matmul, mma, plan
from tilewright.errors import ConfigError, TargetError, TilewrightError
from tilewright.gemm import Problem, parse
from tilewright.mma.metadata_blocks import PAIRS, chunk_table, pack_metadata, positions_table
from tilewright.run import VmDevice
from tilewright.target import DEVICES, device_spec

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(80)
A100 = device_spec("A100")


@every_row("side", "ab", parts=7)
@every_row("case", MULTISTAGE, ids=str)
def test_every_type(case: SparseProduct, side: str) -> None:
    """A sparse B has the bits of Bᵀ as A: the instruction is the same."""
    w, x = case.operands()
    if side == "b":
        found = matmul(x.swapaxes(-1, -2), w.T, config=case.config, device=case.vm, **case.options)
        found = found.swapaxes(-1, -2)
    else:
        found = case.matmul(w, x, device=case.vm)
    expected, magnitude = case.reference(w, x)
    assert (np.abs(found.astype(np.float64) - expected) <= case.tolerance * magnitude).all()


@every_row("type_", ["f16", "tf32", "s8"])
def test_the_bits_of_the_instruction(type_: str) -> None:
    depth = {"f16": 32, "tf32": 16, "s8": 64}[type_]
    case = SparseProduct(type_, (16, 8, 4 * depth), f"16x16x{2 * depth}:1x1:3")
    w, x = case.operands()
    if type_ == "tf32":
        for array in (w.values, x.base):
            array.view(np.uint32)[...] &= 0xFFFFE000
    d = matmul(w, x, config=case.config, device="vm:A100")
    name = d.dtype.name.replace("float", "f").replace("int", "s")
    sum_type = "s32" if type_ == "s8" else "f32"
    row = mma.instruction(
        f"mma.sp.sync.aligned.m16n8k{depth}.row.col.{sum_type}.{type_}.{type_}.{sum_type}", "sm_80"
    )
    chunks = w.metadata_chunks()
    codes = chunks if type_ == "tf32" else np.stack([chunks & 3, chunks >> 2], -1).reshape(16, -1)
    bits = f"u{w.values.itemsize}"
    values, dense_x = w.values.view(bits), np.ascontiguousarray(x).view(bits)
    total = np.zeros((16, 8), np.uint32)
    for i in range(4):
        stored = slice(i * depth // 2, (i + 1) * depth // 2)
        total = row(
            values[:, stored], dense_x[i * depth : (i + 1) * depth], total,
            metadata=codes[:, stored],
        )  # fmt: skip
    sums = total.view(np.int32 if type_ == "s8" else np.float32)
    assert (sums.astype(d.dtype) == d).all(), name


@pytest.mark.slow
def test_a_layer_with_an_epilogue() -> None:
    """On a device without wgmma the heuristic chooses mma.sp; bias, activation, C and α, and
    reductions over rows.
    """
    w = compress_24(RNG.standard_normal((96, 128)).astype(np.float16), "magnitude")
    x = RNG.standard_normal((40, 128)).astype(np.float16)
    expected = x.astype(np.float32) @ w.decompress().T.astype(np.float32)
    bias, c = RNG.standard_normal(96).astype(np.float16), np.ones((40, 96), np.float16)
    near = {"atol": 0.02, "rtol": 0.002}
    d = linear(x, w, bias=bias, activation="relu", device="vm:A100")
    assert np.allclose(d, np.maximum(expected + bias, 0), **near)
    assert np.allclose(matmul(x, w.T, c=c, beta=2.0, device="vm:A100"), expected + 2, **near)
    assert not matmul(x, w.T, alpha=0.0, device="vm:A100").any()

    @tilewright.epilogue
    def with_largest(acc: Any) -> Any:
        return {"d": tilewright.cast(acc, "f16"), "largest": tilewright.max(acc, -1)}

    for config in ("32x64x64:1x2:3", "32x64x64:1x2:3*2"):
        found = matmul(x, w.T, epilogue=with_largest, config=config, device="vm:A100")
        assert np.allclose(found["d"], expected, **near)
        assert np.allclose(found["largest"], expected.max(1), **near)
    p = plan(x, w.T, device="vm:A100")
    assert isinstance(p.config, gemm.Config) and "mma.sp m16n8k32" in p.explain()


@every_row("types", [("s4", "s4"), ("u4", "s4")], ids="×".join)
@every_row("config", ["64x32x256:2x2:3", "32x64x512:1x2:2*2"], parts=3)
def test_pairs_of_4_bits(types: tuple[str, str], config: str) -> None:
    """Two of four pairs of neighbors are stored."""
    a, b = types
    m, n, k = 70, 40, 1104
    problem = Problem(m, n, k, a, b, "s32", sparse="a")
    valid = np.flatnonzero(positions_table(a)[1]).astype(np.uint8)
    chunks = RNG.choice(valid, (m, k // 8))
    values, x = elements(a, 1, m, k // 2), elements(b, 1, n, k)
    dense = np.zeros((m, k // 8, 8), np.int32)
    np.put_along_axis(dense, positions_table(a)[0][chunks], values.reshape(m, -1, 4), -1)
    gemm.check(problem, parse(config), A100)
    zeros, metadata = np.zeros((1, m, n), np.int32), pack_metadata(a, chunks)
    d = product(problem, parse(config), values, x, zeros, VmDevice(A100), metadata)
    assert np.array_equal(d[0], dense.reshape(m, k) @ x[0].T)
    table, fits = chunk_table(a)  # by pairs
    assert PAIRS == (4, 8) and len(table) == 16 and fits.sum() == 11


@every_row("name", [name for name, gpu in DEVICES.items() if gpu.target.runs("sm_80")])
def test_every_device_has_a_configuration(name: str) -> None:
    """8-bit floats from sm_89 on."""
    device = DEVICES[name]
    for a, d in (("f16", "f16"), ("tf32", "f32"), ("s8", "s32"), ("e4m3", "bf16"), ("s4", "s32")):
        problem = Problem(512, 1024, 2048, a, a, d, sparse="b")
        if a == "e4m3" and not device.target.runs("sm_89"):
            with pytest.raises(TargetError, match="needs sm_89"):
                gemm.choose(problem, device)
        else:
            gemm.check(problem, gemm.choose(problem, device), device)


@every_row(
    "config text",
    [
        ("32x32x32:1x1:3", "tile K must be at least 64 for f16, two instructions of m16n8k32"),
        ("32x32x512:1x1:2", "tile K of sparse f16 must be at most 256, got 512"),
        ("tma:64x32x64:1:3", "sm_90a"),
    ],
)
def test_errors(config: str, text: str) -> None:
    w, x = SparseProduct("f16", (64, 32, 128), config).operands()
    with pytest.raises(TilewrightError, match=text):
        matmul(w, x, config=config, device="vm:A100")


def test_only_the_widest_instruction() -> None:
    problem = Problem(64, 64, 64, "tf32", "tf32", "f32", sparse="a")
    with pytest.raises(ConfigError, match="a sparse matrix needs the widest instruction"):
        gemm.check(problem, parse("32x32x32:1x1:3:m16n8k4"), A100)
