"""``linear``: the layer in f64 within the rounding of its type; shapes, outputs, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.errors import EpilogueError, ProblemError

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(3)


def random(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / 4).astype(np.float16)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def close(got: Any, expected: Any) -> bool:
    return bool(np.allclose(wide(got), expected, rtol=2e-3, atol=1e-3))


@pytest.mark.parametrize("lead", [(70,), (2, 35), ()])
def test_bias_activation_and_residual(lead: tuple[int, ...]) -> None:
    x, w, bias, residual = random(*lead, 64), random(48, 64), random(48), random(*lead, 48)
    y = tilewright.linear(x, w, bias, activation="gelu_tanh", residual=residual, device="vm")
    expected = gelu(wide(x) @ wide(w).T + wide(bias)) + wide(residual)
    assert y.shape == (*lead, 48) and y.dtype == np.float16
    assert close(y, expected)


def test_swiglu_of_two_weights_or_of_halves_of_one() -> None:
    x, w = random(70, 64), random(2 * 40, 64)
    y = tilewright.linear(x, w[40:], gate=w[:40], activation="silu", device="vm")
    expected = silu(wide(x) @ wide(w[:40]).T) * (wide(x) @ wide(w[40:]).T)
    assert close(y, expected)
    apart = tilewright.linear(
        x, w[40:].copy(), gate=w[:40].copy(), activation=tilewright.silu, device="vm"
    )
    assert np.array_equal(y, apart)


def test_saved_values() -> None:
    x, w, g, bias = random(3, 20, 64), random(40, 64), random(40, 64), random(40)
    layer = tilewright.linear(
        x, w, bias, gate=g, activation="silu", save=("preactivation", "gate"), device="vm"
    )
    assert list(layer) == ["y", "preactivation", "gate"]
    assert close(layer["gate"], wide(x) @ wide(g).T)
    assert close(layer["preactivation"], wide(x) @ wide(w).T + wide(bias))


def test_the_output_goes_where_out_is() -> None:
    x, w = random(2, 20, 64), random(40, 64)
    out = np.zeros((2, 20, 40), np.float16)
    assert tilewright.linear(x, w, out=out, device="vm") is out
    assert np.array_equal(out, tilewright.linear(x, w, device="vm"))
    rows = np.zeros((2, 40, 40), np.float16)[:, ::2]  # is not one matrix
    with pytest.raises(ProblemError, match="out must be a view of a matrix"):
        tilewright.linear(x[:, :19], w, out=rows[:, 1:], device="vm")


ERRORS = [
    ({"activation": "relu7"}, EpilogueError, "must be a function or one of relu"),
    ({"save": ("gate",)}, EpilogueError, "save must name some of preactivation, got 'gate'"),
    ({"save": "gate"}, EpilogueError, "save must be a tuple of names, got 'gate'"),
    ({"save": None}, EpilogueError, "save must be a tuple of names, got None"),
    ({"bias": np.zeros(5, np.float16)}, ProblemError, r"bias must have shape \(40,\), got \(5,\)"),
    ({"residual": np.zeros((5, 40))}, ProblemError, "residual must have shape"),
    ({"gate": np.zeros((3, 64))}, ProblemError, "gate must have shape"),
    ({"w": np.zeros(64)}, ProblemError, "w must be 2-D"),
    ({"w": np.zeros((40, 32))}, ProblemError, r"w must have shape \(40, 64\), got \(40, 32\)"),
    ({"out": np.zeros((5, 40))}, ProblemError, "out must have shape"),
    ({"x": 3.0}, ProblemError, "x must be an array with shape, reshape and T, got float"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), ERRORS)
def test_errors(arguments: dict[str, Any], error: Any, text: str) -> None:
    given = {"x": random(70, 64), "w": random(40, 64), "device": "vm"} | arguments
    with pytest.raises(error, match=text):
        tilewright.linear(**given)
