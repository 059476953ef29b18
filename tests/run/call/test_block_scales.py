"""Block scales: kernel ``tma`` multiplies them into the accumulator as it promotes it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from gemm_cases.tma_cases import FEW
from references.block_scaled_products import (
    BLOCKS,
    CASES,
    CONTIGUOUS,
    COPIED,
    PAIRS,
    ROWS_BLOCKS,
    ROWS_COLUMNS,
    BlockScaledCase,
    operands,
    pair_product,
    placed,
    product,
    reference,
    same,
)
from rows import every_row
from tilewright.dtypes import dtype
from tilewright.errors import ConfigError, DtypeError, ProblemError, TargetError
from tilewright.gemm.block_scaling import BlockScaling
from tilewright.quantization import Scaled, quantize
from tilewright.run import VmDevice
from tilewright.run.call.request import BlockScales

bf16 = dtype("bf16").numpy


@every_row("case", CASES, ids=str, parts=8)
def test_block_scales(case: BlockScaledCase) -> None:
    split = "*" in case.config or "+" in case.config
    a, b, scales = operands(
        case.mnk, case.scaling, ("e4m3", "e5m2"), hostile=not split, exact=split
    )
    got = product(a, b, scales, config=case.config, out_dtype="f32", device="vm")
    assert same(got, reference(a, b, scales))


@every_row("case", list(zip(COPIED, CONTIGUOUS, strict=True)), ids=str, parts=5)
def test_scales_that_tensor_copies_load(case: tuple[BlockScaledCase, tuple[str, str]]) -> None:
    (config, scaling, mnk, _), contiguous = case
    split = "*" in config
    a, b, scales = operands(mnk, scaling, ("e4m3", "e5m2"), hostile=not split, exact=split)
    with registered():
        given = placed(scales, contiguous, lambda x, *view: Resident.of(x).cut(*view))
        left, right = Resident.of(a), Resident.of(np.ascontiguousarray(b.T)).T
        found = product(left, right, given, config=config, out_dtype="f32").numpy()
    assert same(found, reference(a, b, scales))


@pytest.mark.slow
@every_row("pair", PAIRS[:2], ids=str)
def test_two_matrices_b(pair: tuple[BlockScaledCase, tuple[str, str]]) -> None:
    check_pair(pair)


@pytest.mark.slow
@every_row("pair", PAIRS[2:], ids=str)
def test_more_of_two_matrices_b(pair: tuple[BlockScaledCase, tuple[str, str]]) -> None:
    check_pair(pair)


def check_pair(pair: tuple[BlockScaledCase, tuple[str, str]]) -> None:
    with registered():
        found, expected = pair_product(
            *pair, Resident.of, lambda x, *view: Resident.of(x).cut(*view)
        )
    assert same(found.numpy(), expected)


def test_a_gated_layer_and_groups() -> None:
    """SwiGLU in one kernel: of a layer, of experts, and repeated."""
    rng = np.random.default_rng(6)
    x, w, gate = (
        rng.standard_normal(s).astype(np.float32) for s in ((40, 200), *[(2, 96, 200)] * 2)
    )
    a = quantize(x, "e4m3", (1, 128))
    up, gated = (quantize(v, "e4m3", (128, 128)) for v in (w, gate))
    single = partial(tilewright.linear, out_dtype="f32", device="vm")

    def layer(rows: slice, expert: int) -> Any:
        tokens = Scaled(a.data[rows], a.scales[rows], a.block)
        first, second = (Scaled(v.data[expert], v.scales[expert], v.block) for v in (gated, up))
        expected = np.maximum(single(tokens, first), 0) * single(tokens, second)
        given = {"gate": first, "activation": "relu"}
        assert np.array_equal(single(tokens, second, **given), expected)
        return expected

    expected = np.concatenate([layer(slice(0, 17), 0), layer(slice(17, 40), 1)])
    found = tilewright.grouped_matmul(
        a, (gated.T, up.T), offsets=np.array([17, 40], np.int32), out_dtype="f32", device="vm",
        epilogue=lambda g, u: tilewright.relu(g) * u,
    )  # fmt: skip
    assert np.array_equal(found, expected)


def test_scales_of_two_matrices_that_do_not_fit() -> None:
    x, w = np.ones((40, 300), np.float32), np.ones((200, 300), np.float32)
    a, b = quantize(x, "e4m3", (1, 128)), quantize(w, "e4m3", (128, 128)).T
    others = {
        "a must have one scale or one per row": quantize(w, "e4m3", (1, 128)).T,
        "of one type, got f32 and bf16": quantize(w, "e4m3", (128, 128), scale_dtype="bf16").T,
        "the same strides": Scaled(b.data, np.ascontiguousarray(b.scales), b.block),
    }
    with registered():
        left, first = (_resident(v) for v in (a, b))
        for text, second in others.items():
            with pytest.raises((ProblemError, DtypeError), match=text):
                tilewright.matmul(left, (first, _resident(second)), epilogue=lambda x, y: x + y)


def _resident(x: Scaled) -> Scaled:
    """The same matrix in a device's memory, with the same strides."""
    data, scales = (
        Resident.of(part.T).T
        if part.flags.f_contiguous and min(part.shape) > 1
        else Resident.of(part)
        for part in (x.data, x.scales)
    )
    return Scaled(data, scales, x.block)


