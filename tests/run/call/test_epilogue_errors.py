"""What epilogue functions may be, and the errors of those that are not: nothing is dropped."""

from __future__ import annotations

import math
import re
from functools import partial, wraps
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import check_rows
from tilewright.errors import EpilogueError, ProblemError, TilewrightError
from tilewright.gemm.epilogue import functions
from tilewright.gemm.epilogue.tracing import TracedReduction, cast, epilogue

pytestmark = pytest.mark.vm
A = np.ones((16, 16), np.float16)
THREES = np.full((16, 1), 3, np.float32)
SCALE = 1.0


class Scaled:
    def method(self, acc: Any, bias: Any) -> Any:
        return acc + bias

    def __call__(self, acc: Any) -> Any:
        return 2 * acc


def scaled(acc: Any, scale: Any, bias: Any) -> Any:
    return acc * scale + bias


def powers(acc: Any, n: Any = "xx") -> Any:
    return acc + powers(acc, n[1:]) if n else acc


FUNCTIONS = {
    "a builtin": (abs, {}, 16),
    "a method": (Scaled().method, {"bias": 2.0}, 18),
    "an instance": (Scaled(), {}, 32),
    "a partial function": (partial(scaled, scale=2.0), {"bias": 1.0}, 33),
    "a partial function of an array": (
        partial(scaled, scale=np.full(16, 3, np.float32)), {"bias": 1.0}, 49
    ),
    "an accumulator by position": (eval("lambda acc, /, bias: acc + bias"), {"bias": 2.0}, 18),
    "a default": (lambda acc, bias=3.0: acc + bias, {}, 19),
    "a default array": (lambda acc, bias=THREES: acc + bias, {}, 19),
    "NumPy numbers": (lambda acc: np.float64(2) * acc + np.int64(1), {}, 33),
    "NumPy numbers on the left": (
        lambda acc: functions.where(np.float32(20) > acc, np.float32(2) * acc, 0.0), {}, 32
    ),
    "a parameter by name alone": (eval("lambda acc, *, x=1.0: acc + x"), {"x": 4.0}, 20),
    "a bounded recursion": (powers, {}, 48),
    "a wrapper": (wraps(scaled)(lambda *args, **named: scaled(*args, **named)),
                  {"scale": 1.0, "bias": 1.0}, 17),
    "sum()": (lambda acc: sum([acc, acc]), {}, 32),
}  # fmt: skip


def check_function(function: Any, operands: dict[str, Any], expected: float) -> None:
    got = tilewright.matmul(A, A, epilogue=function, device="vm", **operands)
    assert got.dtype == np.float16
    assert np.array_equal(got, np.full((16, 16), expected))


def test_callables_of_every_kind() -> None:
    names = "function", "operands", "expected"
    check_rows(
        ((name, dict(zip(names, row, strict=True))) for name, row in FUNCTIONS.items()),
        check_function,
    )


def generator(acc: Any) -> Any:
    yield acc


def recursive(acc: Any) -> Any:
    return recursive(acc - 1) if acc > 0 else acc


LEAKED: list[Any] = []
ERRORS = {
    "arguments of any number": (lambda *accs: accs[0], "must be the accumulator and named"),
    "arguments of any name": (lambda acc, **more: acc, r"got \(acc, \*\*more\)"),
    "no signature": (max, "has no readable signature"),
    "a tuple": (lambda acc: (acc, acc), "must return values of the epilogue or a dict"),
    "a list": (lambda acc: [acc], "must return values of the epilogue"),
    "None": (lambda acc: None, "must return values of the epilogue"),
    "a generator": (generator, "must return values of the epilogue"),
    "two conditions": (lambda acc: acc > 0 and -acc, "`if` cannot use it"),
    "max()": (lambda acc: max(acc, 0.0), "`if` cannot use it"),
    "a recursion that depends on an element": (recursive, "`if` cannot use it"),
    "math": (lambda acc: math.exp(acc), "float.. or a function of math must not be called with"),
    "int()": (lambda acc: int(acc), "int.. must not be called with a value of an epilogue"),
    "a function of NumPy": (lambda acc: np.exp(acc), "numpy.exp must not be called with a value"),
    "another of NumPy": (lambda acc: np.where(True, acc, 0), "numpy.where must not be called"),
    "an array on the left": (lambda acc: A * acc, "pass an array to matmul as an operand"),
    "an array that is changed": (lambda acc: np.multiply(A, acc, out=A), "numpy.multiply must"),
    "a name that is not text": (lambda acc: {1: acc}, "must name its outputs by strings, got 1"),
    "no outputs": (lambda acc: {}, "must return D"),
    "a constant": (lambda acc: 1.0, "must return values of the epilogue"),
    "text": (lambda acc: acc + "1", "a constant must be a number in the range of f32, got '1'"),
    "an array": (lambda acc: acc + A, "pass an array to matmul as an operand"),
    "too large": (lambda acc: acc * 1e39, "in the range of f32"),
    "an exponent": (lambda acc: acc ** (acc + 1), "exponent of . must be 1, 2, 3 or 4"),
    "a value of another function": (lambda acc: LEAKED[0], "a value of another epilogue function"),
    "a reduction of another function": (
        lambda acc: {"d": acc, "m": functions.amax(LEAKED[0])}, "a value of another epilogue"
    ),
    "only a reduction": (lambda acc: functions.amax(acc), "must return D"),
    "a reduction as operand": (lambda acc: acc + functions.amax(acc), "must not be an operand"),
    "an unknown reduction": (
        lambda acc: {"d": acc, "m": TracedReduction(acc, "prod", "n")}, "must be max or sum"
    ),
    "unknown dimensions": (
        lambda acc: {"d": acc, "m": TracedReduction(acc, "max", "nm")}, "must be along some of b"
    ),
    "an option of matmul": (lambda acc, out_dtype: acc, "needs the operand out_dtype"),
}  # fmt: skip


