"""Arrays that are known by their interface alone: calls read and write them in place and allocate
none. A stand-in in the virtual machine's memory takes the place of one on a GPU.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright
from array_calls import CALLS, B, X, strided
from gemm_cases.resident import KIND, Resident
from tilewright.errors import DtypeError, ProblemError
from tilewright.run.arrays import array_view

pytestmark = pytest.mark.vm


WITH_METHODS = {"linear", "packed", "sparse"}


class Bare:
    """An array without a shape, a type or methods."""

    def __init__(self, resident: Resident) -> None:
        self.resident = resident

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("the virtual machine's memory is its own")


@pytest.fixture(autouse=True)
def known(monkeypatch: Any) -> None:
    kind = replace(
        KIND, view=lambda x: KIND.view(x.resident)._replace(owner=x),
        empty=array_view.FOREIGN.empty,
    )  # fmt: skip
    monkeypatch.setitem(array_view._BY_TYPE, Bare, kind)


@pytest.mark.parametrize("name", sorted({*CALLS} - WITH_METHODS))
def test_a_call_needs_no_more_than_memory(name: str) -> None:
    call, shape = CALLS[name]
    of = strided(Resident.of)
    out = Resident.of(np.full(shape, 9, np.float16))
    call(lambda x: Bare(of(x)), out=Bare(out))
    assert np.array_equal(out.numpy(), np.asarray(call(lambda x: x, device="vm")))


@pytest.mark.parametrize("name", sorted(WITH_METHODS))
def test_what_needs_the_methods_of_an_array_says_so(name: str) -> None:
    with pytest.raises(ProblemError, match=r"(x|data|values) must be an array.*, got Bare"):
        CALLS[name][0](lambda x: Bare(Resident.of(x)))


def test_a_result_must_be_given() -> None:
    with pytest.raises(ProblemError, match=r"can't allocate a Bare for the result(.|\n)*out="):
        tilewright.matmul(Bare(Resident.of(X)), Bare(Resident.of(B)))


def test_numba_allocates_arrays_of_its_own(monkeypatch: Any) -> None:
    """Numba's modules as they are named; its arrays have the interface and no DLPack."""

    class DeviceNDArray:
        def __init__(self, shape: Any, dtype: Any) -> None:
            dtype = np.dtype(dtype)
            if dtype.kind not in "iuf":
                raise NotImplementedError(f"{dtype} cannot be represented as a Numba type")
            self.shape, self.dtype = shape, dtype
            self.__cuda_array_interface__ = {
                "shape": shape, "typestr": dtype.str, "data": (0x7000, False), "version": 3,
            }  # fmt: skip

    numba, arrays = ModuleType("numba.cuda"), ModuleType("numba.cuda.cudadrv.devicearray")
    context = type("Gpu", (), {"__enter__": lambda s: s, "__exit__": lambda *_: None})()
    vars(numba).update(device_array=DeviceNDArray, gpus=[context])
    vars(arrays).update(DeviceNDArrayBase=DeviceNDArray)
    for module in (numba, arrays):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(array_view.cuda, "ordinal_of", lambda address: 0)
    array = DeviceNDArray((2, 3), np.float16)
    assert array_view.view(array)[1:6] == ((2, 3), (3, 1), "f16", "cuda:0", False)
    made = array_view.empty_like_kind(array, (4,), "f32")
    assert type(made) is DeviceNDArray and (made.shape, made.dtype) == ((4,), np.float32)
    with pytest.raises(DtypeError, match="Numba does not support bf16"):
        array_view.empty_like_kind(array, (4,), "bf16")