@pytest.mark.slow
def test_batches_layouts_and_factors() -> None:
    """A stack; a column-major D, which swaps A and B; α, β and C; scales with any strides."""
    a, b, scales = operands((70, 50, 260), ROWS_BLOCKS, ("e4m3", "e4m3"), batch=(2,))
    expected = reference(a, b, scales)
    config = "tma:64x32x128:1:3"
    got = product(a, b, scales, config=config, out_dtype="f32", device="vm")
    assert same(got, expected)
    first = scales._replace(a=scales.a[0], b=scales.b[0])
    out = np.zeros((50, 70), np.float32).T
    product(a[0], b[0], first, out=out, config=config, device="vm")
    assert same(out, expected[0])
    c = np.full((70, 50), 0.5, np.float32)
    got = product(a[0], b[0], first, c=c, alpha=2.0, beta=4.0, out_dtype="f32", device="vm")
    assert np.array_equal(got, expected[0] * 2 + 2)
    assert not product(a[0], b[0], first, alpha=0.0, out_dtype="f32", device="vm").any()
    with registered():
        left, right = Resident.of(a[0]), Resident.of(np.ascontiguousarray(b[0].T)).T
        rows = Resident.of(np.repeat(np.ascontiguousarray(first.a.T), 2, axis=1))
        sa = rows.cut((70, 3), (2, 140))
        placed = BlockScales(ROWS_BLOCKS, sa, Resident.of(first.b))
        assert same(
            product(left, right, placed, config=config, out_dtype="f32").numpy(), expected[0]
        )


def test_no_k() -> None:
    a, b, scales = operands((5, 40, 0), BLOCKS, ("e4m3", "e4m3"))
    assert np.array_equal(product(a, b, scales, device="vm"), np.zeros((5, 40)))


ERRORS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"a": np.ones((70, 2), np.float32)},
        ProblemError,
        "scales of a must have shape 70×3, got 70×2",
    ),
    ({"b": np.ones((1, 3), np.float32)}, ProblemError, "scales of b must have shape 3×1, got 1×3"),
    (
        {"b": np.ones((3, 1), np.float16)},
        DtypeError,
        "scales of b must be one of f32, bf16, ue8m0, got f16",
    ),
]


@every_row("case", ERRORS)
def test_errors(case: tuple[dict[str, Any], type[Exception], str]) -> None:
    changed, error, text = case
    a, b, scales = operands((70, 50, 260), ROWS_BLOCKS, ("e4m3", "e4m3"))
    with pytest.raises(error, match=text):
        product(a, b, scales._replace(**changed), device="vm")


