"""Lists of ``Scaled`` matrices in one launch; lists of what needs a call for each problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from rows import every_row, slow_but
from tilewright.errors import EpilogueError, ProblemError
from tilewright.quantization import Scaled, quantize, quantize_weight
from tilewright.run.call.problem_list import list_call

pytestmark = pytest.mark.vm
SIZES = ((5, 48, 128), (70, 24, 64), (0, 8, 16), (3, 0, 32))  # M, N, K
RNG = np.random.default_rng(0)
A = [RNG.standard_normal((m, k)).astype(np.float32) for m, _, k in SIZES]
W = [RNG.standard_normal((n, k)).astype(np.float32) for _, n, k in SIZES]


def _dense(matrix: Any) -> Any:
    if hasattr(matrix, "decompress"):
        return matrix.decompress().astype(float)
    return np.asarray(matrix, np.float32).astype(float)


def _check(found: list[Any], a: list[Any], b: list[Any], factor: float = 1.0) -> None:
    for d, x, y in zip(found, a, b, strict=True):
        exact = factor * (_dense(x) @ _dense(y))
        assert d.shape == exact.shape
        np.testing.assert_allclose(d.astype(float), exact, atol=0.01 * np.abs(exact).max(initial=1))


@every_row("type_ blocks scale_type", [
    ("e4m3", ("row",) * 4, "f32"), ("s8", ("row", None, "row", None), "bf16"),
])  # fmt: skip
def test_scaled_matrices_are_one_launch(
    type_: str, blocks: Any, scale_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_call, "_plans", {})
    each = zip(A, W, blocks, strict=True)
    pairs = [[quantize(x, type_, block, scale_dtype=scale_type) for x in (a, w)]
             for a, w, block in each]  # fmt: skip
    a, b = [x for x, _ in pairs], [w.T for _, w in pairs]
    _check(tilewright.grouped_matmul(a, b, device="vm"), a, b)
    found = tilewright.grouped_matmul(
        a, b, epilogue=lambda acc, s: acc * s, s=[2.0] * 4, out_dtype="f32", device="vm"
    )
    _check(found, a, b, 2.0)
    assert [len(plan.launches) for plan in list_call._plans.values()] == [1, 1]
    one = tilewright.matmul(a[0], b[0], device="vm")
    assert one.dtype == tilewright.grouped_matmul(a[:1], b[:1], device="vm")[0].dtype


def test_scaled_matrices_have_a_fast_path() -> None:
    given = [(quantize(a, "e4m3", "row"), quantize(w, "e4m3", "row"))
             for a, w in zip(A[:2], W[:2], strict=True)]  # fmt: skip
    with registered(FAST_KIND):
        for first in (True, False):
            a = [Scaled(Resident.of(x.data), Resident.of(x.scales), x.block) for x, _ in given]
            b = [Scaled(Resident.of(w.data).T, Resident.of(w.scales).T, w.block[::-1])
                 for _, w in given]  # fmt: skip
            seen.clear()
            found = tilewright.grouped_matmul(a, b)
            assert (len(seen) > 1) == first  # one: the memory of a table
            _check([d.numpy() for d in found], [x for x, _ in given], [w.T for _, w in given])


def _problems(name: str) -> tuple[list[Any], list[Any]]:
    half = [x.astype(np.float16) for x in A[:2]]
    packed = [quantize_weight(w, "u4", 32).T for w in W[:2]]
    sparse = [tilewright.compress_24(w.astype(np.float16), "magnitude").T for w in W[:2]]
    return {
        "f32": (A, [w.T for w in W]),
        "f64": ([x.astype(float) for x in A], [w.astype(float).T for w in W]),
        "packed and sparse": (half, [packed[0], sparse[1]]),
        "blocks": (
            [quantize(x, "e4m3", (1, 128)) for x in A[:2]],
            [quantize(w, "e4m3", (128, 128)).T for w in W[:2]],
        ),
    }[name]


@pytest.mark.parametrize(
    "name", slow_but(["packed and sparse", "blocks"], ["f32", "f64", "packed and sparse", "blocks"])
)
def test_other_lists_are_products_one_by_one(name: str) -> None:
    a, b = _problems(name)
    _check(tilewright.grouped_matmul(a, b, device="vm"), a, b)
    own = [float(i) for i in range(len(a))]
    found = tilewright.grouped_matmul(a, b, epilogue=lambda acc, s: acc * s, s=own, device="vm")
    for i, d in enumerate(found):
        _check([d], a[i : i + 1], b[i : i + 1], own[i])


def test_a_list_on_another_target() -> None:
    a, b = [x.astype(np.float16) for x in A], [w.astype(np.float16).T for w in W]
    _check(tilewright.grouped_matmul(a, b, device="vm:A100"), a, b)


def test_outputs_of_products_one_by_one() -> None:
    a, b = A[:1] * 2, [W[0].T] * 2
    out = [np.ones((5, 48), np.float32) for _ in range(2)]
    found = tilewright.grouped_matmul(
        a, b, epilogue=lambda acc, c: acc + c, c=out, out=out, device="vm"
    )
    assert found[0] is out[0] and found[1] is out[1]
    _check([d - 1 for d in out], a, b)
    whole = np.zeros((9, 48), np.float32)
    for message, left, right, outs in (
        (r"out\[0\] must not share memory with out\[1\]", a, b, [whole[:5], whole[4:]]),
        (r"out\[0\] must not share memory with a\[1\]", [A[0], out[1]], [W[0].T, W[0]],
         [out[1], np.zeros((5, 128), np.float32)]),
    ):  # fmt: skip
        with pytest.raises(ProblemError, match=message):
            tilewright.grouped_matmul(left, right, out=outs, device="vm")


def test_errors_say_which_problem() -> None:
    with pytest.raises(ProblemError, match="a must have as many columns") as caught:
        tilewright.grouped_matmul([A[0], A[1]], [W[0].T] * 2, device="vm")
    assert caught.value.__notes__ == ["problem 1 of the list"]
    with pytest.raises(EpilogueError, match="s must have an element for each of 4, got 1"):
        tilewright.grouped_matmul(
            A, [w.T for w in W], epilogue=lambda acc, s: acc * s, s=[1.0], device="vm"
        )
    scaled = quantize(A[0], "e4m3", "row")
    with pytest.raises(ProblemError, match=r"a\[1\] must be Scaled, as others of a are"):
        tilewright.grouped_matmul([scaled, A[1]], [W[0].T, W[1].T], device="vm")
