"""``matmul`` of f16 and bf16 matrices by packed weights, against f64 of the dequantized weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright import gemm
from tilewright.errors import TilewrightError
from tilewright.quantization.weight_units import prepare_weights
from tilewright.run import VmDevice

SEED = np.random.default_rng
SMALL = "tma:64x16x128:1:2~"  # one kernel for all tests that are not slow
# (type, group, zero points), A's type, (M, N, K), configuration
FAST = ((("u4", 128, "integer"), "f16", (5, 200, 384), SMALL),)
CASES = (
    *FAST,
    (("s4", 64, None), "f16", (5, 128, 384), "tma:64x8x256:1:2/1x1~"),
    (("u4", 128, "integer"), "bf16", (16, 200, 512), "tma:64x16x128:1:3/1x1~"),
    (("u4", 32, "float"), "f16", (40, 130, 256), "tma:128x40x128:2:3/1x1~"),
    (("u4", 128, None), "bf16", (16, 128, 1024), "tma:64x16x128:1:3/1x1*2~"),
    (("u4", 128, "integer"), "bf16", (16, 200, 896), "tma:64x16x128:3:6~"),
    (("s4", 64, None), "f16", (30, 130, 1024), "tma:64x32x128:2:4*2~"),
    (("u4", 128, "integer"), "f16", (16, 64, 128), "tma:64x16x128:4:8~"),
    (("s8", None, None), "bf16", (70, 256, 192), "tma:256x96x128:2:2/1x1~"),
    (("u8", 128, "integer"), "bf16", (130, 192, 384), "tma:64x64x128:2p:3/1x1~"),
    (("e4m3", 128, None), "f16", (24, 130, 256), "tma:64x32x128:1:3/2x1~"),
    (("mxfp4", 32, None), "bf16", (16, 128, 384), "tma:128x16x128:2:3/1x2~"),
    (("nvfp4", 16, None), "bf16", (9, 100, 256), "tma:64x16x256:1:2/1x1~"),
    (("mxfp6", 32, None), "f16", (9, 100, 256), "tma:64x16x128:1:2/1x1~"),
    (("mxfp6_e3m2", 32, None), "bf16", (9, 100, 256), "tma:64x16x128:1:2/1x1~"),
)


def quantized(rng: np.random.Generator, n: int, k: int, form: tuple[Any, ...]) -> Any:
    w = rng.standard_normal((n, k)).astype(np.float32)
    return tilewright.quantize_weight(w, *form)


def operand(rng: np.random.Generator, m: int, k: int, type_: str) -> Any:
    x = rng.standard_normal((m, k)).astype(np.float32)
    return x.astype(np.float16 if type_ == "f16" else ml_dtypes.bfloat16)


@every_row("form, type_, size, config", FAST, ids=str)
def test_products_are_right(form: Any, type_: str, size: tuple[int, ...], config: str) -> None:
    check(form, type_, size, config)


@pytest.mark.slow
@every_row("form, type_, size, config", CASES, ids=str)
def test_all_types_are_right(form: Any, type_: str, size: tuple[int, ...], config: str) -> None:
    check(form, type_, size, config)


@pytest.mark.slow
@every_row("group, bk", [(32, 128), (128, 256)])
def test_row_blocks_share_the_sums_of_x(group: int, bk: int) -> None:
    """The products by ones are those of one row block; the bits are of kernels that have but one.
    The loop's body has two copies.
    """
    rng = SEED(group)
    packed, x = quantized(rng, 200, 512, ("u4", group, "float")), operand(rng, 9, 512, "f16")
    blocks, one = (
        tilewright.plan(x, packed.T, out_dtype="f32", device="vm", config=f"tma:{tile}~")
        for tile in (f"256x16x{bk}:2:2", "64x16x128:1:2")
    )
    assert np.array_equal(blocks.run(x, packed.T), one.run(x, packed.T))
    kernel = gemm.build(blocks.problem, blocks.config, blocks.device.target)
    found = kernel.ptx.count("wgmma.mma_async")
    assert found == 2 * (bk // 16) * (2 + 1)


def check(form: Any, type_: str, size: tuple[int, ...], config: str) -> None:
    rng, (m, n, k) = SEED(sum(size)), size
    packed, x = quantized(rng, n, k, form), operand(rng, m, k, type_)
    d = tilewright.matmul(x, packed.T, out_dtype="f32", device="vm", config=config)
    exact = x.astype(np.float64) @ packed.dequantize().T.astype(np.float64)
    assert np.abs(d - exact).max() < 1e-6 * np.abs(exact).max() + 1e-5


def ordered(rng: np.random.Generator) -> Any:
    """Weights whose columns are permuted."""
    packed = quantized(rng, 64, 256, ("u4", 128, "integer"))
    order = rng.permutation(256).astype(np.int32)
    return tilewright.Packed(packed.data, packed.scales, "u4", 128, packed.zeros, order)


def test_act_order() -> None:
    rng = SEED(5)
    packed, x = ordered(rng), operand(rng, 8, 256, "f16")
    d = tilewright.matmul(x, packed.T, out_dtype="f32", device="vm", config=SMALL)
    assert np.abs(d - x.astype(np.float64) @ packed.dequantize().T).max() < 1e-4


def test_the_global_scale_is_in_the_epilogue() -> None:
    rng = SEED(7)
    packed, x = quantized(rng, 64, 128, ("nvfp4", 16, None)), operand(rng, 8, 128, "f16")
    y = tilewright.linear(x, packed, device="vm", config=SMALL)
    assert np.array_equal(y, tilewright.matmul(x, packed.T, device="vm", config=SMALL))
    assert np.abs(y - x.astype(np.float64) @ packed.dequantize().T).max() < 0.05


@pytest.mark.slow
@every_row("config", ["tma:64x16x128:3:6~", "tma:128x16x128:2:3~"])
def test_a_fused_layer(config: str) -> None:
    rng = SEED(1)
    packed, x = ordered(rng), operand(rng, 8, 256, "f16")
    bias = rng.standard_normal(64).astype(np.float32)
    residual = operand(rng, 8, 64, "f16")
    y = tilewright.linear(
        x, packed, bias, activation="relu", residual=residual, device="vm", config=config
    )
    exact = x.astype(np.float64) @ packed.dequantize().T.astype(np.float64) + bias
    assert y.dtype == np.float16 and np.abs(y - np.maximum(exact, 0) - residual).max() < 0.05


def test_a_gated_layer() -> None:
    """SwiGLU: silu(x gateᵀ) · (x wᵀ + bias), the gate in f32."""
    rng = SEED(8)
    w, gate = (quantized(rng, 72, 256, ("u4", 128, "integer")) for _ in range(2))
    x, bias = operand(rng, 8, 256, "f16"), rng.standard_normal(72).astype(np.float32)
    y = tilewright.linear(
        x, w, bias, gate=gate, activation="silu", save=("gate",), out_dtype="f32", device="vm",
        config=SMALL,
    )  # fmt: skip
    wide = x.astype(np.float64)
    gated, up = (wide @ p.dequantize().T.astype(np.float64) for p in (gate, w))
    assert np.abs(y["gate"] - gated).max() < 1e-4
    assert np.abs(y["y"] - gated / (1 + np.exp(-gated)) * (up + bias)).max() < 1e-3


def test_a_stack_of_weights() -> None:
    """Products of a stack of activations by a stack of weights, as experts have them."""
    rng = SEED(9)
    one = [quantized(rng, 72, 256, ("u4", 128, "integer")) for _ in range(3)]
    arrays = (np.stack([getattr(p, name) for p in one]) for name in ("data", "scales", "zeros"))
    data, scales, zeros = arrays
    stack = tilewright.Packed(data, scales, "u4", 128, zeros)
    x = operand(rng, 3 * 8, 256, "f16").reshape(3, 8, 256)
    options: dict[str, Any] = {"out_dtype": "f32", "device": "vm", "config": SMALL}
    d = tilewright.matmul(x, stack.T, **options)
    for i, packed in enumerate(one):
        assert np.array_equal(d[i], tilewright.matmul(x[i], packed.T, **options))
    assert repr(stack.prepared["f16"]).startswith("PreparedWeights(3×256×72, u4 weights")
    for other in (x[0], x[:2], x[None]):
        with pytest.raises(TilewrightError, match="a must be a stack of 3 matrices"):
            tilewright.matmul(other, stack.T, **options)


def test_products_without_elements() -> None:
    """No rows of A, no weights, no K, no matrices."""
    rng = SEED(4)
    packed, x = quantized(rng, 72, 256, ("u4", 64, "integer")), operand(rng, 5, 256, "f16")
    product = partial(tilewright.matmul, device="vm", config=SMALL)
    arrays = packed.data, packed.scales, packed.zeros

    def part(*index: slice) -> Any:
        data, scales, zeros = (array[index] for array in arrays)
        return tilewright.Packed(data, scales, "u4", 64, zeros)

    none, every = slice(0), slice(None)
    assert product(x[:0], packed.T).shape == (0, 72)
    assert product(x, part(none).T).shape == (5, 0)
    assert not product(x[:, :0], part(every, none).T).any()
    whole = tilewright.Packed(packed.data[:, :0], packed.scales[:, :0], "u4")
    assert not product(x[:, :0], whole.T).any()
    stack = tilewright.Packed(packed.data[None][:0], packed.scales[None][:0], "u4", 64, 8)
    assert product(x[None][:0], stack.T).shape == (0, 5, 72)


def test_weights_are_reordered_once_and_nothing_is_lost() -> None:
    packed = quantized(SEED(2), 96, 384, ("u4", 128, "integer"))
    x = operand(SEED(3), 4, 384, "f16")
    first = tilewright.matmul(x, packed.T, out_dtype="f32", device="vm", config=SMALL)
    prepared = packed.prepared["f16"]
    assert packed.T.prepared["f16"] is prepared
    again = tilewright.matmul(x, prepared, out_dtype="f32", device="vm", config=SMALL)
    assert np.array_equal(first, again)
    per_unit = 64 * 128 // 2 + 64 * 4 + 64 * 2
    assert prepared.units.shape == (2, 4 * per_unit)
    nibbles = np.unpackbits(prepared.units.reshape(-1, per_unit)[:, :4096]).reshape(-1, 4)
    assert nibbles.sum() == np.unpackbits(packed.data).sum()


@pytest.mark.slow
@every_row("config", ["tma:64x16x128:4:8~", "tma:64x16x128:3:9~"])
def test_slices_wait_for_their_own_stages(config: str) -> None:
    """With stages that several slices use, copies that complete in another order than they were
    issued in end a wait too early: seeds of the machine choose such orders.
    """
    rng = SEED(10)
    packed, x = quantized(rng, 64, 2048, ("u4", 128, None)), operand(rng, 8, 2048, "bf16")
    expected = tilewright.linear(x, packed, device="vm", config=config)
    for seed in (1, 2, 3):
        on = VmDevice(seed=seed, checked=True)
        assert np.array_equal(tilewright.linear(x, packed, device=on, config=config), expected)


def test_static_is_checked() -> None:
    x = operand(SEED(1), 4, 64, "f16")
    for b, static, message in (
        (x.T, "b", "b must be Packed or Scaled where static is 'b', got ndarray"),
        (quantized(SEED(1), 64, 64, ("u4", 64, None)).T, "a", "static must be 'b' or None"),
    ):
        with pytest.raises(TilewrightError, match=message):
            tilewright.matmul(x, b, device="vm", static=static)
        with pytest.raises(TilewrightError, match=message):
            tilewright.linear(x, b.T, device="vm", static=static)
        with pytest.raises(TilewrightError, match=message):
            tilewright.plan(x, b, device="vm", static=static)
    with pytest.raises(TilewrightError, match="b must be Packed or Scaled where static is 'b'"):
        tilewright.plan(8, 64, 64, static="b")


def test_a_plan_of_static_weights_is_that_of_others() -> None:
    packed, x = quantized(SEED(2), 64, 256, ("u4", 128, None)), operand(SEED(2), 8, 256, "f16")
    plan, static = (
        tilewright.plan(x, packed.T, device="vm", static=static) for static in (None, "b")
    )
    assert static.problem == plan.problem and static.ptx == plan.ptx
    assert np.array_equal(static.run(x, packed.T), tilewright.linear(x, packed, device="vm"))


def test_what_has_no_kernel_is_an_error() -> None:
    rng = SEED(4)
    packed, x = quantized(rng, 64, 96, ("u4", 8, None)), operand(rng, 4, 96, "f16")
    for a, b, message in (
        (x, packed.T, "group must be a multiple of 16 or K"),
        (x.astype(np.float32), packed.T, "a must be f16, bf16, e4m3 or s8 for packed weights"),
        (x, packed, "b must be packed weights K×N"),
        (x[:, :64], packed.T, "a must have K = 96 columns"),
        (packed, packed.T, "packed weights must be b, or both b"),
        (tilewright.compress_24(x, "magnitude"), packed.T, "a must be dense for packed weights"),
    ):
        with pytest.raises(TilewrightError, match=message):
            tilewright.matmul(a, b, device="vm")
    with pytest.raises(TilewrightError, match="w and gate must both be packed or neither"):
        tilewright.linear(x, packed, gate=packed.dequantize(), activation="silu", device="vm")
    whole = quantized(rng, 64, 96, ("u4", None, None))
    for config, message in (
        ("tma:64x16x128:1:3", "require a swapped product"),
        ("tma:64x16x64:1:3~", "tile_k must be 128 or 256"),
        ("tma:64x16x128:3:7~", "stages must be a multiple of 3, at least 6, for sliced-K"),
        ("tma:64x16x128:4:4~", "stages must be a multiple of 4, at least 8, for sliced-K"),
        ("128x128x32:2x2:4", "require a configuration of tma"),
    ):
        with pytest.raises(TilewrightError, match=message):
            tilewright.matmul(x, whole.T, device="vm", config=config)
    assert prepare_weights(whole, "f16").shape == (96, 64)
