"""Problems, the floor under their time, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemm_cases.kernels import MAJORS, make_problem
from tilewright.errors import DtypeError, ProblemError, TargetError
from tilewright.gemm import Problem, roofline
from tilewright.target import DEVICES, device_spec


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"m": -1}, ProblemError, "M must be .* got -1"),
        ({"m": "8"}, ProblemError, "M must be an integer .* got '8'"),
        ({"n": 8.0}, ProblemError, r"N must be an integer .* got 8\.0"),
        ({"k": 2**31}, ProblemError, "K must be .* got 2147483648"),
        ({"a": "f64"}, DtypeError, "A of f64 times B of f16"),
        ({"b": "bf16"}, DtypeError, "A of f16 times B of bf16"),
        ({"d": "bf16"}, DtypeError, "a result from f16 must be .*, got bf16"),
        ({"a_major": "n"}, ProblemError, "k- or m-major"),
        ({"b_major": "m"}, ProblemError, "k- or n-major"),
        ({"align_a": 1}, ProblemError, "align_a is 1"),
        ({"align_c": 32}, ProblemError, "align_c is 32"),
        ({"d": "f32", "align_d": 2}, ProblemError, r"align_d is 2; it is one of \[16, 8, 4\]"),
        ({"d": "f32", "accumulates_c": True}, ProblemError, "got with_c=False and D of f32"),
        ({"with_c": True, "accumulates_c": True}, ProblemError, "got with_c=True and D of f16"),
    ],
)
def test_what_cant_be_posed(given: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        replace(Problem(8, 8, 8), **given)


def test_the_layout_has_blas_s_name() -> None:
    for name in MAJORS:
        assert make_problem((8, 8, 8), name).layout == name
    assert (
        str(make_problem((3, 4, 5), "tt", "bf16", d="f32", with_c=True))
        == "3×4×5 bf16 TT → f32 + C"
    )


def test_operations_and_bytes() -> None:
    problem = Problem(3, 5, 7)
    assert problem.flops == 2 * 3 * 5 * 7
    assert problem.bytes == 2 * (3 * 7 + 7 * 5 + 3 * 5)
    wide = replace(problem, d="f32", with_c=True, align_d=4)
    assert wide.bytes == 2 * (3 * 7 + 7 * 5) + 4 * 2 * 3 * 5
    assert Problem(3, 8, 7).with_sizes(1, 2, 3) == Problem(1, 2, 3)


def test_no_store_is_wider_than_what_divides_a_row_of_d() -> None:
    for n, given, aligned in ((33, 16, 2), (1, 16, 2), (100, 16, 8), (104, 16, 16), (104, 4, 4)):
        assert Problem(64, n, 64, align_d=given).align_d == aligned
    assert Problem(64, 36, 64, d="f32").align_d == 16


@pytest.mark.parametrize("name", DEVICES)
def test_the_floor_of_every_device(name: str) -> None:
    large, skinny = (
        roofline(Problem(*s), device_spec(name)) for s in ((8192,) * 3, (1, 8192, 8192))
    )
    assert (large.bound_by, skinny.bound_by) == ("arithmetic", "memory")
    assert large.seconds > skinny.seconds > 0
    assert large.seconds == large.compute and skinny.seconds == skinny.memory


def test_the_floor_of_an_h200() -> None:
    """Dense bf16: 989 TFLOP/s, says its data sheet."""
    problem = Problem(8192, 8192, 8192, "bf16", "bf16", "bf16")
    assert problem.flops / roofline(problem, device_spec("H200")).seconds == pytest.approx(
        989e12, 0.01
    )


def test_unknown_rates_are_a_typed_error() -> None:
    with pytest.raises(TargetError, match="peak rates of 'GH200' are not known"):
        roofline(Problem(8, 8, 8), replace(device_spec("H200"), name="GH200"))


def test_the_roof_is_higher_for_narrow_elements() -> None:
    """An H200's published peaks: 989 TFLOP/s, 1979 of 8 bits, 495 of tf32."""
    types = ("bf16", "bf16", 989), ("e4m3", "bf16", 1979), ("s8", "s32", 1979), ("tf32", "f32", 495)
    for a, d, tera in types:
        problem = Problem(8192, 8192, 8192, a, a, d)
        floor = roofline(problem, device_spec("H200"))
        assert problem.flops / floor.compute == pytest.approx(tera * 1e12, rel=0.01)
