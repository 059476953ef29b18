"""Array views: an array of any library as address, shape, strides, type and device.

An ``ArrayKind`` holds the operations of one library: view an array, allocate one, return the
current stream. It is looked up once for each Python type. NumPy, torch, JAX and CuPy have kinds of
their own; all other arrays are read through ``__cuda_array_interface__`` or DLPack. No library is
imported here: if a program has an array of a library, that library is in ``sys.modules``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from ... import cuda, dtypes
from ...errors import DtypeError, ProblemError
from . import dlpack, jax_arrays, torch_arrays
from .array_kind import ArrayKind, ArrayView, FastArrayOps, Shape, SparseMetadata

__all__ = [
    "ArrayView", "ArrayKind", "FastArrayOps", "Shape", "bits", "empty_like_kind", "is_array",
    "kind_of", "mark_written", "register", "stream_of", "view",
]  # fmt: skip

_BY_TYPE: dict[type, ArrayKind] = {}
_REGISTERED: list[tuple[Callable[[type], bool], ArrayKind]] = []


def register(owns: Callable[[type], bool], kind: ArrayKind) -> None:
    """Register the kind of another library, for the types of which ``owns`` is true."""
    _REGISTERED.insert(0, (owns, kind))
    _BY_TYPE.clear()


def is_array(value: Any) -> bool:
    """Whether a value has one of the array protocols, or a registered kind."""
    if hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
        return True
    return any(owns(type(value)) for owns, _ in _REGISTERED)


def kind_of(array: Any) -> ArrayKind:
    """The array's kind. Raises ProblemError for a value that is not an array."""
    kind = _BY_TYPE.get(type(array))
    if kind is None:
        kind = _BY_TYPE[type(array)] = _find(array)
    return kind


def view(array: Any) -> ArrayView:
    """The array's memory; nothing is copied.

    Raises ProblemError for a value that is not an array or has no address, DtypeError for an
    unsupported type.
    """
    return kind_of(array).view(array)


def empty_like_kind(array: Any, shape: Shape, dtype: str) -> Any:
    """A new array of the same library, on the same device, with undefined contents.

    Raises ProblemError for an unknown library, DtypeError if it does not have the type.
    """
    return kind_of(array).empty(array, shape, dtype)


def is_contiguous(view: ArrayView) -> bool:
    """Whether an array is row-major without gaps."""
    strides = zip(view.shape, view.strides, dlpack.compact_strides(view.shape), strict=True)
    return 0 in view.shape or all(n == 1 or own == compact for n, own, compact in strides)


def stream_of(array: Any) -> int:
    """The handle of the current stream of the array's library (0 on the CPU)."""
    return kind_of(array).stream(array)


def operators(arrays: tuple[Any, ...]) -> Any:
    """The operators of the first array's library (of a sparse matrix, that of its values) that a
    call with ``arrays`` must go through, as ``ArrayKind.operators`` says; None if it need not.
    """
    sparse = sys.modules.get("tilewright.sparsity.sparse24")
    if sparse is not None and isinstance(arrays[0], sparse.Sparse24):
        arrays = arrays[0].values, *arrays[1:]
    kind = kind_of(arrays[0]) if is_array(arrays[0]) else None
    return kind.operators(arrays) if kind is not None and kind.operators is not None else None


def mark_written(owners: Iterable[Any]) -> None:
    """Tell the libraries of these arrays that they are written, by a launched kernel or here.

    Owners of memory that are not arrays are ignored.
    """
    for array in owners:
        mark = kind_of(array).mark_written if is_array(array) else None
        if mark is not None:
            mark((array,))


@cache
def _kind_of_library(make: Callable[[ModuleType], ArrayKind], module: ModuleType) -> ArrayKind:
    """One kind for all types of a library: a torch Parameter has that of a Tensor."""
    return make(module)


def _find(array: Any) -> ArrayKind:
    cls = type(array)
    for owns, kind in _REGISTERED:
        if owns(cls):
            return kind
    masked = sys.modules.get("numpy.ma")
    if masked is not None and issubclass(cls, masked.MaskedArray):
        raise ProblemError(
            "arrays must not be masked: the mask would be lost", hint="array.filled(0)"
        )
    if issubclass(cls, np.ndarray):
        return NUMPY
    for name, base, make in _LIBRARIES:
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, base, ())):
            return _kind_of_library(make, module)
    if is_array(array):
        return FOREIGN
    raise ProblemError(
        f"expected an array, got {cls.__name__}",
        hint="pass NumPy arrays, or arrays with DLPack or __cuda_array_interface__",
    )


# --- NumPy --------------------------------------------------------------------------------------

_NUMPY_NAMES: dict[np.dtype[Any], str] = {}


