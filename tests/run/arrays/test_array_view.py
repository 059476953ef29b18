"""Array adapters: what is said of an array's memory is what lies there, for any library."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows import every_row
from tilewright import dtypes
from tilewright.errors import DeviceError, DtypeError, MissingPackage, ProblemError
from tilewright.run.arrays import array_view, dlpack
from tilewright.run.arrays.array_view import ArrayView, view
from tilewright.run.arrays.memory_overlap import overlap, overlaps_itself

NAMES = ("f16", "bf16", "f32", "f64", "s8", "u8", "s32", "e4m3", "e5m2")


def read_through(a: ArrayView) -> np.ndarray[Any, Any]:
    """The array that a view describes, gathered element by element from memory."""
    out = np.empty(a.shape, dtypes.dtype(a.dtype).numpy)
    for index in np.ndindex(a.shape):
        offset = sum(i * s for i, s in zip(index, a.strides, strict=True)) * a.itemsize
        raw = ctypes.string_at(a.address + offset, a.itemsize)
        out[index] = np.frombuffer(raw, out.dtype)[0]
    return out


def numbers(shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtypes.dtype(name).numpy)


CUTS = {
    "whole": lambda a: a,
    "transposed": lambda a: a.T,
    "columns": lambda a: a[:, 1:3],
    "steps": lambda a: a[::2, ::-1],
    "vector": lambda a: a[1],
    "broadcast": lambda a: np.broadcast_to(a[0], (3, a.shape[1])),
    "empty": lambda a: a[:0],
}


@every_row("cut", CUTS.values(), ids=CUTS)
@every_row("name", NAMES)
def test_a_numpy_view_addresses_the_elements(name: str, cut: Any) -> None:
    a = cut(numbers((4, 5), name))
    seen = view(a)
    assert (seen.dtype, seen.device, seen.shape) == (name, "cpu", a.shape)
    assert seen.readonly is not a.flags.writeable
    assert np.array_equal(read_through(seen), a)


@pytest.mark.parametrize(
    "bad", [np.zeros(3, ">f2"), np.zeros(3, complex), np.zeros(3, object), np.array(["a"])]
)
def test_unsupported_numpy_types(bad: Any) -> None:
    with pytest.raises(DtypeError, match=r"no number format for NumPy's|native byte order"):
        view(bad)


def test_strides_must_be_multiples_of_an_element() -> None:
    records = np.zeros(4, np.dtype([("a", "u1"), ("b", "f2")]))
    with pytest.raises(ProblemError, match="strides must be multiples of the 2 bytes"):
        view(records["b"])


@pytest.mark.parametrize("bad", [None, 3, [[1.0]], "text", np.float16(1), np.ma.zeros(3)])
def test_values_that_are_not_arrays(bad: Any) -> None:
    with pytest.raises(ProblemError, match=r"expected an array, got|must not be masked"):
        view(bad)


def test_numpy_allocates_arrays_of_its_own() -> None:
    made = array_view.empty_like_kind(np.zeros(1, np.float16), (2, 3), "bf16")
    assert made.shape == (2, 3)
    assert made.dtype == ml_dtypes.bfloat16
    with pytest.raises(DtypeError, match="tf32"):
        array_view.empty_like_kind(made, (1,), "tf32")


# --- DLPack ---


class Wrapped:
    """A NumPy array that only speaks DLPack."""

    def __init__(self, array: np.ndarray[Any, Any], versioned: bool = True) -> None:
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **how: Any) -> object:
        if not self.versioned and how:
            raise TypeError("an old library knows no max_version")
        return self.array.__dlpack__(**how)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_dlpack_view_addresses_the_elements(cut: Any, versioned: bool) -> None:
    a = cut(numbers((4, 5), "f16"))
    if not versioned and not a.flags.writeable:
        pytest.skip("NumPy exports no read-only array to an old consumer")
    seen = view(Wrapped(a, versioned))
    assert (seen.dtype, seen.device, seen.shape) == ("f16", "cpu", a.shape)
    assert seen.readonly is not a.flags.writeable
    assert np.array_equal(read_through(seen), a)


def test_a_dlpack_view_keeps_the_memory_alive() -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    base = np.ones(4, np.float16).view(Array)
    alive = weakref.ref(base)
    seen = view(Wrapped(base))
    del base
    assert alive() is not None
    del seen
    assert alive() is None


class HandMade:
    """A DLPack export with any contents, without a deleter."""

    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )

    def __init__(self, device: int = 1, code: int = 2, bits: int = 16, **more: Any) -> None:
        self.device, self.name = device, more.get("name", b"dltensor_versioned")
        shape = (ctypes.c_int64 * 2)(2, 3)
        self.held = dlpack._Versioned(major=more.get("major", 1), flags=more.get("flags", 0))
        self.held.tensor = dlpack._Tensor(
            data=0x1000, device_type=device, device_id=1, ndim=2, code=code, bits=bits, lanes=1,
            shape=shape, byte_offset=64,
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 1

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int]) -> object:
        assert (stream == 1) == (self.device == 2)  # the legacy default stream, on a GPU only
        return self.new(ctypes.addressof(self.held), self.name, None)


def test_dlpack_on_a_gpu_with_compact_strides() -> None:
    seen = view(HandMade(device=2, code=4))
    assert seen[:6] == (0x1040, (2, 3), (3, 1), "bf16", "cuda:1", False)
    assert seen.ordinal == 1
    assert view(HandMade(flags=1)).readonly


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"device": 10}, ProblemError, "got DLPack device type 10"),  # ROCm
        ({"code": 5, "bits": 64}, DtypeError, "not supported: code 5, 64 bits"),  # complex
        ({"major": 2}, ProblemError, r"DLPack version must be 1, got 2\.0"),
        ({"name": b"used_dltensor"}, ProblemError, "unused DLPack capsule"),
    ],
)
def test_unsupported_dlpack_exports(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        view(HandMade(**fields))


def test_a_library_that_refuses_to_export() -> None:
    with pytest.raises(ProblemError, match="can't be exported"):
        view(Wrapped(numbers((2, 2), "bf16")))  # NumPy's DLPack has no bfloat16
    with pytest.raises(ProblemError, match="out="):
        array_view.empty_like_kind(HandMade(), (2, 2), "f16")


# --- __cuda_array_interface__ ---


class OnGpu:
    """An array with the interface of a GPU array, which is never read."""

    def __init__(self, **interface: Any) -> None:
        default = {"shape": (2, 3), "typestr": "<f2", "data": (0x7000, False), "version": 3}
        self.__cuda_array_interface__ = default | interface


class OnGpu1(OnGpu):
    dtype = np.dtype(ml_dtypes.bfloat16)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


def test_the_cuda_array_interface() -> None:
    plain = view(OnGpu1())
    assert plain[:6] == (0x7000, (2, 3), (3, 1), "f16", "cuda:1", False)
    cut = view(OnGpu1(strides=(4, 8), typestr="<V2", data=(0x7000, True)))
    assert (cut.strides, cut.dtype, cut.readonly) == ((2, 4), "bf16", True)
    assert array_view.stream_of(OnGpu1(stream=77)) == 77
    assert array_view.stream_of(OnGpu1(stream=None)) == 0
    with pytest.raises(ProblemError, match="strides must be multiples of the 2 bytes"):
        view(OnGpu1(strides=(3, 2)))


@pytest.mark.parametrize(
    "bad",
    [
        {"data": 3}, {"data": ("x", False)}, {"shape": None}, {"shape": (2.5, 3)},
        {"strides": (2,)}, {"typestr": None}, {"typestr": "nothing"},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_interface(bad: dict[str, Any]) -> None:
    with pytest.raises(ProblemError, match="__cuda_array_interface__ is malformed"):
        view(OnGpu1(**bad))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"__cuda_array_interface__": None}, "__dlpack_device__"),
        ({"__cuda_array_interface__": 3}, "malformed"),
        ({"__dlpack__": lambda self, **_: 3}, "__dlpack_device__"),
        ({"__dlpack__": lambda self, **_: 3, "__dlpack_device__": lambda self: ()}, "exported"),
        (
            {"__dlpack__": lambda self, **_: 3, "__dlpack_device__": lambda self: (1, 0)},
            "must return a capsule",
        ),
    ],
)
def test_incomplete_array_protocols(members: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        view(type("Half", (), members)())


def test_an_address_without_a_gpu() -> None:
    with pytest.raises((DeviceError, MissingPackage), match=r"driver|cuda-bindings|address 0x7000"):
        view(OnGpu())


# --- overlap ---


@given(st.data())
def test_overlap_agrees_with_numpy(data: st.DataObject) -> None:
    base = np.zeros((7, 9), np.int16)

    def cut() -> np.ndarray[Any, Any]:
        part = [
            slice(data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, n)), step)
            for n, step in zip(base.shape, (data.draw(st.integers(1, 3)), 2), strict=True)
        ]
        return base[tuple(part)]

    a, b = cut(), cut()
    assert overlap(view(a), view(b)) == np.shares_memory(a, b)


def test_overlap_across_devices() -> None:
    a = ArrayView(1 << 46, (64, 64), (128, 1), "bf16", "cuda:0", False, None)
    beside = a._replace(address=a.address + 128)
    assert not overlap(a, beside)
    assert overlap(a, beside._replace(address=a.address + 126))
    assert not overlap(a, a._replace(device="cuda:1"))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((4, 5), (5, 1), False),
        ((4, 5), (-5, 1), False),
        ((4, 5), (4, 1), True),
        ((4, 5), (0, 1), True),
        ((1, 5), (0, 1), False),
        ((0, 5), (0, 1), False),
    ],
)
def test_overlaps_itself(shape: Any, strides: Any, expected: bool) -> None:
    assert overlaps_itself(ArrayView(64, shape, strides, "f16", "cpu", False, None)) is expected


# --- torch ---


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "s8"])
def test_torch_on_the_cpu(name: str) -> None:
    torch = pytest.importorskip("torch")
    a = (
        torch.arange(20)
        .reshape(4, 5)
        .to(
            getattr(
                torch, {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "s8": "int8"}[name]
            )
        )
    )
    for cut in (a, a.t(), a[:, 1:3], a[::2]):
        seen = view(cut)
        assert (seen.dtype, seen.device) == (name, "cpu")
        expected = cut.float().numpy().astype(dtypes.dtype(name).numpy)
        assert np.array_equal(read_through(seen), expected)
    made = array_view.empty_like_kind(a, (2, 3), "bf16")
    assert made.dtype == torch.bfloat16
    assert tuple(made.shape) == (2, 3)
    assert array_view.stream_of(a) == 0


def test_unsupported_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    for bad in (torch.zeros(2, device="meta"), torch.eye(2).to_sparse()):
        with pytest.raises(ProblemError, match=r"on cpu or cuda, got meta|must be dense"):
            view(bad)
    with pytest.raises(DtypeError, match=r"torch\.complex64 is not supported"):
        view(torch.zeros(2, dtype=torch.complex64))
