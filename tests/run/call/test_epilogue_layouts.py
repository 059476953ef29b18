"""Epilogues and layouts: column-major results beside others, broadcast and one-element operands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from rows import slow_but
from tilewright.gemm.epilogue import functions
from tilewright.gemm.epilogue.tracing import apply, cast, epilogue
from tilewright.run import VmDevice, device

pytestmark = pytest.mark.vm
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def matrices(m: int, n: int, k: int, batch: tuple[int, ...] = ()) -> tuple[Any, Any, Any]:
    """A and B of f16, and their product in f32."""
    a, b = (RNG.standard_normal((*batch, *s)).astype(np.float16) for s in ((m, k), (k, n)))
    return a, b, tilewright.matmul(a, b, out_dtype="f32", device="vm")


@epilogue
def several(acc, s=1.0):
    return {
        "y": acc * s, "x": cast(acc, "f32"), "rows": functions.max(acc, -1),
        "stack": functions.max(acc, -3),
    }  # fmt: skip


SHAPES = [
    (shape, batch) for shape in ((40, 24, 64), (96, 1, 64), (1, 50, 64)) for batch in ((), (2,))
]


@pytest.mark.parametrize(
    ("shape", "batch"), slow_but([SHAPES[i] for i in (1, 2, 5)], SHAPES), ids=str
)
def test_other_results_are_row_major_beside_any_result(
    shape: tuple[int, int, int], batch: tuple[int, ...]
) -> None:
    m, n, _ = shape
    a, b, plain = matrices(*shape, batch)
    out = np.zeros((*batch, n, m), np.float16).swapaxes(-1, -2)
    got = tilewright.matmul(a, b, epilogue=several, out=out, device="vm")
    assert got["y"] is out
    assert np.array_equal(out, plain.astype(np.float16))
    assert np.array_equal(got["x"], plain)
    assert np.array_equal(got["rows"], plain.max(-1))
    assert np.array_equal(got["stack"], plain.max(0) if batch else plain)


def test_two_matrices_b_with_reductions_and_a_column_major_result() -> None:
    a, b, plain = matrices(20, 48, 64)
    out = np.zeros((24, 20), np.float16).T
    got = tilewright.matmul(
        a, (b[:, :24], b[:, 24:]), out=out, device="vm",
        epilogue=lambda x, y: {"d": x + y, "n": functions.max(x + y, -1)},
    )  # fmt: skip
    total = plain[:, :24] + plain[:, 24:]
    assert np.array_equal(out, total.astype(np.float16))
    assert np.array_equal(got["n"], total.max(-1))


BROADCAST = {
    "row": ((1, 1), (40, 24), (0, 1)),
    "column": ((40, 1), (40, 24), (1, 0)),
    "all": ((1, 1), (40, 24), (0, 0)),
    "one element": ((1, 1), (1, 1), (1, 1)),
}


STRIDES = list(product(BROADCAST, ("f32", "f16", "s8"), ("", "~")))


@pytest.mark.parametrize(("name", "type_", "swap"), slow_but(STRIDES[::5], STRIDES))
def test_operands_with_strides_of_0_in_device_memory(name: str, type_: str, swap: str) -> None:
    memory = {"row": 24, "column": 40}.get(name, 1)
    _, shape, strides = BROADCAST[name]
    a, b, plain = matrices(40, 24, 64)
    on = device("vm")
    numbers = RNG.integers(-9, 9, memory).astype(tilewright.dtypes.dtype(type_).numpy)
    x = Resident.of(numbers, on).cut(shape, strides)
    got = tilewright.matmul(
        Resident.of(a, on), Resident.of(b, on), epilogue=lambda acc, x: cast(acc + x, "f32"), x=x,
        config=f"tma:64x64x64:1:3{swap}",
    ).numpy()  # fmt: skip
    wide = np.broadcast_to(numbers.reshape(-1, 1) if name == "column" else numbers, (40, 24))
    assert np.array_equal(got, plain + wide.astype(np.float32))


def test_a_cast_determines_the_type_of_a_result() -> None:
    a, b, plain = matrices(16, 24, 64)
    for type_ in ("f32", "f16", "bf16"):
        got = tilewright.matmul(a, b, epilogue=lambda acc, t=type_: cast(acc, t), device="vm")
        assert got.dtype == tilewright.dtypes.dtype(type_).numpy
    bits = tilewright.matmul(a, b, epilogue=lambda acc: apply("bits", acc), device="vm")
    assert bits.dtype == np.int32
    assert np.array_equal(bits.view(np.float32), plain)


IN_PLACE = ["tma:64x96x64:1:3~", "tma:64x64x64:1:3*2"]  # the rest is slow
SLOW = ["tma:64x64x64:2p:3", "tma:128x128x64:2:3/2x1", "tma:64x64x64:1:3d", "64x64x32:2x2:3"]


@pytest.mark.parametrize(
    "config", [*IN_PLACE, *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW)]
)
def test_an_operand_that_is_out_is_read_before_it_is_written(config: str) -> None:
    """Each thread reads its elements of the operand first; the checked machine sees no race."""
    on = VmDevice(checked=True)
    a, b, plain = matrices(67, 49, 256)
    r = RNG.standard_normal((67, 49)).astype(np.float32)
    out = Resident.of(r, on)
    got = tilewright.matmul(
        Resident.of(a, on), Resident.of(b, on), r=out, out=out, device=on, config=config,
        epilogue=lambda acc, r: {"y": acc + r, "z": cast(r * 2.0, "f32")},
    )  # fmt: skip
    assert got["y"] is out
    assert np.allclose(out.numpy(), plain + r, atol=1e-3)
    assert np.array_equal(got["z"].numpy(), 2 * r)


CHECKED = {
    "cooperative": ("tma:128x64x64:2:3", (130, 72, 130), True),
    "pingpong": ("tma:64x64x64:2p:3", (130, 72, 130), True),
    "swap": ("tma:64x96x64:1:3~", (67, 49, 72), True),
    "cluster": ("tma:128x128x64:2:3/2x1", (200, 49, 72), True),
    "dynamic": ("tma:64x64x64:1:3d", (130, 130, 64), True),
    "split-K": ("tma:64x64x64:1:3*2", (67, 49, 256), False),
}


@pytest.mark.parametrize("name", slow_but(("pingpong", "split-K"), CHECKED))
def test_checked_machine_reports_nothing(name: str) -> None:
    config, (m, n, k), reduces = CHECKED[name]
    a, b, _ = matrices(m, n, k)
    bias, residual = RNG.standard_normal(n), RNG.standard_normal((m, n))

    def function(acc: Any, bias: Any, residual: Any) -> dict[str, Any]:
        x = functions.relu(acc + bias) + residual
        results = {"y": cast(x, "e4m3"), "x": x, "aux": cast(acc, "f32")}
        return results | (
            {"amax": functions.amax(x), "sum": functions.sum(x, -2)} if reduces else {}
        )

    tilewright.matmul(
        a, b, epilogue=function, bias=bias.astype("f"), residual=residual.astype(np.float16),
        device=VmDevice(checked=True), config=config,
    )  # fmt: skip