def _numpy_name(dtype: np.dtype[Any]) -> str:
    name = _NUMPY_NAMES.get(dtype)
    if name is None:
        if not dtype.isnative:
            hint = "array.astype(array.dtype.newbyteorder('='))"
            raise DtypeError(f"arrays must have native byte order, got {dtype.str!r}", hint=hint)
        name = _NUMPY_NAMES[dtype] = dtypes.from_numpy(dtype).name
    return name


def _elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides as element strides."""
    if any(s % itemsize for s in strides):
        raise ProblemError(
            f"strides must be multiples of the {itemsize} bytes of an element, got {strides}",
            hint="numpy.ascontiguousarray makes a contiguous copy",
        )
    return tuple(s // itemsize for s in strides)


def _numpy_view(array: Any) -> ArrayView:
    return ArrayView(
        array.__array_interface__["data"][0],
        array.shape,
        _elements(array.strides, array.itemsize),
        _numpy_name(array.dtype),
        "cpu",
        not array.flags.writeable,
        array,
    )


def _numpy_empty(_: Any, shape: Shape, dtype: str) -> Any:
    return np.empty(shape, dtypes.dtype(dtype).numpy)


def _no_stream(_: Any) -> int:
    return 0


NUMPY = ArrayKind("numpy", _numpy_view, _numpy_empty, _no_stream)

# --- CuPy ---------------------------------------------------------------------------------------


def _cupy(cupy: ModuleType) -> ArrayKind:
    def view(array: Any) -> ArrayView:
        strides = _elements(array.strides, array.itemsize)
        name, device = _numpy_name(array.dtype), f"cuda:{array.device.id}"
        return ArrayView(array.data.ptr, array.shape, strides, name, device, False, array)

    def empty(array: Any, shape: Shape, dtype: str) -> Any:
        with array.device:
            try:
                return cupy.empty(shape, dtypes.dtype(dtype).numpy)
            except (TypeError, ValueError) as error:
                raise DtypeError(f"CuPy does not support {dtype}: {error}") from error

    def stream(array: Any) -> int:
        with array.device:
            return int(cupy.cuda.get_current_stream().ptr)

    return ArrayKind("cupy", view, empty, stream)


# --- Numba --------------------------------------------------------------------------------------


def _numba(_: ModuleType) -> ArrayKind:
    """Arrays of ``numba.cuda``, read through their interface."""
    cuda_module = sys.modules["numba.cuda"]

    def empty(array: Any, shape: Shape, dtype: str) -> Any:
        ordinal = int(_foreign_view(array).device.partition(":")[2])
        with cuda_module.gpus[ordinal]:
            try:
                return cuda_module.device_array(shape, dtypes.dtype(dtype).numpy)
            except Exception as error:  # numba's own types of errors
                raise DtypeError(f"Numba does not support {dtype}: {error}") from error

    return ArrayKind("numba", _foreign_view, empty, _foreign_stream)


# --- sparse matrices ----------------------------------------------------------------------------

SPARSE = "sparse"  # the kind's name
_METADATA_ALIGN = 16


def _sparse(_: ModuleType) -> ArrayKind:
    """Of ``Sparse24``: its stored elements, with the metadata."""

    def view_sparse(matrix: Any) -> ArrayView:
        values, metadata = view(matrix.values), view(matrix.metadata)
        compact = metadata.strides == dlpack.compact_strides(metadata.shape)
        if not compact or (metadata.device != "cpu" and metadata.address % _METADATA_ALIGN):
            raise ProblemError(
                f"metadata must be contiguous and aligned to {_METADATA_ALIGN} bytes, got strides "
                f"{metadata.strides} at {metadata.address:#x}"
            )
        if not matrix.transposed:
            return values._replace(sparse=SparseMetadata(-1, metadata))
        shape, strides = (
            (*x[:-2], x[-1], x[-2]) for x in (tuple(values.shape), tuple(values.strides))
        )
        return values._replace(shape=shape, strides=strides, sparse=SparseMetadata(-2, metadata))

    def empty(matrix: Any, shape: Shape, dtype: str) -> Any:
        return empty_like_kind(matrix.values, shape, dtype)

    def stream(matrix: Any) -> int:
        return stream_of(matrix.values)

    def finish(matrix: Any, result: Any) -> Any:
        own = kind_of(matrix.values).finish
        return result if own is None else own(matrix.values, result)

    return ArrayKind(SPARSE, view_sparse, empty, stream, finish=finish)


# --- prepared weights ---------------------------------------------------------------------------


def _prepared_weights(_: ModuleType) -> ArrayKind:
    """Of ``PreparedWeights``: their units; the owner says what they are."""

    def view_units(weights: Any) -> ArrayView:
        return view(weights.units)._replace(owner=weights)

    def empty(weights: Any, shape: Shape, dtype: str) -> Any:
        return empty_like_kind(weights.units, shape, dtype)

    def stream(weights: Any) -> int:
        return stream_of(weights.units)

    return ArrayKind("prepared weights", view_units, empty, stream)


def _matrix_list(_: ModuleType) -> ArrayKind:
    """Of ``MatrixList``: a stack, whose matrices lie anywhere."""

    def empty(matrices: Any, shape: Shape, dtype: str) -> Any:
        return empty_like_kind(matrices.matrices[0], shape, dtype)

    def stream(matrices: Any) -> int:
        return stream_of(matrices.matrices[0])

    return ArrayKind("list of matrices", lambda matrices: matrices.view(), empty, stream)


def _array_part(_: ModuleType) -> ArrayKind:
    """Of ``ArrayPart``: a view of another library's array."""

    def empty(part: Any, shape: Shape, dtype: str) -> Any:
        return empty_like_kind(part.array, shape, dtype)

    return ArrayKind(
        "part of an array",
        lambda part: part.part._replace(owner=part),
        empty,
        lambda part: stream_of(part.array),
    )


