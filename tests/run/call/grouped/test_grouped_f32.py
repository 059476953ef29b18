"""``grouped_matmul`` of f32 by three products of tf32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from tilewright.errors import DtypeError

pytestmark = pytest.mark.vm
RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape).astype(np.float32) for shape in ((50, 96), (3, 40, 96)))
ENDS = np.array([10, 10, 45], np.int32)
POISON = 7


def _check(d: Any, x: Any) -> None:
    """Rows 0 to 9 and 10 to 44 are products of more than 18 bits, the others are unwritten."""
    for rows, w in ((slice(0, 10), W[0]), (slice(10, 45), W[2])):
        a, b = x[rows].astype(float), w.T.astype(float)
        assert (np.abs(d[rows] - a @ b) <= 2**-19 * (np.abs(a) @ np.abs(b))).all()
    assert (d[45:] == POISON).all()


def test_rows_of_groups() -> None:
    out = np.full((50, 40), POISON, np.float32)
    given: dict[str, Any] = {"offsets": ENDS, "precision": "tf32x3"}
    tilewright.grouped_matmul(X, W.transpose(0, 2, 1), out=out, device="vm", **given)
    _check(out, X)
    gather = RNG.integers(0, 50, 50)
    out[:] = POISON
    tilewright.grouped_matmul(X, W.transpose(0, 2, 1), gather=gather, out=out, device="vm", **given)
    _check(out, X[gather])
    with registered():
        b, out = Resident.of(W).cut((3, 96, 40), (40 * 96, 1, 96)), Resident.of(out * 0 + POISON)
        given["offsets"] = Resident.of(ENDS)
        tilewright.grouped_matmul(Resident.of(X), b, out=out, **given)
        _check(out.numpy(), X)


def test_matrices_of_fixed_capacity() -> None:
    x = RNG.standard_normal((3, 8, 96)).astype(np.float32)
    counts = [3, 0, 8]
    y = tilewright.grouped_matmul(
        x, W.transpose(0, 2, 1), counts=counts, precision="tf32x3", device="vm"
    )
    for g, count in enumerate(counts):
        exact = x[g, :count].astype(float) @ W[g].T.astype(float)
        np.testing.assert_allclose(y[g, :count], exact, atol=2e-4)


def test_without_a_precision_the_error_names_two() -> None:
    with pytest.raises(DtypeError, match="precision='tf32x3', or 'tf32'"):
        tilewright.grouped_matmul(X, W.transpose(0, 2, 1), offsets=ENDS, device="vm")
