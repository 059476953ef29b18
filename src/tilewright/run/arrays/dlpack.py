"""DLPack: reads an array of any library from its capsule, without importing the library.

The capsule is not marked as used and remains the owner: the memory lives as long as the capsule.
The structures are those of dlpack.h, version 1 and older.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from ...errors import DtypeError, ProblemError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_LEGACY_DEFAULT_STREAM = 1
_READ_ONLY, _IS_COPIED = 1, 2
_MAJOR = 1
_REFUSALS = (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError)
_DTYPES = {  # (DLDataTypeCode, bits)
    **{(0, n): f"s{n}" for n in (8, 16, 32, 64)},
    **{(1, n): f"u{n}" for n in (8, 16, 32, 64)},
    (2, 16): "f16",
    (2, 32): "f32",
    (2, 64): "f64",
    (4, 16): "bf16",
    (6, 8): "pred",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
    (14, 8): "ue8m0",
}


class _Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Exported(NamedTuple):
    """The contents of a capsule, which must live as long as the address is used."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    device: str
    readonly: bool
    capsule: object


def read(array: Any) -> Exported:
    """Export an array with ``array.__dlpack__()``, for use on the legacy default stream.

    Raises ProblemError if the library refuses or the device is neither CPU nor CUDA, DtypeError for
    an unsupported type.
    """
    try:
        capsule = _capsule(array)
    except _REFUSALS as error:
        raise ProblemError(
            f"{type(array).__name__} can't be exported with DLPack: {error}"
        ) from error
    tensor, flags = _opened(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else compact_strides(shape)
    return Exported(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        strides,
        _dtype(tensor),
        _device(tensor),
        bool(flags & (_READ_ONLY | _IS_COPIED)),
        capsule,
    )


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a row-major array without gaps: ``(2, 3, 4)`` → ``(12, 4, 1)``."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _capsule(array: Any) -> object:
    on_gpu = array.__dlpack_device__()[0] in (CUDA, CUDA_MANAGED)
    arguments = {"stream": _LEGACY_DEFAULT_STREAM} if on_gpu else {}
    try:
        return array.__dlpack__(max_version=(_MAJOR, 0), **arguments)
    except TypeError:  # a library from before DLPack 1
        return array.__dlpack__(**arguments)


def _opened(capsule: object) -> tuple[_Tensor, int]:
    try:
        name = _get_name(capsule)
    except ValueError:
        what = f"__dlpack__ must return a capsule, got {type(capsule).__name__}"
        raise ProblemError(what) from None
    if name == b"dltensor":
        return _Tensor.from_address(_get_pointer(capsule, name)), 0
    if name != b"dltensor_versioned":
        raise ProblemError(
            f"__dlpack__ must return an unused DLPack capsule, got one named {name!r}"
        )
    managed = _Versioned.from_address(_get_pointer(capsule, name))
    if managed.major != _MAJOR:
        raise ProblemError(
            f"the DLPack version must be {_MAJOR}, got {managed.major}.{managed.minor}"
        )
    return managed.tensor, managed.flags


def _dtype(tensor: _Tensor) -> str:
    name = _DTYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        what = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise DtypeError(f"the DLPack type is not supported: {what}")
    return name


def _device(tensor: _Tensor) -> str:
    if tensor.device_type in (CPU, CUDA_HOST):
        return "cpu"
    if tensor.device_type in (CUDA, CUDA_MANAGED):
        return f"cuda:{tensor.device_id}"
    raise ProblemError(
        f"arrays must be on the CPU or an NVIDIA GPU, got DLPack device type {tensor.device_type}"
    )
