"""Kernels on rows against f64: lengths, types, strides, arrays of other libraries, errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from error_messages import raises_message
from rows import every_row
from tilewright import kernels
from tilewright.errors import DtypeError, ProblemError, TilewrightError

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]
BF16 = ml_dtypes.bfloat16
SHAPES = [
    ((3, 2, 100), np.float32), ((5, 77), np.float16), ((2, 1), BF16), ((3, 8192), BF16),
    ((2, 65536), np.float32),
]  # fmt: skip
UNITS = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}  # errors, relative to the row's max


def random(shape: tuple[int, ...], type_: Any, seed: int = 0) -> Array:
    return (2 * np.random.default_rng(seed).standard_normal(shape)).astype(type_)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def rms_norm(x: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def layer_norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def agree(got: Array, expected: Array, type_: Any) -> None:
    assert got.dtype == type_ and got.shape == expected.shape
    error = abs(got.astype(np.float64) - expected).max() / abs(expected).max()
    assert error < UNITS[np.dtype(type_).name]


@every_row(("shape", "type_"), SHAPES, parts=2)
def test_rows_of_all_lengths_and_types(shape: tuple[int, ...], type_: Any) -> None:
    x = random(shape, type_)
    weight, bias = random(shape[-1:], np.float32, 1), random(shape[-1:], type_, 2)
    wide, w, b = (a.astype(np.float64) for a in (x, weight, bias))
    agree(kernels.softmax(x), softmax(wide), type_)
    agree(kernels.rms_norm(x, weight), rms_norm(wide) * w, type_)
    agree(kernels.layer_norm(x, weight, bias), layer_norm(wide) * w + b, type_)


@every_row(
    "view",
    [
        lambda x: x[::2, ::3],
        lambda x: x.T,
        lambda x: x[:, 1:],
        lambda x: x[::-1],
        lambda x: x.reshape(4, 3, 40)[:, :2],
    ],
)
def test_any_strides(view: Callable[[Array], Array]) -> None:
    x = view(random((12, 40), np.float32))
    agree(kernels.softmax(x), softmax(x.astype(np.float64)), np.float32)


def test_a_long_row_at_odd_addresses() -> None:
    x = random((2, 65537), np.float16)
    agree(kernels.softmax(x), softmax(x.astype(np.float64)), np.float16)


def test_results_in_place_and_without_rows() -> None:
    x = random((4, 64), np.float32)
    expected = rms_norm(x.astype(np.float64))
    assert kernels.rms_norm(x, out=x) is x
    agree(x, expected, np.float32)
    assert kernels.softmax(np.empty((0, 5), np.float32)).shape == (0, 5)
    assert kernels.layer_norm(np.empty((5, 0), np.float32)).shape == (5, 0)


def test_vectors_that_are_views_of_x() -> None:
    x = random((4, 64), np.float32)
    wide = x.astype(np.float64)
    agree(kernels.rms_norm(x, x[1]), rms_norm(wide) * wide[1], np.float32)


def test_special_values() -> None:
    x = np.array([[np.inf, 1], [np.nan, 1], [-np.inf, 1], [1e30, -1e30]], np.float32)
    y = kernels.softmax(x)
    assert np.isnan(y[:2]).all() and y[2:].tolist() == [[0, 1], [1, 0]]


@every_row(
    ("call", "kind", "message"),
    [
        (lambda x: kernels.softmax(x.astype(np.float64)), DtypeError, "got f64"),
        (
            lambda x: kernels.softmax(np.zeros((), np.float32)),
            ProblemError,
            "at least one dimension",
        ),
        (lambda x: kernels.softmax(x, out=x.T), ProblemError, "out must have shape (4, 6)"),
        (lambda x: kernels.softmax(x[:3, :3], out=x[:3, :3]), ProblemError, "contiguous"),
        (lambda x: kernels.rms_norm(x, x[0, :5]), ProblemError, "weight must have shape (6,)"),
        (lambda x: kernels.softmax([1.0]), ProblemError, "expected an array"),
    ],
)
def test_wrong_arguments(
    call: Callable[[Array], Any], kind: type[TilewrightError], message: str
) -> None:
    with raises_message(kind, re.escape(message)):
        call(np.zeros((4, 6), np.float32))
