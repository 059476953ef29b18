"""The kernels that are not on whole rows alone: reductions, top-k, rotary embedding, transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from error_messages import raises_message
from rows import every_row
from tilewright import kernels
from tilewright.errors import ProblemError
from tilewright.kernels import row_reductions

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]
BF16 = ml_dtypes.bfloat16
RANDOM = np.random.default_rng(0)


@every_row("op", ["sum", "mean", "max", "min"])
def test_reductions_along_every_axis(op: str) -> None:
    x = RANDOM.standard_normal((3, 70, 40)).astype(np.float32)
    for axis in (-1, 0, 1):
        expected = getattr(x.astype(np.float64), op)(axis=axis)
        got = kernels.reduce(x, op, axis)
        assert got.shape == expected.shape and abs(got - expected).max() < 2e-5
    assert np.isnan(kernels.reduce(np.array([[1, np.nan]], np.float32), op)).all()


def test_a_grid_takes_any_number_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only x of a grid may be larger than 65535."""
    grids: list[tuple[int, int, int]] = []
    monkeypatch.setattr(row_reductions, "launch", lambda _, grid, *__, **___: grids.append(grid))
    kernels.reduce(np.zeros((70000, 2, 40), np.float32), axis=1)
    assert [grid[1:] for grid in grids] == [(1, 1)]


def test_a_reduction_rounds_once() -> None:
    x = RANDOM.standard_normal((2, 300)).astype(BF16)
    expected = x.astype(np.float64).sum(-1).astype(np.float32).astype(BF16)
    np.testing.assert_array_equal(kernels.reduce(x), expected)
    wide = np.empty(2, np.float32)
    assert abs(kernels.reduce(x, out=wide) - x.astype(np.float64).sum(-1)).max() < 1e-5


@every_row(("columns", "type_"), [(40, np.float32), (1001, np.float16), (40000, BF16)])
def test_top_k_in_order(columns: int, type_: Any) -> None:
    """Equal elements in the order of their indices; integers have many."""
    x = RANDOM.integers(-99, 99, (3, columns)).astype(type_)
    values, indices = kernels.top_k(x, 5)
    expected = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[:, :5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, -1))


def test_top_k_of_special_values() -> None:
    x = np.array([[np.nan, 0.0, -np.inf, np.nan, np.inf, -0.0]], np.float32)
    values, indices = kernels.top_k(x, 6)
    assert indices.tolist() == [[0, 3, 4, 1, 5, 2]]
    np.testing.assert_array_equal(values, x[:, indices[0]])


@every_row("interleaved", [False, True])
@every_row(("dim", "type_"), [(64, BF16), (6, np.float32)])
def test_rotary_embedding(interleaved: bool, dim: int, type_: Any) -> None:
    x = RANDOM.standard_normal((2, 7, 3, dim)).astype(type_)
    angles = RANDOM.standard_normal((7, dim // 2)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    got = kernels.rotary_embedding(x, cos, sin, interleaved=interleaved)
    wide, half = x.astype(np.float64), dim // 2
    a, b = (wide[..., ::2], wide[..., 1::2]) if interleaved else np.split(wide, [half], -1)
    c, s = cos[:, None], sin[:, None]
    pair = a * c - b * s, b * c + a * s
    expected = np.stack(pair, -1).reshape(x.shape) if interleaved else np.concatenate(pair, -1)
    assert got.dtype == type_
    assert abs(got.astype(np.float64) - expected).max() < (2e-2 if type_ is BF16 else 1e-6)


@every_row("type_", [np.float64, BF16, np.uint8])
def test_transpose(type_: Any) -> None:
    for x in (RANDOM.integers(0, 99, (2, 65, 40)), RANDOM.integers(0, 99, (66, 71))[::2, 1:]):
        moved = x.astype(type_)
        np.testing.assert_array_equal(kernels.transpose(moved), np.swapaxes(moved, -1, -2))


@every_row(
    ("call", "message"),
    [
        (lambda x: kernels.reduce(x, "prod"), "op must be sum, mean"),
        (lambda x: kernels.reduce(x, axis=2), "axis must be from -2 to 1, got 2"),
        (lambda x: kernels.reduce(x[:, :0]), "must have elements along axis 1"),
        (lambda x: kernels.reduce(x, axis=0.5), "axis must be from -2 to 1, got 0.5"),
        (lambda x: kernels.top_k(x, 7), "count must be from 1 to 6, got 7"),
        (lambda x: kernels.top_k(x, 2.5), "count must be from 1 to 6, got 2.5"),
        (lambda x: kernels.rotary_embedding(x, x, x), "x must have shape"),
        (lambda x: kernels.rotary_embedding(x[None], x, x), "cos must be contiguous, of shape"),
        (lambda x: kernels.transpose(x[0]), "two or three dimensions"),
        (lambda x: kernels.transpose(x, out=x), "out must be contiguous, f32 of shape"),
        (lambda x: kernels.transpose(x[:, :4], out=x[:, :4]), "out must be contiguous"),
        (
            lambda x: kernels.transpose(
                x.reshape(2, 12)[:, :2], out=x.reshape(-1)[:4].reshape(2, 2)
            ),
            "out must be an array apart from x",
        ),
        (lambda x: kernels.softmax(x[:, ::-1], out=x), "x itself or an array that shares no"),
    ],
)
def test_wrong_arguments(call: Callable[[Array], Any], message: str) -> None:
    with raises_message(ProblemError, message):
        call(np.zeros((4, 6), np.float32))
