"""Calls take the arrays of CuPy and Numba, and those with an interface alone, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from array_calls import CALLS, X, strided
from references.moe_layers import layer

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


class Interface:
    """An array seen only by ``__cuda_array_interface__``."""

    def __init__(self, array: Any) -> None:
        self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__


def expected(name: str) -> Any:
    return np.asarray(CALLS[name][0](lambda x: x, device="cuda"))


@pytest.mark.parametrize("name", CALLS)
def test_cupy(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    call, shape = CALLS[name]
    found = call(strided(cupy.asarray))
    assert isinstance(found, cupy.ndarray) and found.dtype == np.float16
    out = cupy.full(shape, 9, "float16")
    assert call(strided(cupy.asarray), out=out) is out
    for result in (found, out):
        assert np.array_equal(cupy.asnumpy(result), expected(name))


@pytest.mark.parametrize("name", CALLS)
def test_the_interface_alone(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    call, shape = CALLS[name]
    out = cupy.full(shape, 9, "float16")
    if name in ("linear", "packed", "sparse"):
        pytest.skip("it needs arrays with shapes")
    call(lambda x: Interface(strided(cupy.asarray)(x)), out=Interface(out))
    assert np.array_equal(cupy.asnumpy(out), expected(name))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:.*Grid size")  # of numba's own kernels
def test_numba(name: str) -> None:
    numba = pytest.importorskip("numba.cuda")
    call, shape = CALLS[name]
    out = numba.to_device(np.full(shape, 9, np.float16))
    call(strided(numba.to_device), out=out)
    found = call(strided(numba.to_device))
    assert type(found) is type(out)
    for result in (out, found):
        assert np.array_equal(result.copy_to_host(), expected(name))


def test_cupy_arrays_of_experts_and_of_scales() -> None:
    cupy = pytest.importorskip("cupy")
    arrays = layer(tokens=20, hidden=64, intermediate=64, experts=5, choices=2)
    arrays = tuple(a.astype(np.float16) if a.dtype.itemsize == 2 else a for a in arrays)
    found = tilewright.moe(*map(cupy.asarray, arrays))
    assert isinstance(found, cupy.ndarray)
    assert np.array_equal(cupy.asnumpy(found), tilewright.moe(*arrays, device="cuda"))
    one, two = (tilewright.quantize(to(X), "s8", "row") for to in (cupy.asarray, lambda x: x))
    assert np.array_equal(cupy.asnumpy(one.data), two.data)
    assert np.array_equal(cupy.asnumpy(one.scales), two.scales)
