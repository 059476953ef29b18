"""``matmul`` with epilogue functions on the virtual machine: the bits of NumPy's evaluation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from epilogue_calls import (
    CONFIGS,
    MAXIMA,
    OTHER_KERNELS,
    PAIRS,
    QUANTIZED,
    TYPES,
    affine,
    coordinates,
    gated,
    maxima,
    operands_of_every_shape,
    random,
    reductions,
    two_outputs,
)
from rows import check_rows, slow_but
from tilewright.errors import ConfigError, EpilogueError, ProblemError
from tilewright.gemm.epilogue.graph import EpilogueInput
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import cast
from tilewright.run.devices.vm_device import VmDevice
from tilewright.target import DEFAULT_DEVICE

pytestmark = pytest.mark.vm


def check_call(
    function: Any, shape: tuple[int, ...], types: tuple[str, ...], config: str | None,
    operands: dict[str, Any], out_dtype: str | None = None, device: Any = "vm",
) -> None:  # fmt: skip
    """The call gives what NumPy gives for the plain product in the accumulator's type."""
    *batch, m, n, k = shape
    a, b = random((*batch, m, k), types[0]), random((*batch, k, n), types[1])
    accumulator = {"s8": "s32", "u8": "s32", "f64": "f64"}.get(types[0], "f32")
    plain = tilewright.matmul(a, b, out_dtype=accumulator, device=device, config=config)
    got = tilewright.matmul(
        a, b, epilogue=function, device=device, config=config, out_dtype=out_dtype, **operands
    )
    inputs = []
    for name, x in operands.items():
        sizes = np.ones(3, int) if np.ndim(x) == 0 else (1,) * (3 - np.ndim(x)) + x.shape
        varies = "".join(d for d, size in zip("bmn", sizes, strict=True) if size > 1)
        kind = next((t for t, np_type in TYPES.items() if np.asarray(x).dtype == np_type), "f32")
        inputs.append(EpilogueInput(name, kind if varies else "f32", varies))
    arrays = {n: np.asarray(x, None if np.ndim(x) else np.float32) for n, x in operands.items()}
    default = out_dtype or ("f32" if accumulator == "s32" else types[0])
    graph = function.trace(accumulator, tuple(inputs), (), default)
    expected = evaluate(graph, plain, arrays)
    results = got if isinstance(got, dict) else {"d": got}
    assert list(results) == list(expected)
    for name, x in results.items():
        assert x.dtype == expected[name].dtype
        assert x.shape == expected[name].shape
        if "sum" in name or "total" in name:  # kernels add up in another order
            assert np.allclose(x, expected[name], rtol=1e-5, atol=1e-3)
            continue
        bits, wanted_bits = (np.atleast_1d(v).view(np.uint8) for v in (x, expected[name]))
        same = bits == wanted_bits
        assert same.all(), f"{name}: {np.argwhere(~same)[:4].tolist()}"


OTHER = ("multistage, odd", "multistage, split-K")
QUICK = ("odd sizes swapped", "pingpong", "batch")  # the rest is slow


@pytest.mark.parametrize("name", slow_but(QUICK, CONFIGS))
def test_operands_of_every_shape(name: str) -> None:
    config, shape = CONFIGS[name]
    check_call(affine, shape, ("f16", "f16"), config, operands_of_every_shape(shape))


@pytest.mark.parametrize(
    "name",
    slow_but(("odd sizes swapped", "split-K"), ["cooperative", "odd sizes swapped", "split-K"]),
)
def test_several_outputs_of_several_types(name: str) -> None:
    config, shape = CONFIGS[name]
    check_call(two_outputs, shape, ("bf16", "bf16"), config, {"bias": random(shape[-2:-1], "f32")})


REDUCED = [
    "odd sizes swapped", "tail split", "split-K, odd", "multistage, split-K", "simt", "cooperative",
    "pingpong", "batch", "split-K", "multistage, odd",
]  # fmt: skip


@pytest.mark.parametrize("name", slow_but(REDUCED[:2], REDUCED))
def test_reductions_are_combined_over_all_tiles(name: str) -> None:
    """Also by kernels of cp.async and by split-K's reduction, some or all tiles."""
    rows = {key: (config, ("f16", "f16"), shape) for key, (config, shape) in CONFIGS.items()}
    rows |= {"tail split": ("tma:64x64x64:1:3+2", ("f16", "f16"), (67, 100, 128))} | OTHER_KERNELS
    config, types, shape = rows[name]
    few = VmDevice(replace(DEFAULT_DEVICE, name="few", sms=3))
    operands = {"bias": random(shape[-2:-1], "f32")}
    check_call(reductions, shape, types, config, operands, "e4m3", few)


@pytest.mark.parametrize(
    "name", [n if "split" in n else pytest.param(n, marks=pytest.mark.slow) for n in MAXIMA]
)
def test_maxima_over_rows_and_columns(name: str) -> None:
    config, shape = MAXIMA[name]
    few = VmDevice(replace(DEFAULT_DEVICE, name="few", sms=3))
    operands = {"bias": random(shape[-2:-1], "f32")}
    check_call(maxima, shape, ("f16", "f16"), config, operands, device=few)


