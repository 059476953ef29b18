"""Products of sparse matrices with scales, of rows and columns and of blocks along K; gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rows import every_row
from sparse_cases import SCALED
from tilewright import Scaled, compress_24, linear, matmul, quantize
from tilewright.errors import MetadataError, ProblemError

RNG = np.random.default_rng(5)


@every_row("config type_ blocks", SCALED, parts=2)
def test_products(config: str, type_: str, blocks: tuple[Any, Any]) -> None:
    """The weights are the left matrix without ``~`` in the configuration, the right one with it."""
    w, x = (RNG.standard_normal((rows, 656)).astype(np.float32) for rows in (200, 72))
    w = compress_24(quantize(w, type_, blocks[0]), "magnitude")
    x = quantize(x, type_, blocks[1])
    exact = x.dequantize().astype(np.float64) @ w.dequantize().T.astype(np.float64)
    if "~" in config:
        d = linear(x, w, config=config, device="vm")
    else:
        d = matmul(w, x.T, config=config, device="vm").T
    assert np.abs(d.astype(np.float64) - exact).max() <= 2**-8 * np.abs(exact).max()


def test_integers_are_exact() -> None:
    """By both kernels: the bits of the dense product."""
    w = quantize(RNG.standard_normal((96, 256)).astype(np.float32), "s8", "row")
    x = quantize(RNG.standard_normal((40, 256)).astype(np.float32), "s8", "row")
    sparse = compress_24(w, "magnitude")
    dense = Scaled(sparse.data.decompress(), sparse.scales, sparse.block)
    expected = linear(x, dense, device="vm")
    for device in ("vm", "vm:A100"):
        assert (linear(x, sparse, device=device) == expected).all()


@every_row("config", [None, "tma:128x32x64:1:3~", "tma:256x64x64:2:2/2x1~", "tma:128x32x64:2p:2~"])
def test_a_gate(config: str | None) -> None:
    """Both weights are sparse: in halves of the tile, each with metadata of its own."""
    x = RNG.standard_normal((72, 328)).astype(np.float16)
    gate, up = (
        compress_24(RNG.standard_normal((200, 328)).astype(np.float16), "magnitude")
        for _ in range(2)
    )
    d = linear(x, up, gate=gate, activation="relu", device="vm", config=config)
    left, right = (x.astype(np.float32) @ w.decompress().T.astype(np.float32) for w in (gate, up))
    assert np.allclose(d, np.maximum(left, 0) * right, rtol=0.002, atol=0.1)


def test_a_sparse_matrix_times_two() -> None:
    w = compress_24(RNG.standard_normal((100, 328)).astype(np.float16), "magnitude")
    pair = tuple(RNG.standard_normal((328, 40)).astype(np.float16) for _ in range(2))
    d = matmul(w, pair, epilogue=lambda x, y: x - y, device="vm")
    exact = w.decompress().astype(np.float32) @ (pair[0].astype(np.float32) - pair[1])
    assert np.allclose(d, exact, rtol=0.002, atol=0.1)
    with pytest.raises(ProblemError, match="b2 must be sparse, as b is"):
        matmul(pair[0].T, (w.T, w.decompress().T), epilogue=lambda x, y: x - y, device="vm")


def test_a_sparse_scaled_matrix() -> None:
    w = quantize(RNG.standard_normal((64, 256)).astype(np.float32), "e4m3", (1, 128))
    sparse = compress_24(w, "magnitude")
    assert repr(sparse) == "Scaled(sparse e4m3 64×256, f32 scales per 1×128)"
    assert sparse.T.shape == (256, 64) and (sparse.T.dequantize() == sparse.dequantize().T).all()
    kept = sparse.data.decompress() != 0
    assert (sparse.dequantize() == np.where(kept, w.dequantize(), 0)).all()
    with pytest.raises(MetadataError, match="row 0"):
        compress_24(w)
    with pytest.raises(ProblemError, match="whole chunks of 4 columns"):
        compress_24(quantize(np.ones((4, 8), np.float32), "e4m3", (1, 2)))
    with pytest.raises(ProblemError, match="data must be an array to be saved"):
        sparse.to_arrays()
