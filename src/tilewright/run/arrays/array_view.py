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
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from ... import cuda, dtypes
from ...errors import DtypeError, ProblemError
from . import dlpack, jax_arrays, torch_arrays
from .array_kind import ArrayKind, ArrayView, FastArrayOps, Shape

__all__ = [
    "ArrayView", "ArrayKind", "FastArrayOps", "Shape", "bits", "empty_like_kind", "is_array",
    "kind_of", "mark_written", "register", "stream_of", "view",
]  # fmt: skip

_BY_TYPE: dict[type, ArrayKind] = {}
_REGISTERED: list[tuple[Callable[[type], bool], ArrayKind]] = []


def register(owns: Callable[[type], bool], kind: ArrayKind) -> None:
    """Let a higher floor bring its library's kind, for the types of which ``owns`` is true."""
    _REGISTERED.insert(0, (owns, kind))
    _BY_TYPE.clear()


def is_array(given: Any) -> bool:
    """Whether it says that it is one."""
    return hasattr(given, "__dlpack__") or hasattr(given, "__cuda_array_interface__")


def kind_of(array: Any) -> ArrayKind:
    """The array's kind. Raises ProblemError for what is no array."""
    kind = _BY_TYPE.get(type(array))
    if kind is None:
        kind = _BY_TYPE[type(array)] = _find(array)
    return kind


def view(array: Any) -> ArrayView:
    """The array's memory, where it lies; nothing is copied.

    Raises ProblemError for what is no array or can't be addressed, DtypeError for its type.
    """
    return kind_of(array).view(array)


def empty_like_kind(array: Any, shape: Shape, dtype: str) -> Any:
    """A new array of the same library, on the same device, with undefined contents.

    Raises ProblemError where the library is not known, DtypeError where it has no such type.
    """
    return kind_of(array).empty(array, shape, dtype)


def stream_of(array: Any) -> int:
    """The stream on which the array's library now works, as a handle (0 on the CPU)."""
    return kind_of(array).stream(array)


def mark_written(given: Iterable[Any]) -> None:
    """Tell their libraries that these arrays are written: by a kernel that was started, or here.
    Who owns memory and is no array is passed over.
    """
    for array in given:
        told = kind_of(array).mark_written if is_array(array) else None
        if told is not None:
            told((array,))


def _find(array: Any) -> ArrayKind:
    cls = type(array)
    for owns, kind in _REGISTERED:
        if owns(cls):
            return kind
    masked = sys.modules.get("numpy.ma")  # there where there is an array of it
    if masked is not None and issubclass(cls, masked.MaskedArray):
        raise ProblemError("a masked array's mask would be lost", hint="array.filled(0)")
    if issubclass(cls, np.ndarray):
        return NUMPY
    for name, base, make in _LIBRARIES:
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, base, ())):
            return make(module)
    if is_array(array):
        return FOREIGN
    raise ProblemError(
        f"{cls.__name__!r} is not an array",
        hint="give NumPy arrays, or tensors with DLPack or __cuda_array_interface__",
    )


# --- NumPy --------------------------------------------------------------------------------------

_NUMPY_NAMES: dict[np.dtype[Any], str] = {}


def _numpy_name(given: np.dtype[Any]) -> str:
    name = _NUMPY_NAMES.get(given)
    if name is None:
        if not given.isnative:
            hint = "array.astype(array.dtype.newbyteorder('='))"
            raise DtypeError(f"{given.str!r} is not in this machine's byte order", hint=hint)
        name = _NUMPY_NAMES[given] = dtypes.from_numpy(given).name
    return name


def _elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides as element strides."""
    if any(s % itemsize for s in strides):
        raise ProblemError(
            f"strides of {strides} bytes are not whole elements of {itemsize} bytes",
            hint="numpy.ascontiguousarray makes a copy that has whole strides",
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
                raise DtypeError(f"CuPy has no type for {dtype}: {error}") from error

    def stream(array: Any) -> int:
        with array.device:
            return int(cupy.cuda.get_current_stream().ptr)

    return ArrayKind("cupy", view, empty, stream)


_LIBRARIES = (
    ("torch", "Tensor", torch_arrays.kind),
    ("jax", "Array", jax_arrays.kind),
    ("cupy", "ndarray", _cupy),
)


# --- any other ----------------------------------------------------------------------------------


def _foreign_view(array: Any) -> ArrayView:
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        return ArrayView(*dlpack.read(array))
    try:
        address, readonly, shape, strides, given = _interface_fields(interface)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(array).__name__}.__cuda_array_interface__ is malformed: {error!r}"
        raise ProblemError(what) from error
    name = _interface_dtype(array, given)
    steps = dlpack.compact_strides(shape) if strides is None else _elements(strides, given.itemsize)
    device = _interface_device(array, address)
    return ArrayView(address, shape, steps, name, device, readonly, array)


def _interface_fields(given: Any) -> tuple[int, bool, Shape, Shape | None, np.dtype[Any]]:
    """Address, whether it is read-only, shape, strides in bytes, type."""
    address, readonly = given["data"]
    shape, strides = tuple(map(index, given["shape"])), given.get("strides")
    if strides is not None:
        strides = tuple(map(index, strides))
        if len(strides) != len(shape):
            raise ValueError(f"{len(shape)} sizes and {len(strides)} strides")
    return index(address or 0), bool(readonly), shape, strides, np.dtype(str(given["typestr"]))


def _interface_dtype(array: Any, given: np.dtype[Any]) -> str:
    """The type; the interface has no word for bfloat16, which is told by the array's own dtype."""
    if given.kind == "V":
        with suppress(TypeError):
            given = np.dtype(getattr(array, "dtype", given))
    return _numpy_name(given)


def _interface_device(array: Any, address: int) -> str:
    """The interface does not say which GPU: the array's DLPack device does, or else the driver."""
    where = getattr(array, "__dlpack_device__", None)
    return f"cuda:{where()[1] if where else cuda.ordinal_of(address)}"


def _foreign_empty(array: Any, shape: Shape, dtype: str) -> Any:
    raise ProblemError(
        f"tilewright can't make a {type(array).__name__} for the result",
        hint=f"give out=, an array of {dtype} and shape {shape}",
    )


def _foreign_stream(array: Any) -> int:
    interface = getattr(array, "__cuda_array_interface__", None)
    return int((interface and interface.get("stream")) or 0)


FOREIGN = ArrayKind("foreign", _foreign_view, _foreign_empty, _foreign_stream)

# --- memory -------------------------------------------------------------------------------------


class _Memory:
    """NumPy's way to an array's memory as unsigned integers; it keeps the owner alive."""

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
