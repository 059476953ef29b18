"""Backward functions: finite differences of the forward formulas in f64, limits, pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from epilogue_functions import Array, gelu_tanh, normal, sigmoid, softplus
from tilewright.gemm.epilogue.functions import activations, gradients

Formula = Callable[[Array], Array]
Gradient = Callable[[Array, Array], Array]
GRADIENTS: list[tuple[str, Gradient, Formula, tuple[float, ...], float]] = [
    # name, gradient, the forward formula in f64, where it has a kink, the error
    ("relu", gradients.drelu, lambda x: np.maximum(x, 0), (0,), 1e-7),
    ("relu6", gradients.drelu6, lambda x: np.clip(x, 0, 6), (0, 6), 1e-7),
    ("leaky_relu", gradients.dleaky_relu, lambda x: np.where(x > 0, x, x * 0.01), (0,), 1e-7),
    ("hardsigmoid", gradients.dhardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, (-3, 3), 1e-7),
    ("hardswish", gradients.dhardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6, (-3, 3), 2e-7),
    ("sigmoid", gradients.dsigmoid, sigmoid, (), 1e-7),
    ("tanh", gradients.dtanh, np.tanh, (), 4e-7),
    ("softplus", gradients.dsoftplus, softplus, (), 2e-7),
    ("silu", gradients.dsilu, lambda x: x * sigmoid(x), (), 2**-19),
    ("gelu", gradients.dgelu, lambda x: x * normal(x), (), 2**-20),
    ("gelu tanh", partial(gradients.dgelu, approximate="tanh"), gelu_tanh, (), 2**-18),
]
rows = pytest.mark.parametrize(
    ("gradient", "formula", "kinks", "error"), [row[1:] for row in GRADIENTS],
    ids=[row[0] for row in GRADIENTS],
)  # fmt: skip
STEP = (
    1e-5  # of central differences: an error of 1e-10 for the third derivative, 1e-11 for rounding
)


@rows
def test_a_gradient_is_the_forward_functions_finite_difference(
    gradient: Gradient, formula: Formula, kinks: tuple[float, ...], error: float
) -> None:
    x = np.linspace(-20, 20, 4001).astype(np.float32)
    for kink in kinks:
        x = x[abs(x - kink) > 2 * STEP]
    wide = x.astype(np.float64)
    slope = (formula(wide + STEP) - formula(wide - STEP)) / (2 * STEP)
    dy = np.float32(1)
    np.testing.assert_allclose(gradient(dy, x), slope, rtol=0, atol=error + 1e-9)
    scaled = gradient(np.float32(-4), x)
    np.testing.assert_allclose(scaled, -4 * slope, rtol=0, atol=4 * error + 4e-9)


@rows
def test_a_gradient_has_limits_and_keeps_nans(
    gradient: Gradient, formula: Formula, kinks: tuple[float, ...], error: float
) -> None:
    x = np.array([-np.inf, -3e38, 3e38, np.inf, np.nan], np.float32)
    wide = np.array([-100.0, -100, 100, 100, 0])
    slope = (formula(wide + STEP) - formula(wide - STEP)) / (2 * STEP)
    got = gradient(np.float32(1), x)
    np.testing.assert_allclose(got[:4], slope[:4], rtol=0, atol=1e-8)
    assert np.isnan(gradient(np.float32(np.nan), np.float32(1)))


GATED = [
    ("swiglu", gradients.dswiglu, gradients.dsilu, activations.silu),
    ("geglu", gradients.dgeglu, gradients.dgelu, activations.gelu),
    ("geglu tanh", partial(gradients.dgeglu, approximate="tanh"),
     partial(gradients.dgelu, approximate="tanh"), partial(activations.gelu, approximate="tanh")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gated", "slope", "activation"), [row[1:] for row in GATED], ids=[row[0] for row in GATED]
)
def test_gated_gradients_are_those_of_their_factors(
    gated: Callable[..., tuple[Array, Array]], slope: Gradient, activation: Formula
) -> None:
    rng = np.random.default_rng(3)
    dy, gate, up = (rng.standard_normal((3, 1000)) * 4).astype(np.float32)
    dgate, dup = gated(dy, gate, up)
    np.testing.assert_array_equal(dup, dy * activation(gate))
    np.testing.assert_allclose(dgate, dy * up * slope(np.float32(1), gate), rtol=1e-6)


def test_gradients_of_the_kinks_are_those_of_torch() -> None:
    one = np.float32(1)
    x = np.array([0, -3, 3, 6], np.float32)
    assert gradients.drelu(one, x).tolist() == [0, 0, 1, 1]
    assert gradients.drelu6(one, x).tolist() == [0, 0, 1, 0]
    assert gradients.dhardsigmoid(one, x).tolist()[1:] == [0, 0, 0]
    assert gradients.dhardswish(one, x).tolist() == [0.5, 0, 1, 1]


def test_dgelu_names_its_approximations() -> None:
    with pytest.raises(ValueError, match="approximate must be none or tanh, got 'fast_tanh'"):
        gradients.dgelu(1.0, 1.0, "fast_tanh")
