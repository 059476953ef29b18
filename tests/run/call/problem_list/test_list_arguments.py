"""Arguments of lists of problems that are easily taken for others, and what checked mode says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered
from rows import slow_but
from tilewright.errors import DtypeError, ProblemError
from tilewright.run.call.problem_list import list_call
from tilewright.run.devices.vm_device import VmDevice

pytestmark = pytest.mark.vm
SIZES = ((5, 48, 64), (70, 24, 40))  # M, N, K


def _lists(sizes: Any = SIZES) -> tuple[list[Any], list[Any], list[Any]]:
    """A, B and their products in f64."""
    rng = np.random.default_rng(0)
    a = [rng.standard_normal((m, k)).astype(np.float16) for m, _, k in sizes]
    b = [rng.standard_normal((k, n)).astype(np.float16) for _, n, k in sizes]
    return a, b, [x.astype(float) @ y.astype(float) for x, y in zip(a, b, strict=True)]


def _scaled(acc: Any, s: Any) -> Any:
    return acc * s


def _added(acc: Any, c: Any) -> Any:
    return acc + c


@pytest.mark.parametrize(
    "config",
    slow_but(
        [None, "tma:128x64x64:2p:3"],
        [None, "tma:64x32x64:1:3~", "tma:128x64x64:2p:3", "tma:64x64x64:1:2/1x2"],
    ),
)
def test_no_race_in_checked_mode(config: str | None) -> None:
    sizes = (*SIZES, (33, 7, 13), (1, 1, 1), (64, 65, 129), (0, 8, 8), (130, 72, 24))
    a, b, exact = _lists(sizes)
    bias = [np.full(n, i, np.float32) for i, (_, n, _) in enumerate(sizes)]
    for seed in (0, 1):
        found = tilewright.grouped_matmul(
            a, b, device=VmDevice(seed=seed, checked=True), config=config, epilogue=_added, c=bias
        )
        for i, (d, x) in enumerate(zip(found, exact, strict=True)):
            np.testing.assert_allclose(d, x + i, atol=0.1)


def test_negative_zero_is_another_number_than_zero() -> None:
    zeros = np.zeros((1, 8), np.float16), np.zeros((8, 8), np.float16)
    with registered(FAST_KIND):
        a, b = ([Resident.of(x)] for x in zeros)
        for listed in (False, True):
            for number in (0.0, -0.0, 0.0, -0.0):
                s = [number] if listed else number
                (d,) = tilewright.grouped_matmul(a, b, epilogue=_scaled, s=s)
                assert (np.signbit(d.numpy()) == np.signbit(number)).all()


def test_operands_that_do_not_vary() -> None:
    a, b, exact = _lists()
    two = np.float32(2)
    for x in (
        [np.full((), two)] * 2,
        [np.full((1, 1), two)] * 2,
        [np.full((5, 48), two), np.full((1, 1), two)],
        [np.full((5, 1), two), np.full(24, two)],
        [np.broadcast_to(two, (5, 48)), np.broadcast_to(two, (70, 1))],
        [two, np.float64(2)],
    ):
        found = tilewright.grouped_matmul(a, b, epilogue=_scaled, s=x, device="vm")
        for d, y in zip(found, exact, strict=True):
            np.testing.assert_allclose(d, 2 * y, atol=0.1)


def test_numpy_numbers_with_arrays_on_a_device() -> None:
    a, b, exact = _lists()
    with registered(FAST_KIND):
        given = [[Resident.of(x) for x in each] for each in (a, b)]
        for s in (np.float32(3), [np.float32(3), np.float64(3)]):
            found = tilewright.grouped_matmul(*given, epilogue=_scaled, s=s)
            for d, y in zip(found, exact, strict=True):
                np.testing.assert_allclose(d.numpy(), 3 * y, atol=0.1)


def test_an_operand_may_be_d_of_its_own_problem() -> None:
    (a, _), (b, _), (exact, _) = _lists()
    whole = np.ones((7, 48), np.float16)
    c = [whole[:5].copy(), whole[:5].copy()]
    tilewright.grouped_matmul([a, a], [b, b], epilogue=_added, c=c, out=c, device="vm")
    for d in c:
        np.testing.assert_allclose(d, exact + 1, atol=0.1)
    for operand, out, message in (
        (c, c[::-1], r"out\[[01]\] must not share memory with c\[[01]\]"),
        ([whole[:5]] * 2, [whole[1:6], c[0]], r"out\[0\] must not share memory with c\[0\]"),
        ([whole[0]] * 2, [c[0], whole[:5]], r"out\[1\] must not share memory with c\[[01]\]"),
        (whole[:5], [c[0], whole[:5]], r"out\[1\] must not share memory with c\[0\]"),
    ):
        with pytest.raises(ProblemError, match=message):
            tilewright.grouped_matmul(
                [a, a], [b, b], epilogue=_added, c=operand, out=out, device="vm"
            )


def test_a_table_serves_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_call, "_plans", {})
    a, b, _ = _lists()
    stream = [0]
    with registered(replace(FAST_KIND, stream=lambda x: stream[0], fast_ops=None)):
        given = [[Resident.of(x) for x in each] for each in (a, b)]
        out = tilewright.grouped_matmul(*given)
        for stream[0] in (0, 1, 0, 1):
            tilewright.grouped_matmul(*given, out=out)
        (launch,) = next(iter(list_call._plans.values())).launches
        assert [*launch._uploaded.values()][-1].keys() == {0, 1}


def test_errors_name_the_element() -> None:
    a, b, _ = _lists()
    f32 = [np.zeros((5, 48), np.float32), np.zeros((70, 24), np.float32)]
    for error, message, left, right, more in (
        (ProblemError, "of 1 or more matrices, got 0 and 0", [], [], {}),
        (ProblemError, r"a\[1\] must be an array, got NoneType", [a[0], None], b, {}),
        (ProblemError, r"b\[0\] must be an array, got list", a, [[], b[1]], {}),
        (ProblemError, r"out\[0\] must be an array, got NoneType", a, b, {"out": [None, None]}),
        (ProblemError, r"s\[1\] must be an array, got float", a, b,
         {"epilogue": _scaled, "s": [f32[0], 1.0]}),
        (DtypeError, r"out\[0\] must be f16, as D is, got f32", a, b,
         {"out": f32, "out_dtype": "f16"}),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            tilewright.grouped_matmul(left, right, device="vm", **more)