def test_kernels_and_types_without_block_scales() -> None:
    a, b, scales = operands((70, 50, 260), ROWS_BLOCKS, ("e4m3", "e4m3"))
    with pytest.raises(ConfigError, match="block scales need kernel tma"):
        product(a, b, scales, config="64x64x128:2x2:3", device="vm")
    with pytest.raises(DtypeError, match="A with block scales must be of e4m3 and e5m2, got bf16"):
        product(a.astype(bf16), b.astype(bf16), scales, device="vm")
    with pytest.raises(ProblemError, match="rows of a scale must be 1 or 128, got 64"):
        BlockScaling(64, 1)
    with pytest.raises(ProblemError, match="out must not share memory with the scales"):
        memory = np.ones((70, 50), np.float32)
        product(a, b, scales._replace(a=memory[:, :3]), out=memory, device="vm")


QUANTIZED = [  # M, N, K, blocks of A, blocks of B
    (40, 200, 300, (1, 128), (128, 128)), (40, 96, 300, (1, 128), (128, 128)),
    (90, 200, 100, (128, 128), (128, 128)), (1, 200, 300, (128, 128), (1, 128)),
]  # fmt: skip


@every_row("case", QUANTIZED, ids=str)
def test_matmul_of_quantized_matrices(case: tuple[int, int, int, Any, Any]) -> None:
    m, n, k, left, right = case
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k)))
    a, b = quantize(x, "e4m3", left), quantize(w, "e4m3", right).T
    got = tilewright.matmul(a, b, config="tma:64x64x128:1:4", out_dtype="f32", device="vm")
    expected = BlockScales(BlockScaling(left[0], right[0]), a.scales, b.scales)
    assert same(got, reference(a.data, b.data, expected))
    exact, magnitude = (
        f(a.dequantize().astype(float)) @ f(b.dequantize().astype(float))
        for f in (np.array, np.abs)
    )
    assert (np.abs(got - exact) <= 2.0**-12 * magnitude).all()


POWERS = {"bf16": (2.0**-130, 2.0**120, np.nan, -1.5), "ue8m0": (2.0**-127, 2.0**127, np.nan, 1)}


@pytest.mark.slow
@every_row("type_", ["bf16", "ue8m0"])
def test_narrow_scales_are_converted_exactly(type_: str) -> None:
    """Subnormal, large and NaN scales, of single rows and columns and of blocks."""
    a, b, scales = operands((70, 50, 260), BlockScaling(1, 1), ("e4m3", "e4m3"))
    numpy = dtype(type_).numpy
    narrow = [np.exp2(np.round(np.log2(x))).astype(numpy) for x in (scales.a, scales.b)]
    narrow[0].reshape(-1)[[5, 50, 100, 150]] = POWERS[type_]
    wide = scales._replace(a=narrow[0].astype(np.float32), b=narrow[1].astype(np.float32))
    given = scales._replace(a=narrow[0], b=narrow[1])
    options = {"config": "tma:64x64x128:1:4", "out_dtype": "f32", "device": "vm"}
    assert same(product(a, b, given, **options), reference(a, b, wide))


