"""``SparsePacked``: sparse weights of 4 to 8 bits, compressed and multiplied, against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rows import every_row
from sparse_cases import PACKED, packed_operands
from tilewright import compress_24, linear, matmul, plan, quantize_weight
from tilewright.errors import MetadataError, ProblemError, TilewrightError
from tilewright.mma.metadata_blocks import pack_metadata
from tilewright.quantization.packed import Packed
from tilewright.quantization.sparse_packed import SparsePacked
from tilewright.quantization.weight_units import prepare_weights

RNG = np.random.default_rng(2)


def check(form: Any, type_: str, size: tuple[int, int, int], config: str) -> None:
    w, x = packed_operands(form, type_, size)
    d = matmul(x, w.T, out_dtype="f32", device="vm", config=config)
    exact = x.astype(np.float64) @ w.dequantize().T.astype(np.float64)
    assert np.abs(d - exact).max() < 1e-6 * np.abs(exact).max() + 1e-5


@every_row("form, type_, size, config", PACKED[:2], ids=str)
def test_products_are_right(form: Any, type_: str, size: Any, config: str) -> None:
    check(form, type_, size, config)


@pytest.mark.slow
@every_row("form, type_, size, config", PACKED[2:], ids=str)
def test_all_types_are_right(form: Any, type_: str, size: Any, config: str) -> None:
    check(form, type_, size, config)


def dense_weights(zeros: str | None = "integer", *shape: int) -> Packed:
    w = RNG.standard_normal(shape or (72, 256)).astype(np.float32)
    return quantize_weight(w, "u4", 64, zeros)


@every_row("zeros", [None, "integer", "float"])
def test_the_larger_half_of_each_chunk_is_kept(zeros: str | None) -> None:
    """Of the dequantized elements, which keep their values."""
    packed = dense_weights(zeros)
    sparse, w = compress_24(packed, "magnitude"), packed.dequantize()
    order = np.argsort(-np.abs(w.reshape(72, 64, 4)), -1, kind="stable")
    expected = np.zeros((72, 64, 4), np.float32)
    np.put_along_axis(
        expected, order[..., :2], np.take_along_axis(w.reshape(72, 64, 4), order[..., :2], -1), -1
    )
    assert (sparse.dequantize() == expected.reshape(w.shape)).all()
    assert repr(sparse).startswith("SparsePacked(u4 72×256, f32 scales per 64")
    if zeros != "float":  # exact zeros: the same matrix without pruning
        w = np.where(expected.reshape(w.shape) == 0, 0, RNG.standard_normal(w.shape))
        again = compress_24(quantize_weight(w.astype(np.float32), "u4", 64, zeros))
        assert ((again.dequantize() == 0) | (w != 0)).all()


def test_stacks_and_arrays() -> None:
    sparse = compress_24(dense_weights("integer", 3, 72, 256), "magnitude")
    again = SparsePacked.from_arrays(sparse.to_arrays())
    assert (again.dequantize() == sparse.dequantize()).all() and again.shape == (3, 72, 256)
    assert sparse.T.shape == (3, 256, 72) and sparse.T.T is sparse
    x = RNG.standard_normal((3, 8, 256)).astype(np.float16)
    d = matmul(x, again.T, device="vm")
    exact = x.astype(np.float32) @ sparse.dequantize().swapaxes(-1, -2)
    assert np.abs(d - exact).max() < 0.05


def test_a_layer() -> None:
    """On the fast path from the second call on, which is not taken for dense weights."""
    packed = dense_weights()
    w, x = compress_24(packed, "magnitude"), RNG.standard_normal((8, 256)).astype(np.float16)
    bias = RNG.standard_normal(72).astype(np.float16)
    for weights in (w, w, packed, w):
        expected = np.maximum(x.astype(np.float32) @ weights.dequantize().T + bias, 0)
        y = linear(x, weights, bias=bias, activation="relu", device="vm")
        assert np.abs(y - expected).max() < 0.05
    assert "2:4 sparse u4 weights" in str(plan(x, w.T, device="vm").problem)


def test_a_unit_ends_with_its_metadata() -> None:
    w = compress_24(dense_weights("integer", 64, 1280), "magnitude")
    made = prepare_weights(w, "bf16")
    form = made.format
    units = made.units.reshape(1, 6, form.unit_bytes)  # of five, whole pairs
    words = np.ascontiguousarray(units[0, :5, form.metadata_offset :]).view(np.int32)
    assert (words.reshape(20, 128) == w.metadata[0]).all()
    assert (units[0, 5, form.metadata_offset :] == 0x44).all() and form.unit_bytes % 16 == 0


_PACKED = dense_weights()
_SPARSE = compress_24(_PACKED, "magnitude")
_NVFP4 = quantize_weight(np.ones((8, 256), np.float32), "nvfp4")
_X = np.zeros((8, 256), np.float16)


def _with(metadata: Any, **more: Any) -> SparsePacked:
    arrays = {"zeros": _SPARSE.zeros, "metadata": metadata} | more
    return SparsePacked(_SPARSE.data, _SPARSE.scales, "u4", 64, **arrays)


@every_row(
    "call kind text",
    [
        (lambda: compress_24(_PACKED), MetadataError, "row 0, columns 0 to 3: . of 4 are not zero"),
        (lambda: compress_24(_PACKED.T, "magnitude"), ProblemError, "packed w must be weights N×K"),
        (lambda: compress_24(_SPARSE, "magnitude"), ProblemError, "w must be dense, got SparseP"),
        (lambda: compress_24(_PACKED, "magnitude", device="vm"), ProblemError, "must be None"),
        (
            lambda: compress_24(_PACKED, np.zeros((72, 256), bool)),
            ProblemError,
            "must keep 2 of each 4 packed",
        ),
        (lambda: _with(_SPARSE.metadata[:1]), ProblemError, "must have shape 2×4×128"),
        (
            lambda: _with(pack_metadata("f16", np.zeros((72, 64), np.uint8))),
            MetadataError,
            "row 0, chunk 0",
        ),
        (
            lambda: _with(_SPARSE.metadata, order=np.arange(256, dtype=np.int32)),
            ProblemError,
            "order must be None",
        ),
        (
            lambda: matmul(_X, compress_24(_NVFP4, "magnitude").T, device="vm"),
            ProblemError,
            "group of sparse weights must be a multiple of 32 or K for a product, got 16",
        ),
        (
            lambda: matmul(_X, _SPARSE.T, device="vm", config="tma:64x16x128:1:3~"),
            TilewrightError,
            "tile_k must be 256 or 512 for 2:4 sparse u4 weights",
        ),
    ],
)  # fmt: skip
def test_errors(call: Any, kind: type[TilewrightError], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
