"""Repeated calls with an epilogue take the fast path, to the same results, and only where they may.

Each call is checked against NumPy; ``seen`` is empty if it took the fast path.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from tilewright.errors import EpilogueError, ProblemError
from tilewright.gemm.epilogue import functions
from tilewright.gemm.epilogue.tracing import cast, epilogue
from tilewright.gemm.epilogue.user_function.function_key import function_key

pytestmark = pytest.mark.vm

TINY = "32x32x32:1x1:2"
M, N, K = 48, 32, 64
RNG = np.random.default_rng(0)
SHIFT = 1.0


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered(FAST_KIND):
        yield


def whole(*shape: int, dtype: Any = np.float16) -> Any:
    return RNG.integers(-4, 5, shape).astype(dtype)


A, B, BIAS, R = whole(M, K), whole(K, N), whole(N, dtype=np.float32), whole(M, N)
EXACT = A.astype(np.float32) @ B.astype(np.float32)
X, Y = Resident.of(A), Resident.of(B)


def call(function: Any, **options: Any) -> tuple[Any, bool]:
    """The result, and whether the call took the fast path."""
    seen.clear()
    options = {"config": TINY, "out_dtype": "f32"} | options
    result = tilewright.matmul(X, Y, epilogue=function, **options)
    return result, not seen


def check(function: Any, wanted: Any, fast: bool, **options: Any) -> None:
    d, short = call(function, **options)
    assert np.array_equal(d.numpy(), wanted)
    assert short is fast


def test_a_lambda_created_at_each_call() -> None:
    for number in range(3):
        bias, r = whole(N, dtype=np.float32), whole(M, N)
        arrays = {"bias": Resident.of(bias), "r": Resident.of(r)}
        check(lambda acc, bias, r: acc + bias + r, EXACT + bias + r, number > 0, **arrays)


def test_variables_of_a_lambda_are_those_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(acc: Any) -> Any:
        return acc * SHIFT

    for shift, fast in ((2.0, False), (2.0, True), (3.0, False), (2.0, True), (3.0, True)):
        monkeypatch.setitem(globals(), "SHIFT", shift)
        check(lambda acc: scaled(acc) + SHIFT, EXACT * shift + shift, fast)
    for factor, fast in ((5.0, False), (5.0, True), (6.0, False), (5, False), (5.0, True)):
        check(lambda acc: acc * factor, EXACT * factor, fast)  # noqa: B023


@pytest.mark.slow
def test_functions_whose_variables_may_change_are_traced_at_each_call() -> None:
    numbers = [2.0]
    for number in (2.0, 3.0):
        numbers[0] = number
        check(lambda acc: acc * numbers[0], EXACT * number, False)


def test_scalars_by_value_and_in_device_memory() -> None:
    def f(acc: Any, s: Any = 1.0, t: Any = 0.0) -> Any:
        return acc * s + t

    in_memory = Resident.of(np.array([4.0], np.float32))
    on_cpu = np.array(3.0)
    for s, t, fast in (
        (2.0, 1, False), (2.5, 2, True), (on_cpu, 2.0, True), (np.float64(7), 1.0, True),
        (in_memory, 1.0, False), (in_memory, 2.0, True), (2.0, in_memory, False), (2.0, 1.0, True),
    ):  # fmt: skip
        values = [4.0 if v is in_memory else float(v) for v in (s, t)]
        check(f, EXACT * values[0] + values[1], fast, s=s, t=t)
    on_cpu[()] = 9.0
    check(f, EXACT * 9 + 1, True, s=on_cpu, t=1.0)
    check(f, EXACT * 2, False, s=2.0)
    with pytest.raises(ProblemError, match="s must be a real number"):
        call(f, s=1j, t=1.0)
    check(f, EXACT + R, False, s=1.0, t=Resident.of(R))


def test_static_operands() -> None:
    def f(acc: Any, mode: Any, bias: Any = None) -> Any:
        y = functions.relu(acc) if mode == "relu" else -acc if mode else acc
        return y if bias is None else y + bias

    relu = np.maximum(EXACT, 0)
    for mode, bias, wanted, fast in (
        ("relu", None, relu, False), ("relu", None, relu, True), (True, None, -EXACT, False),
        ("re" + "lu", None, relu, True), (True, None, -EXACT, True),
        ("relu", 1.0, relu + 1, False), ("relu", None, relu, True), ("relu", 2, relu + 2, True),
    ):  # fmt: skip
        check(f, wanted, fast, mode=mode, bias=bias)


def test_other_arrays_take_the_slow_path() -> None:
    def f(acc: Any, x: Any) -> Any:
        return acc + x

    wide = whole(N + 8, dtype=np.float32)
    column, half = whole(M, 1, dtype=np.float32), whole(N)
    for x, fast in (
        (wide[:N], False), (wide[:N], True), (column, False), (half, False), (column, True),
        (R, False), (wide[:N], True),
    ):  # fmt: skip
        check(f, EXACT + x, fast, x=Resident.of(x))
    memory = Resident.of(wide)
    for offset, fast in ((4, True), (1, False), (5, True), (2, False)):
        x = memory.cut((N,), (1,), offset)
        check(f, EXACT + wide[offset : offset + N], fast, x=x)
    with pytest.raises(EpilogueError, match="must broadcast to D"):
        call(f, x=Resident.of(wide))
    with pytest.raises(EpilogueError, match="has no operand y"):
        call(f, x=Resident.of(column), y=1.0)
    with pytest.raises(EpilogueError, match="needs the operand x"):
        call(f)


@epilogue
def statistics(acc: Any, bias: Any) -> Any:
    y = acc + bias
    return {
        "amax": functions.amax(y), "y": cast(y, "f32"), "rows": functions.max(y, -1),
        "acc": cast(acc, "f32"),
    }  # fmt: skip


@pytest.mark.parametrize("with_out", [False, True])
def test_several_outputs_and_reductions(with_out: bool) -> None:
    for number in range(2):
        bias = whole(N, dtype=np.float32)
        out = Resident.empty((M, N), "f32") if with_out else None
        more = {} if out is None else {"out": out, "out_dtype": None}
        got, short = call(statistics, bias=Resident.of(bias), config="tma:64x64x64:1:3", **more)
        y = EXACT + bias
        wanted = {"amax": np.abs(y).max(), "y": y, "rows": y.max(1), "acc": EXACT}
        assert list(got) == list(wanted) and short is (number > 0)
        assert all(np.array_equal(got[name].numpy(), x) for name, x in wanted.items())
        assert out is None or got["y"] is out


def test_out_as_operand_and_out_that_overlaps_one() -> None:
    def f(acc: Any, r: Any) -> Any:
        return acc + r

    more = {"out_dtype": None}
    apart = Resident.of(R.astype(np.float32))
    there = Resident.of(R.astype(np.float32))
    alias = there.cut((M, N), (N, 1))
    for times, (r, fast) in enumerate(((there, False), (there, True), (alias, False)), 1):
        check(f, EXACT * times + R, fast, r=r, out=there, **more)
    check(f, EXACT * 4 + R, True, r=there.cut((M, N), (N, 1)), out=there, **more)
    for fast in (False, True):
        check(f, EXACT + R, fast, r=apart, out=Resident.empty((M, N), "f32"), **more)
    check(f, EXACT * 5 + R, True, r=alias, out=there, **more)
    tall = Resident.empty((M + 4, N), "f32")
    with pytest.raises(EpilogueError, match="must not share memory with r"):
        call(f, r=tall.cut((M, N), (N, 1)), out=tall.cut((M, N), (N, 1), 4 * N), **more)
    rows = Resident.empty((M, N), "f32")
    for _ in range(2):
        with pytest.raises(EpilogueError, match="must not share memory with r"):
            call(f, r=rows.cut((N,), (1,), N), out=rows, **more)
    with pytest.raises(ProblemError, match="must not share memory with r"):
        call(f, r=rows.cut((1,), (1,), N), out=rows, **more)


def test_two_matrices_b_and_a_workspace() -> None:
    b2 = whole(K, N)
    y2, exact2 = Resident.of(b2), A.astype(np.float32) @ b2.astype(np.float32)
    for number in range(2):
        seen.clear()
        d = tilewright.matmul(X, (Y, y2), epilogue=lambda x, y: x - 2 * y, out_dtype="f32")
        assert np.array_equal(d.numpy(), EXACT - 2 * exact2) and (not seen) is (number > 0)
    for number in range(2):
        bias = whole(N, dtype=np.float32)
        seen.clear()
        d = tilewright.matmul(
            Resident.of(np.hstack([A] * 4)), Resident.of(np.vstack([B] * 4)), out_dtype="f32",
            epilogue=lambda acc, x: acc + x, x=Resident.of(bias), config="tma:64x64x64:1:2*2",
        )  # fmt: skip
        assert np.array_equal(d.numpy(), 4 * EXACT + bias) and (not seen) is (number > 0)


def test_factors_that_the_function_names() -> None:
    def f(acc: Any, c: Any, alpha: Any, beta: Any = 2.0) -> Any:
        return acc * alpha + beta * c

    c = Resident.of(R)
    for alpha, fast in ((2.0, False), (3.0, True)):
        check(f, EXACT * alpha + 2 * R.astype(np.float32), fast, c=c, alpha=alpha)
    for beta in (1.0, 3.0):
        check(f, EXACT * 2 + beta * R.astype(np.float32), beta == 3.0, c=c, alpha=2, beta=beta)
    for _ in range(2):
        with pytest.raises(EpilogueError, match="beta is given"):
            call(lambda acc: acc, beta=2.0)
        call(lambda acc: acc)


def test_a_plan() -> None:
    bias, out = Resident.of(BIAS), Resident.empty((M, N), "f32")
    factor = 2.0
    plan = tilewright.plan(
        X, Y, epilogue=lambda acc, bias: acc * factor + bias, bias=bias, out=out, config=TINY
    )
    factor = 3.0  # a plan's function was traced
    for number in range(3):
        seen.clear()
        assert plan.run(X, Y, bias=bias, out=out) is out
        assert np.array_equal(out.numpy(), EXACT * 2 + BIAS) and (not seen) is (number > 0)
    assert np.array_equal(plan.run(X, Y, bias=bias).numpy(), EXACT * 2 + BIAS)
    with pytest.raises(ProblemError, match="must pose the plan's problem"):
        plan.run(X, Y, bias=Resident.of(BIAS.astype(np.float16)), out=out)
    with pytest.raises(EpilogueError, match="needs the operand bias"):
        plan.run(X, Y, out=out)
    plain = tilewright.plan(X, Y, out=out, config=TINY)
    plain.run(X, Y, out=out)
    with pytest.raises(TypeError, match="unexpected arguments bias"):
        plain.run(X, Y, out=out, bias=bias)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("with_out", [False, True])
def test_linear(gated: bool, with_out: bool) -> None:
    w, g = whole(N, K), whole(N, K)
    there = {name: Resident.of(x) for name, x in {"w": w, "gate": g}.items()}
    wide_w, wide_g = w.astype(np.float32), g.astype(np.float32)
    config = None if gated else TINY
    for number in range(2):
        x, bias, r = whole(2, 8, K), whole(N), whole(2, 8, N)
        out = Resident.empty((2, 8, N), "f32") if with_out else None
        seen.clear()
        got = tilewright.linear(
            Resident.of(x), there["w"], Resident.of(bias), residual=Resident.of(r), out=out,
            gate=there["gate"] if gated else None, activation=lambda v: functions.relu(v) * SHIFT,
            save=("preactivation",), out_dtype=None if with_out else "f32", config=config,
        )  # fmt: skip
        fast = not seen
        pre = x.astype(np.float32) @ wide_w.T + bias
        y = np.maximum(x.astype(np.float32) @ wide_g.T, 0) * pre if gated else np.maximum(pre, 0)
        assert list(got) == ["y", "preactivation"] and (out is None or got["y"] is out)
        assert np.array_equal(got["y"].numpy(), y + r) and fast is (number > 0)
        assert np.array_equal(got["preactivation"].numpy(), pre)


def test_an_activation_sees_its_variables_of_each_call() -> None:
    x, w = Resident.of(whole(8, K)), Resident.of(whole(N, K))
    plain = tilewright.linear(x, w, out_dtype="f32", config=TINY).numpy()
    slope = 1.0

    def scaled(v: Any) -> Any:
        return v * slope

    for slope, fast in ((2.0, False), (2.0, True), (3.0, False), (2.0, True)):
        seen.clear()
        got = tilewright.linear(x, w, activation=scaled, out_dtype="f32", config=TINY)
        assert np.array_equal(got.numpy(), plain * slope) and (not seen) is fast


def test_a_decorated_function_whose_variables_change() -> None:
    """It is traced with the present values, and not for functions with the earlier ones."""

    def made(scale: float) -> Any:
        def change(to: float) -> None:
            nonlocal scale
            scale = to

        return (lambda acc, x=0.0: acc * scale + x), change

    function, change = made(2.0)
    decorated = epilogue(function)
    change(3.0)
    check(decorated, EXACT * 3, False)
    check(made(2.0)[0], EXACT * 2, False)
    check(decorated, EXACT * 3, False)  # has a key of its own since its first call
    check(decorated, EXACT * 3, True)
    check(made(2.0)[0], EXACT * 2, True)


def test_keys_of_functions() -> None:
    space = SimpleNamespace(x=1.0)
    module = type(np)("settings")
    module.x = 1.0  # type: ignore[attr-defined]

    class Settings:
        x = 1.0

    def reads(where: Any) -> Any:
        return lambda acc: acc * where.x

    assert function_key(reads(space)) is None  # an instance may change unnoticed
    for where in (module, Settings):
        keys = []
        for where.x in (1.0, 1.0, 2.0, 1, 1.0):
            keys.append(function_key(reads(where)))
        assert keys[0] == keys[1] == keys[4] and len(set(keys)) == 3
    outer = epilogue(lambda acc: acc * module.x)  # type: ignore[attr-defined]

    def uses(acc: Any) -> Any:
        return outer(acc)

    first = function_key(uses)
    module.x = 5.0  # type: ignore[attr-defined]
    assert first is not None and function_key(uses) not in (None, first)
