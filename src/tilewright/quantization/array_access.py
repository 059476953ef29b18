"""Arrays of any library: shape, format and device, and on the CPU their numbers without a copy.

The array libraries are read through ``run.arrays``, a higher layer, which the package provides
under the name ``arrays`` (``lazy_imports``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..dtypes import dtype
from ..errors import DeviceError, DtypeError, ProblemError
from ..lazy_imports import provided
from ..number_conversion import decode, encode

Array = npt.NDArray[Any]
F32_NAN = np.uint32(dtype("f32").nan).view(np.float32)
FLOAT_TYPES = ("f32", "f16", "bf16")  # to which matrices are dequantized


class ArrayInfo(NamedTuple):
    """What is known of an array, or a sparse matrix, without reading it. ``device``: ``"cpu"``,
    ``"cuda:0"``.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str

    def __str__(self) -> str:
        return f"{self.dtype} {sizes(self.shape)}"


def sizes(shape: tuple[int, ...]) -> str:
    """A shape as text: ``4096×128``."""
    return "×".join(map(str, shape)) or "scalar"


def info(name: str, array: Any) -> ArrayInfo:
    """Shape, format and device of the argument ``name``.

    Raises ProblemError for a value that is not an array, DtypeError for an unsupported type.
    """
    if not hasattr(array, "shape"):
        raise ProblemError(f"{name} must be an array, got {type(array).__name__}")
    view = provided("arrays").view(array)
    return ArrayInfo(tuple(view.matrix_shape), view.dtype, view.device)


def dense_info(name: str, array: Any) -> ArrayInfo:
    """``info``, which also raises ProblemError for a sparse matrix."""
    given = info(name, array)
    _check_dense(name, array, provided("arrays").view(array))
    return given


def _check_dense(name: str, array: Any, view: Any) -> None:
    if view.sparse:
        kind = type(array).__name__
        raise ProblemError(f"{name} must be dense, got {kind}", hint=f"{name}.decompress()")


def codes(name: str, array: Any) -> Array:
    """The array's bits as unsigned integers, in place. Raises DeviceError for one on a GPU,
    ProblemError for a sparse matrix.
    """
    arrays = provided("arrays")
    view = arrays.view(array)
    _check_dense(name, array, view)
    if view.device != "cpu":
        raise DeviceError(
            f"{name} must be on the CPU, got an array on {view.device}", hint=f"{name}.cpu()"
        )
    return np.asarray(arrays.bits(view))


def numbers(name: str, array: Any) -> Array:
    """The array's numbers: exact in float32, float64 for formats that exceed it, int64 for
    integers.
    """
    if isinstance(array, np.ndarray) and array.dtype == np.float32:
        return array
    given = info(name, array)
    bits = codes(name, array)
    if given.dtype == "f32":
        return np.asarray(bits.view(np.float32))
    if given.dtype == "f16":
        return bits.view(np.float16).astype(np.float32)
    values = decoded(given.dtype, bits)
    if values.dtype.kind == "f" and given.dtype != "f64":
        return values.astype(np.float32)
    return values.astype(np.int64) if values.dtype.kind == "u" else values


def decoded(type_: str, bits: Array) -> Array:
    """``decode``, by a table for formats of up to 8 bits."""
    t = dtype(type_)
    if t.bits > 8 or bits.size < 1 << t.bits:
        return decode(t, bits)
    return decode(t, np.arange(1 << t.bits))[bits]


def new_array(like: Any, bits: Array, dtype: str) -> Any:
    """An array of the library and on the device of ``like``, with these bits."""
    arrays = provided("arrays")
    kind = arrays.kind_of(like)
    result = kind.empty(like, bits.shape, dtype)
    if arrays.view(result).device == "cpu":
        codes("a result", result)[...] = bits
    elif bits.size:
        provided("array_copies").upload(result, bits)
    return result if kind.finish is None else kind.finish(like, result)


def rounded_array(like: Any, values: Array, type_: str) -> Any:
    """float32 numbers, rounded to f32, f16 or bf16, as an array of the library of ``like``; NaN is
    the canonical one, as on a GPU. Raises DtypeError for other types.
    """
    if type_ not in FLOAT_TYPES:
        raise DtypeError(f"dtype must be one of {', '.join(FLOAT_TYPES)}, got {type_!r:.60}")
    if type_ != "f32":
        with np.errstate(all="ignore"):
            return new_array(like, encode(type_, np.ascontiguousarray(values)), type_)
    if (nan := np.isnan(values)).any():
        values = np.where(nan, F32_NAN, values)
    if isinstance(like, np.ndarray):
        return values
    return new_array(like, np.ascontiguousarray(values).view("u4"), type_)