def check_error(function: Any, text: str) -> None:
    if not LEAKED:
        tilewright.matmul(A, A, device="vm", epilogue=lambda acc: LEAKED.append(acc) or acc)
    with pytest.raises(EpilogueError, match=text):
        tilewright.matmul(A, A, device="vm", epilogue=function)


def test_errors_of_functions() -> None:
    rows = ((n, {"function": f, "text": text.replace("of .", r"of \*\*")})
            for n, (f, text) in ERRORS.items())  # fmt: skip
    check_rows(rows, check_error)


def test_errors_within_a_function_are_the_callers() -> None:
    def recursive(acc: Any) -> Any:
        return recursive(acc)

    for function, error in ((lambda acc: 1 / 0, ZeroDivisionError), (recursive, RecursionError)):
        with pytest.raises(error):
            tilewright.matmul(A, A, device="vm", epilogue=function)


def test_a_reduction_of_integers_is_one_of_their_values_in_f32() -> None:
    got = tilewright.matmul(
        A, A, device="vm", epilogue=lambda acc: {"d": acc, "m": functions.max(cast(acc, "s32"))}
    )
    assert got["m"] == 16
    assert got["m"].dtype == np.float32


def test_a_result_without_elements() -> None:
    for m, n in ((0, 16), (16, 0)):
        a, b = np.ones((m, 8), np.float16), np.ones((8, n), np.float16)
        got = tilewright.matmul(
            a, b, device="vm", epilogue=lambda acc, x: {"d": acc + x, "e": cast(acc, "e4m3")}, x=1.0
        )
        assert [x.shape for x in got.values()] == [(m, n)] * 2
        with pytest.raises(EpilogueError, match="has no elements"):
            tilewright.matmul(
                a, b, device="vm", epilogue=lambda acc: {"d": acc, "s": functions.sum(acc)}
            )


def test_no_terms_along_k() -> None:
    a, b = np.ones((40, 0), np.float16), np.ones((0, 24), np.float16)
    x = np.arange(24, dtype=np.float32)
    got = tilewright.matmul(a, b, device="vm", epilogue=lambda acc, x: acc + x, x=x)
    assert np.array_equal(got, np.broadcast_to(x, (40, 24)))


def test_operands_of_other_types_and_shapes() -> None:
    bad: dict[str, Any] = {
        "bool": np.ones(16, bool), "complex": np.ones(16, np.complex64), "0-d": np.array(1j),
        "s4": np.ones(16, ml_dtypes.int4), "u4": np.ones((16, 16), ml_dtypes.uint4),
        "shape": np.ones((3, 3), "f"), "empty": np.ones((16, 0), "f"), "list": [1.0],
        "object": np.array([None] * 16), "number": 1j, "large": 10**400, "class": int,
    }  # fmt: skip
    for x in bad.values():
        with pytest.raises(TilewrightError):
            tilewright.matmul(A, A, device="vm", epilogue=lambda acc, x: acc + x, x=x)
    for type_ in (ml_dtypes.int4, ml_dtypes.uint4, np.bool_, np.complex64):
        with pytest.raises(TilewrightError):
            tilewright.matmul(A.astype(type_), A, device="vm", epilogue=lambda acc: acc)
    for out in ([A], (A,)):
        with pytest.raises(EpilogueError, match="out must be an array, which D is written to"):
            tilewright.matmul(A, A, device="vm", epilogue=lambda acc: {"y": acc}, out=out)
    repeated = np.broadcast_to(np.float16(3), (16, 16))  # strides of 0, read-only
    got = tilewright.matmul(A, A, device="vm", epilogue=lambda acc, x: acc + x, x=repeated)
    assert (got == 19).all()


def several(acc: Any, x: Any) -> Any:
    y = acc + x
    return {
        "y": y,
        "mask": cast(tilewright.where(y > 0, 1, 0), "u8"),
        "rows": tilewright.sum(y, axis=-1),
    }