def test_maxima_do_not_accumulate_over_launches() -> None:
    """Each launch gives the maxima of its own operands."""
    config, _ = MAXIMA["tail split"]
    a, b = np.ones((80, 64), np.float16), np.ones((64, 40), np.float16)
    got = [
        tilewright.matmul(x * a, b, epilogue=maxima, bias=1.0, device="vm", config=config)
        for x in (2, 1, -3)
    ]
    assert [float(x["amax"]) for x in got] == [129, 65, 191]
    assert [float(x["below"]) for x in got] == [-4882.0, -4882.0, -5073.0]


def test_the_maximum_of_a_nan_is_a_nan() -> None:
    a = np.ones((80, 64), np.float16)
    a[70, 3] = np.nan
    b = np.ones((64, 40), np.float16)
    got = tilewright.matmul(a, b, epilogue=reductions, bias=1.0, device="vm")
    assert np.isnan(got["amax"]) and np.isnan(got["column_max"]).all()
    assert np.isnan(got["row_max"]).nonzero()[0].tolist() == [70]
    assert got["row_sum"][3] == 65 * 40


@pytest.mark.parametrize("name", QUANTIZED)
def test_integers_are_scaled_in_f32(name: str) -> None:
    types, config, function, _ = QUANTIZED[name]
    shape = (67, 49, 130) if "odd" in name else (64, 64, 128)
    operands = {"scale": random((shape[1],), "f32"), "row": random((shape[0], 1), "bf16")}
    check_call(function, shape, types, config, operands)


def test_element_coordinates() -> None:
    for config in ("tma:64x64x64:1:3", "tma:64x64x64:1:3~"):
        bias = random((49,), "e4m3")
        check_call(coordinates, (67, 49, 64), ("f16", "f16"), config, {"bias": bias}, "f32")


@pytest.mark.parametrize("columns", [5, 13])
def test_stores_end_with_the_row(columns: int) -> None:
    """The one row of a matrix may be at any address, and rows may be padded to aligned ones."""
    b = random((16, columns), "f32")
    for rows, pitch in ((1, columns), (3, 16)):
        a = random((rows, 16), "f32")
        padded = np.full((rows, pitch), 7, np.float32)
        options: dict[str, Any] = {"epilogue": lambda acc: acc * 2, "device": "vm"}
        tilewright.matmul(a, b, out=padded[:, :columns], **options)
        np.testing.assert_allclose(padded[:, :columns], 2 * (a @ b), rtol=1e-5, atol=1e-5)
        assert (padded[:, columns:] == 7).all()


def test_a_column_major_result_and_strided_operands() -> None:
    a, b = random((70, 64), "f16"), random((64, 50), "f16")
    residual = random((50, 140), "f16").T[::2]
    out = np.zeros((50, 70), np.float16).T
    got = tilewright.matmul(a, b, epilogue=lambda acc, r: acc + r, r=residual, out=out, device="vm")
    plain = tilewright.matmul(a, b, out_dtype="f32", device="vm")
    assert got is out
    assert np.array_equal(out, (plain + residual.astype(np.float32)).astype(np.float16))


def check_error(operands: dict[str, Any], function: Any, text: str) -> None:
    a = np.ones((16, 16), np.float16)
    with pytest.raises(EpilogueError, match=text):
        tilewright.matmul(a, a, device="vm", epilogue=function, **operands)


ERRORS = {
    "unknown operand": ({"x": 1.0}, lambda acc: acc, "has no operand x"),
    "missing operand": ({}, lambda acc, bias: acc, "needs the operand bias"),
    "wrong shape": ({"x": np.ones(5)}, lambda acc, x: acc, "must be one of f32"),
    "does not broadcast": ({"x": np.ones(5, "f")}, lambda acc, x: acc, "must broadcast to D"),
    "beta without c": ({"beta": 2.0}, lambda acc: acc, "beta is given"),
    "branch": ({}, lambda acc: acc if acc > 0 else -acc, "`if` cannot use it"),
    "no result": ({}, lambda acc: None, "must return values of the epilogue"),
    "condition": ({}, lambda acc: acc > 0, "is a condition"),
    "not a function": ({}, 3, "must be a function"),
    "type": ({"out_dtype": "f32"}, lambda acc: cast(acc, "e4m3"), "returns D as e4m3"),
}  # fmt: skip


def test_errors_name_the_operand_or_node() -> None:
    rows = ((name, dict(zip(("operands", "function", "text"), row, strict=True)))
            for name, row in ERRORS.items())  # fmt: skip
    check_rows(rows, check_error)


def test_operands_without_an_epilogue() -> None:
    a = np.ones((16, 16), np.float16)
    with pytest.raises(TypeError, match="unexpected arguments bias"):
        tilewright.matmul(a, a, bias=a)