def test_plans_and_operators() -> None:
    """A plan of Scaled matrices runs what ``matmul`` runs, and so does ``@``."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 300), (96, 300)))
    for left, right in (((1, 128), (128, 128)), ("row", "row")):
        a, b = quantize(x, "e4m3", left), quantize(w, "e4m3", right).T
        expected = tilewright.matmul(a, b, device="vm")
        plan = tilewright.plan(a, b, device="vm")
        assert np.array_equal(plan.run(a, b), expected)
        assert np.array_equal(a @ b, expected)
    c = np.ones((40, 96), bf16)
    plan = tilewright.plan(a, b, c=c, device="vm")
    expected = tilewright.matmul(a, b, c=c, beta=2.0, device="vm")
    assert np.array_equal(plan.run(a, b, c=c, beta=2.0), expected)
    plan = tilewright.plan(a, b, epilogue=lambda acc, c: acc + c, c=c, device="vm")
    assert plan.run(a, b, c=c).shape == (40, 96)
    assert np.array_equal(a.data @ b, tilewright.matmul(a.data, b, device="vm"))
    with pytest.raises(DtypeError, match="b must be f32 if a is f32, got e4m3"):
        x @ b


def test_the_shapes_of_the_matrices_are_checked_first() -> None:
    a, b = (quantize(np.ones((4, k), np.float32), "e4m3", (1, 128)) for k in (300, 200))
    with pytest.raises(ProblemError, match="a must have as many columns as b has rows"):
        tilewright.matmul(a, b.T, device="vm")


def test_block_scales_need_sm_90a() -> None:
    a = quantize(np.ones((4, 300), np.float32), "e4m3", (1, 128))
    for config in (None, "64x64x128:2x2:3"):
        with pytest.raises(TargetError, match="block scales need sm_90a; A100 is sm_80"):
            tilewright.matmul(a, a.T, config=config, device="vm:A100")


def test_calls_with_block_scales() -> None:
    x = np.ones((4, 300), np.float32)
    a, b = quantize(x, "e4m3", (1, 128)), quantize(x, "e4m3", (128, 128)).T
    assert tilewright.matmul(a, b, device="vm").dtype == bf16
    with pytest.raises(ProblemError, match="both matrices must have blocks of 128 along K, got"):
        tilewright.matmul(a, b.data, device="vm")


def test_epilogues_see_the_scaled_product() -> None:
    """Matrix operands loaded by another warp than the scales, outputs, linear, a plan."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 300), (96, 300)))
    a, b = quantize(x, "e4m3", (1, 128)), quantize(w, "e4m3", (128, 128))
    c, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 96), (96,)))
    options: dict[str, Any] = {"out_dtype": "f32", "device": "vm"}
    expected = tilewright.matmul(a, b.T, **options)

    def biased(acc: Any, c: Any) -> Any:
        return {"d": acc + c, "amax": tilewright.amax(acc)}

    options["config"] = "tma:64x96x128:1:4"
    found = tilewright.matmul(a, b.T, epilogue=biased, c=c, **options)
    assert np.array_equal(found["d"], expected + c)
    assert found["amax"] == np.abs(expected).max()
    with pytest.raises(ConfigError, match="need 5 producer warps"):
        options["config"] = "tma:192x48x128:3:3"
        tilewright.matmul(a, b.T, epilogue=biased, c=c, **options)
    options["config"] = None
    plan = tilewright.plan(a, b.T, epilogue=biased, c=c, **options)
    assert np.array_equal(plan.run(a, b.T, c=c)["d"], expected + c)
    found = tilewright.linear(a, b, bias, activation="relu", **options)
    assert np.array_equal(found, np.maximum(expected + bias, 0))


@pytest.mark.slow
def test_a_work_tile_without_k_blocks_adds_nothing() -> None:
    """Split-K in more parts than k-blocks: a CTA has multiplied by NaN and infinity before."""
    a, b, scales = operands((640, 640, 256), ROWS_BLOCKS, ("e4m3", "e4m3"), exact=True)
    scales.a[::3] = np.nan
    scales.a[1::3] = np.inf
    config = "tma:64x64x128:1:4*4"
    got = product(a, b, scales, config=config, out_dtype="f32", device=VmDevice(FEW))
    assert same(got, reference(a, b, scales))


@every_row(
    ("config", "scaling", "mnk"),
    [
        ("tma:128x64x128:2:3", ROWS_BLOCKS, (300, 150, 700)),
        ("tma:256x96x128:2:3", ROWS_COLUMNS, (300, 152, 700)),
        ("tma:128x152x128:2:3", ROWS_COLUMNS, (300, 160, 700)),
        ("tma:128x168x128:2:3~", ROWS_COLUMNS, (170, 200, 600)),
        ("tma:128x128x128:2:3~", ROWS_COLUMNS, (150, 300, 500)),
    ],
    parts=3,
)
def test_the_checked_machine_finds_no_race(
    config: str, scaling: BlockScaling, mnk: tuple[int, int, int]
) -> None:
    """Several work tiles of two SMs: the warp that copies scales runs ahead of those that read, and
    those that read scales of columns read them before the promotion that needs them.
    """
    few = replace(FEW, sms=2)
    a, b, scales = operands(mnk, scaling, ("e4m3", "e5m2"))
    on = VmDevice(few, checked=True, seed=1)
    got = product(a, b, scales, config=config, out_dtype="f32", device=on)
    assert same(got, reference(a, b, scales))
