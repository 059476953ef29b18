"""``quantize`` and products of ``Scaled`` matrices on a GPU: the bits of NumPy and of the virtual
machine.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright.quantization import Scaled, quantize

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]

RNG = np.random.default_rng(17)
X = (RNG.standard_normal((300, 1032)) * 2.0 ** RNG.integers(-20, 20, (300, 1032))).astype(
    np.float32
)
X[3], X[4, 7], X[5, 9], X[6, 8], X[7], X[8] = 0, np.nan, np.inf, -np.inf, np.nan, 1e-45


def same(a: Scaled, b: Scaled) -> bool:
    names, (one, other) = ("data", "scales"), (x.to_arrays() for x in (a, b))
    return all(np.array_equal(one[name], other[name]) for name in names)


@every_row("source", [np.float32, np.float16, ml_dtypes.bfloat16])
@every_row("type_", ["e4m3", "e5m2", "s8"])
@every_row("block", [None, "row", (1, 128), (128, 128)], ids=str)
@every_row("scale_type", ["f32", "bf16", "ue8m0"])
def test_quantize_has_the_bits_of_numpy(
    source: Any, type_: str, block: Any, scale_type: str
) -> None:
    with np.errstate(all="ignore"):
        x = X.astype(source)
    how = {"scale_dtype": scale_type}
    assert same(quantize(x, type_, block, device="cuda", **how), quantize(x, type_, block, **how))


@every_row("type_", ["e4m3", "s8"])
@every_row("block", [None, "row"], ids=str)
@every_row("m", [16, 200])
def test_products_have_the_bits_of_the_virtual_machine(type_: str, block: Any, m: int) -> None:
    x, w = (RNG.standard_normal((rows, 256)).astype(np.float32) for rows in (m, 192))
    a, b = quantize(x, type_, block), quantize(w, type_, block).T
    here, there = (tilewright.matmul(a, b, device=device) for device in ("cuda", "vm"))
    assert np.array_equal(here.view(np.uint16), there.view(np.uint16))


@every_row("type_", ["e4m3", "e5m2", "s8"])
@every_row("block", [None, "row", "column", (1, 128), (128, 128)], ids=str)
@every_row("dest", ["f32", "f16", "bf16"])
def test_dequantize_has_the_bits_of_numpy(type_: str, block: Any, dest: str) -> None:
    matrices = [quantize(np.nan_to_num(X), type_, block, scale_dtype=s) for s in ("f32", "ue8m0")]
    if type_ == "s8" and block == "row":
        matrices.append(quantize(np.nan_to_num(X), type_, block, zeros=True))
    for scaled in matrices:
        found, expected = scaled.dequantize(dest, device="cuda"), scaled.dequantize(dest)
        assert np.array_equal(found.view(np.uint8), expected.view(np.uint8))


@every_row("type_", ["e4m3", "s8"])
@every_row("block", [None, "row", "column", (1, 128), (3, 12)], ids=str)
def test_given_scales_have_the_bits_of_numpy(type_: str, block: Any) -> None:
    grid = quantize(X, type_, block).scales.shape
    scales = RNG.choice([0.5, -3, 0, np.nan, np.inf, 1e-40], grid).astype(np.float32)
    found, expected = (
        quantize(X, type_, block, scale=scales, device=device) for device in ("cuda", None)
    )
    assert np.array_equal(found.data.view(np.uint8), expected.data.view(np.uint8))


@every_row("type_", ["u8", "s8"])
def test_zero_points_have_the_bits_of_numpy(type_: str) -> None:
    found, expected = (
        quantize(X, type_, "row", zeros=True, device=device) for device in ("cuda", None)
    )
    assert same(found, expected) and np.array_equal(found.zeros, expected.zeros)


def test_weights_quantized_from_a_gpu_are_there() -> None:
    torch = pytest.importorskip("torch")
    w = torch.from_numpy(np.clip(np.nan_to_num(X[:64, :256]), -1e4, 1e4)).cuda()  # finite in f16
    scale = torch.tensor([0.5], device="cuda")
    found = quantize(w, "e4m3", scale=scale)
    assert found.scales.data_ptr() == scale.data_ptr()
    assert np.array_equal(
        found.data.cpu().view(torch.uint8).numpy(),
        quantize(w.cpu().numpy(), "e4m3", scale=0.5).data.view(np.uint8),
    )
    packed = tilewright.quantize_weight(w, "u4", 64, "integer")
    sparse = tilewright.compress_24(packed, "magnitude")
    assert packed.data.is_cuda and packed.scales.is_cuda and sparse.metadata.is_cuda
    on_cpu = tilewright.quantize_weight(w.cpu().numpy(), "u4", 64, "integer")
    dense = tilewright.compress_24(on_cpu, "magnitude").dequantize("f16")
    assert np.array_equal(packed.dequantize("f16").cpu().numpy(), on_cpu.dequantize("f16"))
    assert np.array_equal(sparse.dequantize("f16").cpu().numpy(), dense)
    mask = tilewright.sparsity.transposable_mask(w.half())
    assert mask.is_cuda and mask.dtype == torch.bool and (mask.float().sum(0) == 32).all()
    pruned = tilewright.compress_24(w.half(), mask)
    assert 0 < tilewright.sparsity.kept_magnitude(w.half(), pruned) < 1


def test_scales_of_blocks_are_contiguous_along_the_rows() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.nan_to_num(np.stack([X[:30], X[30:60]]))).cuda()
    for given in (x, x[0]):
        scaled = quantize(given, "e4m3", (1, 128))
        assert scaled.scales.stride()[-2:] == (1, 32)
        expected = quantize(given.cpu().numpy(), "e4m3", (1, 128))
        assert np.array_equal(scaled.scales.cpu().numpy(), expected.scales)
        assert np.array_equal(scaled.dequantize().cpu().numpy(), expected.dequantize())


def test_tensors_stay_on_the_gpu() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X[10:].copy()).cuda()
    scaled = quantize(x, "e4m3", "row")
    assert scaled.data.is_cuda and repr(scaled).endswith("per row) on cuda:0")
    expected = quantize(X[10:].copy(), "e4m3", "row")
    found = scaled.data.view(torch.uint8).cpu().numpy(), scaled.scales.cpu().numpy()
    assert np.array_equal(found[0], expected.data.view(np.uint8))
    assert np.array_equal(found[1], expected.scales)
    assert tilewright.matmul(scaled, scaled.T).dtype is torch.bfloat16