@pytest.mark.parametrize(
    "name", slow_but(("narrow, K-major", "pingpong, cluster", "chosen"), PAIRS)
)
def test_two_matrices_b_meet_in_the_epilogue(name: str) -> None:
    config, major = PAIRS[name]
    a, w = random((130, 72), "f16"), random((72, 208), "f16")
    pair = w[:, :104], w[:, 104:]
    if major == "k":
        pair = tuple(map(np.asfortranarray, pair))
    got = tilewright.matmul(a, pair, epilogue=gated, s=2.0, device="vm", config=config)
    gate, up = (tilewright.matmul(a, b, out_dtype="f32", device="vm") for b in pair)
    expected = np.maximum(gate, 0) * up * np.float32(2)
    assert np.array_equal(got, expected.astype(np.float16))


def test_errors_of_two_matrices_b() -> None:
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    with pytest.raises(ProblemError, match="must have one shape and type"):
        tilewright.matmul(a, (a, b), epilogue=gated, s=1.0, device="vm")
    rows = ("tma:128x64x64:2:3~", "multiple of 128 rows of a swapped pair, got 64")
    for config, text in (rows, ("tma:128x128x64:1:3*2", "two matrices B exclude split-K")):
        with pytest.raises(ConfigError, match=text):
            tilewright.matmul(a, (a, a), epilogue=gated, s=1.0, device="vm", config=config)


@pytest.mark.parametrize("name", slow_but(OTHER, OTHER_KERNELS))
def test_epilogues_in_kernels_of_cp_async(name: str) -> None:
    config, types, shape = OTHER_KERNELS[name]
    operands = operands_of_every_shape(shape)
    check_call(affine, shape, types, config, operands)
    check_call(two_outputs, shape, types, config, {"bias": operands["bias"]})


def test_an_epilogue_of_f64() -> None:
    a, b, bias = random((40, 24), "f64"), random((24, 33), "f64"), random((33,), "f64")
    got = tilewright.matmul(a, b, epilogue=lambda acc, x: acc * 2.0 + x, x=bias, device="vm")
    assert np.array_equal(got, tilewright.matmul(a, b, device="vm") * 2 + bias)


def test_a_plan_shows_and_runs_the_epilogue() -> None:
    a, bias = random((64, 64), "f16"), random((64,), "f32")
    plan = tilewright.plan(a, a, epilogue=reductions, bias=bias, device="vm")
    shown = plan.explain()
    assert "epilogue   %2 = add.f32(acc, bias[n])" in shown
    assert "amax = max over b, m, n of" in shown and "operands: bias f32 [n]" in shown
    got = plan.run(a, a, bias=bias)
    expected = tilewright.matmul(a, a, epilogue=reductions, bias=bias, device="vm")
    assert all(np.array_equal(got[name], expected[name]) for name in expected)
    with pytest.raises(ProblemError, match="takes two arrays"):
        tilewright.plan(64, 64, 64, epilogue=reductions)


def test_a_plan_refuses_what_it_was_not_made_for() -> None:
    a, bias = random((64, 64), "f16"), random((64,), "f32")
    plan = tilewright.plan(a, a, epilogue=two_outputs, bias=bias, out_dtype="e4m3", device="vm")
    assert plan.run(a, a, bias=bias)["x"].dtype == TYPES["e4m3"]
    with pytest.raises(ProblemError, match="must pose the plan's problem"):
        plan.run(a[:32], a, bias=bias)
    with pytest.raises(ProblemError, match="must pose the plan's problem"):
        plan.run(a, a, bias=bias.astype(np.float16))
    with pytest.raises(ProblemError, match="upload needs a plan without an epilogue"):
        plan.upload(a, a, out=np.zeros((64, 64), np.float16))
    with pytest.raises(ProblemError, match="layout must not be given with arrays"):
        tilewright.plan(a, a, epilogue=two_outputs, bias=bias, layout="nn")
    with pytest.raises(EpilogueError, match="c is given"):
        tilewright.plan(a, a, epilogue=two_outputs, bias=bias, c=a)


def test_a_pair_needs_two_accumulators() -> None:
    a = np.ones((16, 16), np.float16)
    with pytest.raises(EpilogueError, match="must take two accumulators"):
        tilewright.matmul(a, (a, a), epilogue=lambda acc: acc, device="vm")


@pytest.mark.parametrize("type_", ["s8", "u8", "s32"])
def test_one_integer_stays_an_integer(type_: str) -> None:
    """An operand has the same meaning with one element as with one for each column."""
    a, b = random((20, 64), "f16"), random((64, 40), "f16")

    def added(acc: Any, x: Any) -> Any:
        return acc + tilewright.cast(x + 100, "u8")

    one = np.full((1, 1), 90, TYPES[type_])
    row = np.full((40,), 90, TYPES[type_])
    found = [tilewright.matmul(a, b, epilogue=added, x=x, device="vm") for x in (one, row)]
    assert np.array_equal(*found)


def test_a_float_is_rounded_to_s32() -> None:
    a, x = np.ones((16, 32), np.int8), np.linspace(-40, 40, 24, dtype=np.float32)
    found = tilewright.matmul(
        a, a[:1].repeat(24, 0).T, epilogue=lambda acc, x: acc + x, x=x, out_dtype="s32", device="vm"
    )
    assert np.array_equal(found, np.broadcast_to(np.rint(32 + x), (16, 24)))