def test_out_may_be_a_dict_of_arrays() -> None:
    x = np.arange(256, dtype=np.float32).reshape(16, 16) - 140
    given: dict[str, Any] = {"device": "vm", "epilogue": several, "x": x}
    wanted = tilewright.matmul(A, A, **given)
    every = ["y", "mask", "rows"]
    for names in (["y"], ["mask"], ["rows", "y"], every, []):
        arrays = {name: np.full_like(wanted[name], 77) for name in names}
        got = tilewright.matmul(A, A, out=arrays, **given)
        assert list(got) == list(wanted)
        assert all(got[name] is arrays[name] for name in names)
        assert all(np.array_equal(got[name], wanted[name]) for name in wanted)
    plan = tilewright.plan(A, A, **given)
    out = {"rows": np.zeros(16, np.float32)}
    assert plan.run(A, A, x=x, out=out)["rows"] is out["rows"]
    assert np.array_equal(out["rows"], wanted["rows"])


def test_arrays_for_outputs_that_do_not_fit_are_errors() -> None:
    x, rows, mask = np.ones((16, 16), "f"), np.ones(16, "f"), np.ones((16, 16), np.uint8)
    readonly = rows.copy()
    readonly.flags.writeable = False
    wrong = [
        ({"z": rows}, "out has 'z', which is no output of y, mask, rows"),
        ({"rows": rows[:8]}, "out['rows'] must be contiguous, f32 of shape (16,), got f32"),
        ({"rows": np.ones(16)}, "out['rows'] must be contiguous, f32 of shape (16,), got f64"),
        ({"mask": mask.T[::-1]}, "out['mask'] must be contiguous"),
        ({"rows": x[0]}, "out['rows'] must not share memory with x"),
        ({"rows": rows, "y": rows[:, None]}, "out must"),
        ({"rows": readonly}, "out['rows'] must be writable"),
    ]  # fmt: skip
    for out, text in wrong:
        with pytest.raises(TilewrightError, match=re.escape(text)):
            tilewright.matmul(A, A, device="vm", epilogue=several, x=x, out=out)


def test_out_may_be_an_operand_but_no_part_of_one() -> None:
    out = np.full((16, 16), 2, np.float16)
    tilewright.matmul(A, A, device="vm", epilogue=lambda acc, x: acc + x, x=out, out=out)
    assert np.array_equal(out, np.full((16, 16), 18))
    readonly = out.copy()
    readonly.flags.writeable = False
    bad: list[dict[str, Any]] = [
        {"x": out[:, ::-1], "out": out}, {"x": out[3], "out": out}, {"x": 1.0, "out": readonly}
    ]  # fmt: skip
    for arguments in bad:
        with pytest.raises(TilewrightError, match=r"must not share memory|must be writable"):
            tilewright.matmul(A, A, device="vm", epilogue=lambda acc, x: acc + x, **arguments)


def test_a_lambda_sees_its_variables_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for scale in (2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        got = tilewright.matmul(A, A, device="vm", epilogue=lambda acc: acc * SCALE)
        assert got[0, 0] == 16 * scale
    for default, sign in ((0.0, False), (-0.0, True)):
        got = tilewright.matmul(A, A, device="vm", epilogue=lambda acc, s=default: acc * s)
        assert np.signbit(got).all() == sign


def test_lambdas_are_the_same_function_if_their_variables_are() -> None:
    def of(scale: Any) -> Any:
        return epilogue(lambda acc: acc * scale)

    def graphs(scale: Any) -> int:
        return id(of(scale)._graphs)

    kept = [of(x) for x in (2.0, 2, True, 0.0, -0.0, THREES, [1])]
    assert graphs(2.0) == id(kept[0]._graphs)
    assert len({id(x._graphs) for x in kept}) == len(kept)


def test_a_variable_that_changes_after_a_call() -> None:
    def of(scale: Any) -> tuple[Any, Any]:
        def change(to: float) -> None:
            nonlocal scale
            scale = to

        return (lambda acc, x: acc * scale + x), change

    function, change = of(2.0)
    assert tilewright.matmul(A, A, device="vm", epilogue=function, x=1.0)[0, 0] == 33
    change(3.0)
    assert tilewright.matmul(A, A, device="vm", epilogue=of(2.0)[0], x=THREES)[0, 0] == 35
    assert tilewright.matmul(A, A, device="vm", epilogue=function, x=1.0)[0, 0] == 49


def test_more_matrices_than_accumulators() -> None:
    with pytest.raises(ProblemError, match="b must be one matrix or two, got 3"):
        tilewright.matmul(A, (A, A, A), epilogue=lambda acc, other: acc * other, device="vm")
    with pytest.raises(ProblemError, match="without an epilogue b must be one matrix, got 2"):
        tilewright.matmul(A, (A, A), device="vm")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (np.ones((1, 8), np.float32), r"epilogue \(r f32 \[m, n\]: .*\) and \(r f32 \[n\]: "),
        (np.ones((8, 8), np.int8), r"epilogue \(r f32 \[m, n\]: .*\) and \(r s8 \[m, n\]: "),
    ],
)
def test_a_plan_reports_differing_operands(other: Any, says: str) -> None:
    a, r = np.ones((8, 8), np.float16), np.ones((8, 8), np.float32)
    plan = tilewright.plan(a, a, epilogue=lambda acc, r: acc * r, r=r, device="vm")
    with pytest.raises(ProblemError, match=says) as raised:
        plan.run(a, a, r=other)
    assert len(str(raised.value)) < 400
