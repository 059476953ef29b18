"""3xTF32: the split on the host and on the device, and the error of the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

import tilewright
from gemm_cases.resident import Resident, registered
from rows import every_row
from tilewright.errors import ProblemError
from tilewright.run.relayout.tf32x3 import TF32_BITS, split_on_host

pytestmark = pytest.mark.vm

SPECIAL = [0.0, -0.0, 1e-45, 1e-38, 1.0, 3.4e38, np.inf, -np.inf, np.nan]


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def matrices(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@given(arrays(np.uint32, (2, 9)))
def test_high_and_low_add_up_to_the_number(bits: Any) -> None:
    """Exactly, where it is finite; high parts have no bits that tf32 drops."""
    high, again, low = np.split(split_on_host("a", bits).view(np.float32), 3, axis=1)
    x = bits.view(np.float32)
    finite = np.isfinite(x)
    assert (high.view(np.uint32) == again.view(np.uint32)).all()
    assert (high[finite] + low[finite] == x[finite]).all()
    assert not (high[finite].view(np.uint32) & ~np.uint32(TF32_BITS)).any()
    assert np.array_equal(np.isnan(high), np.isnan(x)) and np.isfinite(low).all()
    for place, part in enumerate((high, low, high)):
        assert np.array_equal(
            split_on_host("b", bits)[:, 9 * place : 9 * place + 9], part.view("u4")
        )


@every_row(("m", "n", "k"), [(70, 33, 41), (1, 200, 300), (128, 64, 1), (8, 8, 0)], parts=3)
@every_row("layout", ["tn", "nt"])
def test_the_error_of_a_product(m: int, n: int, k: int, layout: str) -> None:
    a, b = matrices((m, k), (k, n))
    orders = ["C" if letter == "t" else "F" for letter in layout]
    a, b = (np.array(x, order=order) for x, order in zip((a, b), orders, strict=True))
    exact, size = a.astype(float) @ b, np.abs(a).astype(float) @ np.abs(b)
    d = tilewright.matmul(a, b, precision="tf32x3", device="vm")
    assert (np.abs(d - exact) <= 4e-6 * size).all()


def test_the_split_on_the_device() -> None:
    """To the same bits as on the host: strides, stacks, special values."""
    a, b = matrices((3, 30, 50), (3, 50, 20))
    a[0, :9, 0] = SPECIAL
    want = tilewright.matmul(a, b, precision="tf32x3", device="vm")
    given = [Resident.of(x) for x in (a, b)]
    got = tilewright.matmul(*given, precision="tf32x3").numpy()
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
    turned = [Resident.of(np.ascontiguousarray(x[1].T)).T for x in (a, b)]
    got = tilewright.matmul(*turned, precision="tf32x3").numpy()
    assert np.array_equal(got.view(np.uint32), want[1].view(np.uint32))


def test_the_limit_of_k() -> None:
    a = np.broadcast_to(np.float32(0), (1, 2**30))
    with pytest.raises(ProblemError, match=r"K must be less than 2\^31 / 3.*got 1073741824"):
        tilewright.matmul(a, a.T, precision="tf32x3", device="vm")
