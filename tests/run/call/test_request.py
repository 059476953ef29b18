"""What may be asked of ``matmul``: bad input is a typed error that says what would be right."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rows import every_row
from tilewright import dtypes
from tilewright.cuda import Properties
from tilewright.errors import DeviceError, DtypeError, ProblemError
from tilewright.run.arrays.array_view import view
from tilewright.run.call.alpha_beta import scale_factor
from tilewright.run.call.operands.output_overlap import (
    check_output_overlap,
    common_device,
    same_elements,
)
from tilewright.run.call.request import check_request, format_name, make_request
from tilewright.run.devices.cuda_device import target_of
from tilewright.run.devices.device import device
from tilewright.target import DEVICES


def checked(
    a: Any, b: Any, c: Any = None, out: Any = None, dtype: Any = None, precision: str = "ieee"
) -> None:
    views = [None if x is None else view(x) for x in (a, b, c, out)]
    common_device(*views)
    check_request(make_request(*views, dtype, c is not None, precision))  # type: ignore[arg-type]
    if out is not None:
        check_output_overlap(*views)  # type: ignore[arg-type]


def half(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float16)


def wide(*shape: int) -> np.ndarray[Any, Any]:
    return np.broadcast_to(half(1, 1), shape)


def single(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


BAD = {
    "a vector": (lambda: checked(half(4), half(4, 4)), ProblemError, "must be 2-D.*x\\[None"),
    "a stack": (
        lambda: checked(half(4, 4), half(2, 4, 4)),
        ProblemError,
        "stacks of equal length, got a 4×4 and b 2×4×4.*expand one",
    ),
    "two stacks": (
        lambda: checked(half(3, 4, 4), half(2, 4, 4)),
        ProblemError,
        "got a 3×4×4 and b 2×4×4",
    ),
    "a stack of stacks": (
        lambda: checked(half(2, 2, 4, 4), half(2, 2, 4, 4)),
        ProblemError,
        r"got shape \(2, 2, 4, 4\).*reshape it to a stack",
    ),
    "one out for a stack": (
        lambda: checked(half(2, 4, 4), half(2, 4, 4), out=half(4, 4)),
        ProblemError,
        "out must have the product's shape 2×4×4, got 4×4",
    ),
    "out's stack shares memory": (
        lambda: checked(half(2, 4, 4), half(2, 4, 4), out=wide(2, 4, 4)),
        ProblemError,
        "out must have distinct elements",
    ),
    "K differs": (lambda: checked(half(3, 4), half(5, 6)), ProblemError, "got a 3×4 and b 5×6"),
    "f32's result": (
        lambda: checked(single(4, 4), single(4, 4), dtype="f16"),
        DtypeError,
        "the result of f32 inputs must be f32, got f16",
    ),
    "precision": (
        lambda: checked(single(4, 4), single(4, 4), precision="fast"),
        DtypeError,
        "precision must be one of 'ieee', 'tf32', 'tf32x3', got 'fast'",
    ),
    "tf32's result": (
        lambda: checked(single(4, 4), single(4, 4), dtype="f16", precision="tf32"),
        DtypeError,
        "the result of f32 inputs must be f32, got f16",
    ),
    "f32 and f16": (
        lambda: checked(single(4, 4), half(4, 4), precision="tf32"),
        DtypeError,
        r"b must be f32 \(as tf32\) if a is f32, got f16",
    ),
    "e4m3 and s8": (
        lambda: checked(half(4, 4).astype(ml_dtypes.float8_e4m3fn), np.zeros((4, 4), np.int8)),
        DtypeError,
        "b must be e4m3 or e5m2 if a is e4m3, got s8",
    ),
    "a result of bytes": (
        lambda: checked(*[half(4, 4).astype(ml_dtypes.float8_e5m2)] * 2, dtype="e5m2"),
        DtypeError,
        "the result of e5m2 inputs must be bf16 or f16 or f32, got e5m2",
    ),
    "a float from integers": (
        lambda: checked(*[np.zeros((4, 4), np.uint8)] * 2, dtype="f32"),
        DtypeError,
        "the result of u8 inputs must be s32, got f32",
    ),
    "f64": (
        lambda: checked(half(4, 4), np.zeros((4, 4))),
        DtypeError,
        "b must be f16 if a is f16, got f64",
    ),
    "mixed": (
        lambda: checked(half(4, 4), half(4, 4).astype(ml_dtypes.bfloat16)),
        DtypeError,
        "b must be f16 if a is f16, got bf16",
    ),
    "result type": (
        lambda: checked(half(4, 4), half(4, 4), dtype="bf16"),
        DtypeError,
        "must be f16 or f32, got bf16",
    ),
    "out shape": (
        lambda: checked(half(3, 4), half(4, 5), out=half(5, 3)),
        ProblemError,
        "out must have the product's shape 3×5, got 5×3",
    ),
    "out type": (
        lambda: checked(half(3, 4), half(4, 5), out=single(3, 5), dtype="f16"),
        DtypeError,
        "out must have the result's type f16, got f32",
    ),
    "c type": (
        lambda: checked(half(3, 4), half(4, 5), c=single(3, 5)),
        DtypeError,
        "c must have.*got f32",
    ),
    "c shape": (
        lambda: checked(half(3, 4), half(4, 5), c=half(1, 5)),
        ProblemError,
        "c must have.*got 1×5",
    ),
    "no format": (lambda: format_name("f17"), DtypeError, "f17"),
    "no type": (lambda: format_name(object()), DtypeError, "out_dtype"),
    "alpha's type": (
        lambda: scale_factor("alpha", "2", "cpu"),
        ProblemError,
        "alpha must be a real number, got '2'",
    ),
    "alpha's size": (lambda: scale_factor("alpha", half(2), "cpu"), ProblemError, "one element"),
    "alpha's range": (
        lambda: scale_factor("alpha", 1e60, "cpu"),
        ProblemError,
        "in the range of f32",
    ),
    "alpha's bits": (
        lambda: scale_factor("alpha", 10**5000, "cpu"),
        ProblemError,
        "f32.*int of 16610 bits",
    ),
    "alpha's fraction": (
        lambda: scale_factor("alpha", Fraction(10**400), "cpu"),
        ProblemError,
        "in the range of f32",
    ),
    "NumPy's range": (
        lambda: scale_factor("alpha", np.float64(1e300), "cpu"),
        ProblemError,
        "in the range of f32",
    ),
    "f64's range": (
        lambda: scale_factor("alpha", 10**400, "cpu", "f64"),
        ProblemError,
        "f64.*int of 1329 bits",
    ),
    "NumPy's complex": (
        lambda: scale_factor("beta", np.complex128(2 + 1j), "cpu"),
        ProblemError,
        "a real number",
    ),
    "NumPy's text": (
        lambda: scale_factor("beta", np.str_("3"), "cpu"),
        ProblemError,
        "a real number",
    ),
    "NumPy's time": (
        lambda: scale_factor("beta", np.timedelta64(3, "s"), "cpu"),
        ProblemError,
        "a real number",
    ),
    "M's size": (lambda: checked(wide(2**31, 4), half(4, 4)), ProblemError, "M must be"),
    "N's size": (
        lambda: checked(half(4, 4), wide(4, 2**31), out=wide(2**31, 4).T),
        ProblemError,
        "N must be .* got 2147483648",
    ),
    "complex": (lambda: scale_factor("beta", 1j, "cpu"), ProblemError, "a real number"),
    "device": (lambda: device("tpu"), DeviceError, "unknown device 'tpu'"),
    "cpu": (lambda: device("cpu"), DeviceError, "'vm' is what runs on the CPU"),
    "virtual": (lambda: device("vm:A1"), DeviceError, "no virtual machine like 'A1'"),
}


@every_row(("call", "error", "words"), BAD.values(), ids=BAD)
def test_invalid_inputs(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"(?s){words}"):
        call()


def test_out_must_not_overlap_inputs() -> None:
    whole = half(8, 8)
    a, b, c = half(4, 4), half(4, 4), half(4, 4)
    for name, arrays in {
        "must not share memory with a": (whole[:4, :4], b, None),
        "must not share memory with b": (a, whole[2:6, 2:6], None),
        "must be the matrix c or share no memory": (a, b, whole[1:5, :4]),
    }.items():
        with pytest.raises(ProblemError, match=f"out {name}"):
            checked(*arrays, out=whole[:4, :4])
    checked(a, b, c, out=c)
    checked(whole[:4, :4], b, out=whole[:4, 4:])  # side by side


def test_out_must_be_writable_and_not_overlap_itself() -> None:
    frozen = half(4, 4)
    frozen.flags.writeable = False
    with pytest.raises(ProblemError, match="out must be writable"):
        checked(half(4, 4), half(4, 4), out=frozen)
    row = np.lib.stride_tricks.as_strided(half(4), (4, 4), (0, 2))
    with pytest.raises(ProblemError, match="out must have distinct elements"):
        checked(half(4, 4), half(4, 4), out=row)


def test_arrays_are_on_one_device() -> None:
    here = view(half(4, 4))
    there = here._replace(device="cuda:1")
    with pytest.raises(DeviceError, match=r"b must be on cpu.*got b on cuda:1"):
        common_device(here, there, None, None)
    assert common_device(there, there, None, there) == "cuda:1"


@pytest.mark.parametrize(
    "given", ["f32", np.float32, np.dtype("f4"), "float32", dtypes.dtype("f32"), "torch.float32"]
)
def test_a_format_by_any_name(given: Any) -> None:
    assert format_name(given) == "f32"


@pytest.mark.parametrize(
    "given", [2, 2.0, np.float16(2), ml_dtypes.bfloat16(2), np.array([[2]]), np.float64(2)]
)
def test_a_factor_by_any_number(given: Any) -> None:
    assert scale_factor("alpha", given, "cpu") == (2.0, 0)


def test_factors_are_rounded_to_f32() -> None:
    assert scale_factor("alpha", 0.1, "cpu").value == float(np.float32(0.1))
    assert scale_factor("alpha", 1e-60, "cpu").value == 0.0
    assert scale_factor("alpha", 1e-60, "cpu", "f64").value == 1e-60


def test_a_gpu_has_the_target_of_its_name() -> None:
    found = Properties(0, "NVIDIA H200", (9, 0), 132, 232448, 233472, 50 << 20, 150 << 30, 1)
    assert target_of(found) is DEVICES["H200"]
    slice_of_it = Properties(0, "NVIDIA H200 MIG 1g", (9, 0), 16, 232448, 233472, 1, 1, 1)
    assert target_of(slice_of_it).sms == 16


HINTS = {  # by the types of a and b: what fits
    (
        "int32",
        "int32",
    ): "convert a to s8 if its values fit .the accumulator is s32., or to f64, where",
    ("uint16", "uint16"): "convert a to u8 if its values fit",
    ("bool", "bool"): "convert a to u8, which holds all its values; the accumulator is s32",
    (ml_dtypes.int4, ml_dtypes.int4): "convert a to s8, which holds all its values",
    (ml_dtypes.float4_e2m1fn,) * 2: "convert a to f16, which holds all its values",
    (ml_dtypes.float8_e8m0fnu,) * 2: "convert a to f32",
    ("float16", "int32"): "convert b to f16, which can be multiplied with a",
    ("int8", "int32"): "convert b to s8, which can be multiplied with a",
    ("float16", "float32"): "convert b to f16, or a",
}


@pytest.mark.parametrize("types", HINTS, ids=str)
def test_a_hint_fits_the_type(types: tuple[Any, Any]) -> None:
    a, b = (np.zeros((4, 4)).astype(t) for t in types)
    with pytest.raises(DtypeError, match=rf"hint: {HINTS[types]}"):
        checked(a, b)


D = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (D[:], True),
        (D[None], True),  # a stack of one
        (D[None, :, None], True),
        (D.view(np.int32), True),
        (D[:, ::-1][:, ::-1], True),
        (D.T, False),
        (D[1:], False),
        (D[:, :3], False),
        (D[0], False),
        (D.reshape(4, 3), False),
        (D.view(np.float16), False),
        (D.copy(), False),
        (np.broadcast_to(D, (2, 3, 4)), False),
    ],
)
def test_the_same_elements(other: Any, same: bool) -> None:
    assert same_elements(view(D), view(other)) is same_elements(view(other), view(D)) is same


def test_strides_of_one_element_do_not_matter() -> None:
    one, other = D[:1], np.lib.stride_tricks.as_strided(D, (1, 4), (400, 4))
    assert same_elements(view(one), view(other))
    check_output_overlap(view(half(1, 4)), view(half(4, 4)), view(one), view(other))
