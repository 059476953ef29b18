"""``moe``: the result of each token's experts, choices that are no expert, typed errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from references.moe_layers import layer, reference
from tilewright.errors import DtypeError, ProblemError

pytestmark = pytest.mark.vm


def test_a_token_gets_the_weighted_sum_of_its_experts() -> None:
    arguments = layer(tokens=20, hidden=64, intermediate=64, experts=5, choices=2)
    found = tilewright.moe(*arguments, device="vm")
    expected = reference(*arguments)
    assert np.abs(found.astype(np.float64) - expected).max() < 2**-6 * np.abs(expected).max()
    assert (found[3] == 0).all()  # no expert


@pytest.mark.parametrize("form", ["s4", "sparse"])
def test_weights_may_be_packed_or_sparse(form: str) -> None:
    x, *weights, indices, router = layer(20, hidden=128, intermediate=128, experts=3, choices=2)
    if form == "sparse":
        stored = [tilewright.compress_24(w, prune="magnitude") for w in weights]
        elements = [w.decompress() for w in stored]
    else:
        stored = [tilewright.quantize_weight(w.astype("f4"), form, group=64) for w in weights]
        elements = [w.dequantize() for w in stored]
    found = tilewright.moe(x, *stored, indices, router, device="vm")
    expected = reference(x, *elements, indices, router)
    assert np.abs(found.astype(np.float64) - expected).max() < 2**-6 * np.abs(expected).max()


X, W = np.zeros((2, 16), np.float16), np.zeros((3, 8, 16), np.float16)
INDICES = np.zeros((2, 1), np.int32)
PAIRS = np.zeros((2, 2), np.int32)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"w_gate": W[:2]}, ProblemError, "w_gate must have shape"),
        ({"weights": np.zeros((2, 2), "f4")}, ProblemError, "weights must have shape"),
        ({"indices": INDICES.astype("f4")}, DtypeError, "indices must be one of s32, s64, got f32"),
        ({"x": X[:, ::2]}, ProblemError, "w_down|w_up must have shape"),
        ({"indices": PAIRS.T, "weights": PAIRS.T}, ProblemError, "indices must be contiguous"),
        ({"indices": PAIRS, "weights": PAIRS.T}, ProblemError, "weights must be contiguous"),
        ({"activation": ["relu"]}, ProblemError, "activation must be one of relu"),
        ({"activation": "none"}, ProblemError, "activation must be one of relu"),
    ],
)
def test_wrong_arguments_are_typed_errors(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {
        "x": X, "w_up": W, "w_gate": W, "w_down": W.swapaxes(1, 2), "indices": INDICES,
        "weights": np.zeros((2, 1), np.float32),
    }  # fmt: skip
    with pytest.raises(error, match=message):
        tilewright.moe(**given | changes, device="vm")