_LIBRARIES = (
    ("tilewright.run.call.batching.array_part", "ArrayPart", _array_part),
    ("tilewright.run.call.grouped.matrix_list", "MatrixList", _matrix_list),
    ("tilewright.quantization.weight_format", "PreparedWeights", _prepared_weights),
    ("tilewright.sparsity.sparse24", "Sparse24", _sparse),
    ("torch", "Tensor", torch_arrays.kind),
    ("jax", "Array", jax_arrays.kind),
    ("cupy", "ndarray", _cupy),
    ("numba.cuda.cudadrv.devicearray", "DeviceNDArrayBase", _numba),
)


# --- other libraries ----------------------------------------------------------------------------


def _foreign_view(array: Any) -> ArrayView:
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        return ArrayView(*dlpack.read(array))
    try:
        address, readonly, shape, strides, dtype = _interface_fields(interface)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(array).__name__}.__cuda_array_interface__ is malformed: {error!r}"
        raise ProblemError(what) from error
    name = _interface_dtype(array, dtype)
    if strides is None:
        strides = dlpack.compact_strides(shape)
    else:
        strides = _elements(strides, dtype.itemsize)
    device = _interface_device(array, address)
    return ArrayView(address, shape, strides, name, device, readonly, array)


def _interface_fields(fields: Any) -> tuple[int, bool, Shape, Shape | None, np.dtype[Any]]:
    """Address, whether it is read-only, shape, strides in bytes, type."""
    address, readonly = fields["data"]
    shape, strides = tuple(map(index, fields["shape"])), fields.get("strides")
    if strides is not None:
        strides = tuple(map(index, strides))
        if len(strides) != len(shape):
            raise ValueError(f"{len(shape)} sizes and {len(strides)} strides")
    return index(address or 0), bool(readonly), shape, strides, np.dtype(str(fields["typestr"]))


def _interface_dtype(array: Any, dtype: np.dtype[Any]) -> str:
    """The type. The interface can't express bfloat16; the array's own dtype does."""
    if dtype.kind == "V":
        with suppress(TypeError):
            dtype = np.dtype(getattr(array, "dtype", dtype))
    return _numpy_name(dtype)


def _interface_device(array: Any, address: int) -> str:
    """The GPU, which the interface lacks: from the DLPack device, else from the driver."""
    dlpack_device = getattr(array, "__dlpack_device__", None)
    return f"cuda:{dlpack_device()[1] if dlpack_device else cuda.ordinal_of(address)}"


def _foreign_empty(array: Any, shape: Shape, dtype: str) -> Any:
    raise ProblemError(
        f"tilewright can't allocate a {type(array).__name__} for the result",
        hint=f"pass out=, an array of {dtype} and shape {shape}",
    )


def _foreign_stream(array: Any) -> int:
    interface = getattr(array, "__cuda_array_interface__", None)
    return int((interface and interface.get("stream")) or 0)


FOREIGN = ArrayKind("foreign", _foreign_view, _foreign_empty, _foreign_stream)

# --- memory -------------------------------------------------------------------------------------


class _Memory:
    """An array's memory as unsigned integers, in NumPy's protocol; it keeps the owner alive."""

    def __init__(self, a: ArrayView) -> None:
        self.owner = a.owner
        self.__array_interface__ = {
            "version": 3,
            "shape": a.shape,
            "strides": tuple(s * a.itemsize for s in a.strides),
            "typestr": f"<u{a.itemsize}",
            "data": (a.address, a.readonly),
        }


def bits(a: ArrayView) -> np.ndarray[Any, Any]:
    """An array on the CPU as a NumPy array of unsigned integers; nothing is copied."""
    assert a.device == "cpu"
    return np.asarray(_Memory(a))
