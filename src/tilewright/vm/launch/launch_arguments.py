"""The arguments of a launch as the bytes of the kernel's parameter block.

An array argument is copied to the machine's memory for the launch; the kernel gets the address of
the copy. After the kernel the copy is copied back. An array that can't be written, because it is
read-only or its elements share memory, is not copied back: a kernel that writes to its copy faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ... import mma
from ...errors import DtypeError, LaunchError
from ...lazy_imports import deferred

if TYPE_CHECKING:
    from ...layout.algebra import collision
    from ...ptx import parameter_block
else:
    collision = deferred("...layout.algebra.collision", __package__)

Array = npt.NDArray[Any]
WORK = 10_000  # NumPy's limit (max_work) for the exact test whether two arrays overlap


class DeviceMemory(Protocol):
    """The memory operations of a machine that array arguments need."""

    def upload(self, array: npt.ArrayLike, *, read_only: bool = False) -> int:
        """Copy an array to the device and return its address."""

    def download(self, address: int, like: Array) -> Array:
        """Copy an array of the shape and type of ``like`` from the device."""

    def free(self, address: int) -> None:
        """Free an allocation."""


@contextmanager
def packed_arguments(
    machine: DeviceMemory, layout: parameter_block.ParameterLayout, args: Sequence[object] | bytes
) -> Iterator[bytes]:
    """Context manager: the parameter block, valid while the arrays among the arguments are on the
    machine. Writable arrays are copied back if the body raises nothing.

    Raises LaunchError for arguments that do not fit the parameters.
    """
    if isinstance(args, bytes | bytearray | memoryview):
        yield _packed_block(layout, bytes(args))
        return
    if not isinstance(args, Sequence):
        raise LaunchError(f"args must be a sequence or packed bytes, got {type(args).__name__}")
    arrays = _DeviceArrays(machine)
    try:
        yield layout.pack([_argument(p, value, arrays) for p, value in layout.each(args)])
        arrays.download()
    finally:
        arrays.free()


def _packed_block(layout: parameter_block.ParameterLayout, block: bytes) -> bytes:
    if len(block) != layout.size:
        raise LaunchError(
            f"the parameter block of {layout.kernel} must have {layout.size} bytes, "
            f"got {len(block)}",
            hint="pack each parameter at its own alignment, in the order of the PTX",
        )
    return block


def _argument(p: parameter_block.Parameter, value: object, arrays: _DeviceArrays) -> object:
    """The argument in a form that ``ParameterLayout.pack`` takes."""
    if isinstance(value, int | float | np.generic | bytes):
        return value
    if isinstance(value, mma.TensorMap):
        encoded = value.encode()
        if len(encoded) != p.size:
            why = f"the parameter has {p.size} bytes, a tensor map {len(encoded)}"
            hint = "if the kernel takes the address of a map, upload the bytes of its encode()"
            raise LaunchError(f"{p.description} can't be a tensor map: {why}", hint=hint)
        return encoded
    if isinstance(value, np.ndarray):
        if not p.is_address:
            raise LaunchError(
                f"{p.description} can't be an array of {value.dtype}: it is not an address"
            )
        return arrays.address(value)
    return value


def array_bytes(array: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """The bytes of an array in C order: a view if it is contiguous, else a copy.

    Raises DtypeError for anything but one array of numbers.
    """
    if isinstance(array, np.ma.MaskedArray):
        message = "a masked array is not supported: its mask would be lost"
        raise DtypeError(message, hint="array.filled(0)")
    try:
        data = np.ascontiguousarray(array)
    except (RuntimeError, TypeError, ValueError) as error:
        message = f"expected an array of numbers, got {type(array).__name__} ({error})"
        raise DtypeError(message) from error
    if data.dtype.hasobject or data.dtype.kind == "U":
        what = f"{type(array).__name__} of dtype {data.dtype}"
        raise DtypeError(f"expected an array of numbers, got {what}")
    if not data.dtype.isnative:
        hint = "array.astype(array.dtype.newbyteorder('='))"
        raise DtypeError(f"the byte order must be native, got dtype {data.dtype.str!r}", hint=hint)
    return data.reshape(-1).view(np.uint8)


class _DeviceArrays:
    """The arrays of one launch and the addresses of their copies; each array is copied once."""

    def __init__(self, machine: DeviceMemory) -> None:
        self.machine = machine
        self.copies: list[tuple[Array, int]] = []

    def address(self, array: Array) -> int:
        for other, address in self.copies:
            if _same(array, other):
                return address
            written = array.flags.writeable or other.flags.writeable
            if written and _overlap(array, other):
                raise LaunchError(
                    "two array arguments must be the same array or not overlap in memory",
                    hint="upload the whole array and pass addresses within it",
                )
        address = self.machine.upload(array, read_only=not _writable(array))
        self.copies.append((array, address))
        return address

    def download(self) -> None:
        for array, address in self.copies:
            if _writable(array):
                array[...] = self.machine.download(address, array)

    def free(self) -> None:
        for _, address in self.copies:
            self.machine.free(address)


def _writable(array: Array) -> bool:
    """Whether the array is writable and no two of its elements share memory."""
    if not array.flags.writeable or not array.size:
        return bool(array.flags.writeable)
    modes = [*zip(array.shape, array.strides, strict=True), (array.itemsize, 1)]
    try:
        return collision.difference(modes) is None
    except collision.Undecided:
        return False


def _overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share memory; True if ``WORK`` steps do not decide it."""
    try:
        return bool(np.shares_memory(a, b, max_work=WORK))  # type: ignore[arg-type]  # stubs: 0, -1
    except np.exceptions.TooHardError:
        return True


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays have the same elements in the same memory."""
    if a is b:
        return True
    same_layout = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
    same_memory = same_layout and a.ctypes.data == b.ctypes.data
    return same_memory and a.flags.writeable == b.flags.writeable
