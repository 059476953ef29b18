"""What a launch was given for a kernel's parameters, as the bytes of their block.

An array has a copy in the machine's memory while the kernel runs, and its address is the argument;
what the kernel left there comes back to the array. The copy of one that can't take that, being
read-only or having elements that share memory, can't be written.
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
WORK = 10_000  # steps that NumPy may take to tell whether two arrays overlap


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
    """The parameter block, while arrays among the arguments are on the machine. They have what is
    there when all ended well, those that can be written.

    LaunchError for what the parameters can't be.
    """
    if isinstance(args, bytes | bytearray | memoryview):
        yield _packed_block(layout, bytes(args))
        return
    if not isinstance(args, Sequence):
        raise LaunchError(f"args is a sequence or packed bytes, not {type(args).__name__}")
    arrays = _DeviceArrays(machine)
    try:
        yield layout.pack([_argument(p, value, arrays) for p, value in layout.each(args)])
        arrays.download()
    finally:
        arrays.free()


def _packed_block(layout: parameter_block.ParameterLayout, block: bytes) -> bytes:
    if len(block) != layout.size:
        raise LaunchError(
            f"{layout.kernel} takes {layout.size} bytes of parameters, not {len(block)}",
            hint="pack each parameter at its own alignment, in the order of the PTX",
        )
    return block


def _argument(p: parameter_block.Parameter, value: object, arrays: _DeviceArrays) -> object:
    """The argument as a parameter block takes it."""
    if isinstance(value, int | float | np.generic | bytes):
        return value
    if isinstance(value, mma.TensorMap):
        encoded = value.encode()
        if len(encoded) != p.size:
            why = f"it takes {p.size} bytes, a map has {len(encoded)}"
            hint = "upload the bytes of its encode() where a kernel takes the address of a map"
            raise LaunchError(f"{p.description} can't be a tensor map: {why}", hint=hint)
        return encoded
    if isinstance(value, np.ndarray):
        if not p.is_address:
            raise LaunchError(
                f"{p.description} can't be an array of {value.dtype}: it takes no address"
            )
        return arrays.address(value)
    return value


def array_bytes(given: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """An array's bytes in C order: its own where it is contiguous. DtypeError for what is no array
    of numbers, or more than one.
    """
    if isinstance(given, np.ma.MaskedArray):
        raise DtypeError("a masked array's mask would be lost", hint="array.filled(0)")
    try:
        data = np.ascontiguousarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DtypeError(f"{type(given).__name__} is no array: {error}") from error
    if data.dtype.hasobject or data.dtype.kind == "U":
        what = f"a {type(given).__name__} of {data.dtype}"
        raise DtypeError(f"{what} has no bytes that a kernel could read")
    if not data.dtype.isnative:
        hint = "array.astype(array.dtype.newbyteorder('='))"
        raise DtypeError(f"{data.dtype.str!r} is not in this machine's byte order", hint=hint)
    return data.reshape(-1).view(np.uint8)


class _DeviceArrays:
    """Arrays that are on the machine for one launch, each once."""

    def __init__(self, machine: DeviceMemory) -> None:
        self.machine = machine
        self.found: list[tuple[Array, int]] = []

    def address(self, array: Array) -> int:
        for other, address in self.found:
            if _same(array, other):
                return address
            written = array.flags.writeable or other.flags.writeable
            if written and _overlap(array, other):
                raise LaunchError(
                    "two of the arrays share a part of their memory, and not all of it",
                    hint="upload the whole; its parts begin at addresses behind it",
                )
        address = self.machine.upload(array, read_only=not _writable(array))
        self.found.append((array, address))
        return address

    def download(self) -> None:
        for array, address in self.found:
            if _writable(array):
                array[...] = self.machine.download(address, array)

    def free(self) -> None:
        for _, address in self.found:
            self.machine.free(address)


def _writable(array: Array) -> bool:
    """Whether each element can be written, and has memory of its own."""
    if not array.flags.writeable or not array.size:
        return bool(array.flags.writeable)
    modes = [*zip(array.shape, array.strides, strict=True), (array.itemsize, 1)]
    try:
        return collision.difference(modes) is None
    except collision.Undecided:
        return False


def _overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share memory, as far as that is quick to tell; else yes."""
    try:
        return bool(np.shares_memory(a, b, max_work=WORK))
    except np.exceptions.TooHardError:
        return True


def _same(a: Array, b: Array) -> bool:
    """Whether they are the same elements of the same memory."""
    if a is b:
        return True
    alike = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
    return alike and a.ctypes.data == b.ctypes.data and a.flags.writeable == b.flags.writeable
