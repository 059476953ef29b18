"""Parses the values of ``--arg NAME=…`` (arrays, numbers, tensor maps, bytes) and of
``--array NAME=…`` (arrays that only tensor maps refer to).

Arrays are allocated in the virtual machine's memory, so after the launch they hold the results.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DTYPES, DType, dtype, from_numpy
from ..errors import DtypeError, LaunchError, TilewrightError
from ..ptx import parameter_block
from ..run import tensor_map
from ..vm import Machine
from .random_inputs import normal

ARGUMENT_SYNTAX = """\
zeros:f32:1024x1024 (or ones, arange, random: normal numbers), x.npy (x.npy:bf16 sets the type of
its elements), u32:1024, s64:-1, f32:0.5, bytes:00ff (a structure), or
map:NAME:box=64x64:swizzle=128 (and type=, l2=, fill=), a tensor map of an earlier array"""

_FILLS = ("zeros", "ones", "arange", "random")
_FILE = re.compile(r"(.+\.npy)(?::(\w+))?")
_NUMBERS = ("float", "int", "uint")
_MAP_OPTIONS = {"box": "box", "swizzle": "swizzle", "type": "dtype", "l2": "l2_promotion",
        "fill": "oob_fill"}  # fmt: skip

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MachineArray:
    """An array in the virtual machine's memory."""

    array: Array
    type: DType
    address: int


class CommandLineArguments:
    """The packed arguments of a launch in order, and all arrays by name."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine, self.rng = machine, np.random.default_rng(seed)
        self.args: list[bytes] = []
        self.arrays: dict[str, MachineArray] = {}
        self.names: set[str] = set()

    def add_array(self, text: str) -> None:
        """Parse and allocate the array of an ``--array`` option."""
        with _error_prefix(f"--array {text}"):
            if not isinstance(self._parse_assignment(text), MachineArray):
                raise LaunchError("must be an array")

    def add_arguments(self, layout: parameter_block.ParameterLayout, texts: Sequence[str]) -> None:
        """Parse the ``--arg`` options and pack each value for its parameter."""
        for parameter, text in layout.each(texts):
            with _error_prefix(f"--arg {text}"):
                value = self._parse_assignment(text)
                if isinstance(value, MachineArray):
                    if not parameter.is_address:
                        raise LaunchError(f"{parameter.description} must be a number, got an array")
                    value = value.address
                self.args.append(parameter.pack(value))

    def _parse_assignment(self, text: str) -> object:
        name, _, what = text.partition("=")
        if not name.isidentifier() or not what:
            raise _unknown_value("must be NAME=VALUE")
        if name in self.names:
            raise LaunchError(f"{name} is already defined")
        self.names.add(name)
        value = self._parse_value(what)
        if isinstance(value, MachineArray):
            self.arrays[name] = value
        return value

    def _parse_value(self, what: str) -> object:
        kind, *rest = what.split(":")
        if kind in _FILLS:
            return self._parse_fill(kind, rest)
        if found := _FILE.fullmatch(what):
            return self._load_npy(*found.groups())
        if kind == "map":
            return self._parse_tensor_map(rest)
        if kind == "bytes":
            return _parse_bytes("".join(rest))
        if len(rest) == 1:
            return parse_scalar(kind, rest[0])
        raise _unknown_value(f"{what} is not a valid argument")

    # --- arrays ---

    def _parse_fill(self, kind: str, rest: list[str]) -> MachineArray:
        t, shape = _array_type(kind, rest)
        machine_array = self._allocate(t, shape)
        _fill(machine_array.array, kind, t, self.rng)
        return machine_array

    def _load_npy(self, file: str, type_: str | None) -> MachineArray:
        try:
            with open(file, "rb") as data:
                found = np.lib.format.read_array(data, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise LaunchError(f"NumPy can't read an array from {file}: {error}") from None
        t = from_numpy(found.dtype) if type_ is None else dtype(type_)
        if t.numpy.itemsize != found.dtype.itemsize:
            raise DtypeError(
                f"elements of {t} have {t.numpy.itemsize} bytes, got {found.dtype.itemsize} bytes"
            )
        machine_array = self._allocate(t, found.shape)
        machine_array.array[...] = np.ascontiguousarray(found).view(t.numpy).reshape(found.shape)
        return machine_array

    def _allocate(self, t: DType, shape: tuple[int, ...]) -> MachineArray:
        """Allocate an array of zeros. Raises DeviceError if the machine's memory is full."""
        size = prod(shape) * t.numpy.itemsize
        address = self.machine.alloc(size)
        flat = self.machine.memory.bytes(address, size).view(t.numpy)
        try:
            return MachineArray(flat.reshape(shape), t, address)
        except (ValueError, OverflowError) as error:  # an empty array of a huge extent
            raise LaunchError(f"NumPy does not support this shape: {error}") from None

    # --- tensor maps ---

    def _parse_tensor_map(self, rest: list[str]) -> bytes:
        name, *words = rest or [""]
        if name not in self.arrays:
            known = ", ".join(self.arrays) or "none yet"
            raise LaunchError(f"no array {name!r} for a tensor map; arrays are: {known}")
        options: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            if key not in _MAP_OPTIONS:
                raise LaunchError(
                    f"a tensor map has no option {key!r}; options are {', '.join(_MAP_OPTIONS)}"
                )
            options[_MAP_OPTIONS[key]] = value
        if "box" not in options:
            raise LaunchError(
                "a tensor map needs the box that one copy transfers, for example box=64x64"
            )
        options["box"] = _parse_shape(options["box"])
        for key in ("swizzle", "l2_promotion"):
            if key in options:
                options[key] = _parse_int(options[key])
        machine_array = self.arrays[name]
        return tensor_map(machine_array.array, **options).at(machine_array.address)


@contextmanager
def _error_prefix(what: str) -> Iterator[None]:
    """Prefix the messages of errors with the option that caused them."""
    try:
        yield
    except TilewrightError as error:
        raise type(error)(f"{what}: {error.message}", hint=error.hint) from None


def _unknown_value(message: str) -> LaunchError:
    return LaunchError(message, hint=f"valid values are {' '.join(ARGUMENT_SYNTAX.split())}")


def parse_fill(kind: str, rest: Sequence[str], rng: np.random.Generator) -> Array:
    """An array by its fill (zeros, ones, arange, random), type and shape. Raises LaunchError."""
    if kind not in _FILLS:
        raise _unknown_value(f"{kind} is not a fill")
    t, shape = _array_type(kind, rest)
    try:
        made: Array = np.zeros(shape, t.numpy)
    except ValueError as error:
        raise LaunchError(f"NumPy does not support this shape: {error}") from None
    _fill(made, kind, t, rng)
    return made


def _array_type(kind: str, rest: Sequence[str]) -> tuple[DType, tuple[int, ...]]:
    if len(rest) != 2:
        raise LaunchError(f"an array needs a type and a shape, for example {kind}:f32:64x64")
    return dtype(rest[0]), _parse_shape(rest[1])


def _fill(array: Array, kind: str, t: DType, rng: np.random.Generator) -> None:
    """Fill an array of zeros."""
    if kind == "random":
        array[...] = normal(rng, array.shape, t)
    elif kind == "arange":
        array[...] = np.arange(array.size).reshape(array.shape)
    elif kind == "ones":
        array[...] = 1


def parse_dims(text: str) -> tuple[int, ...]:
    """X, X,Y or X,Y,Z of a grid or a block, for argparse."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise ArgumentTypeError(f"must be one to three integers, got {text!r}") from None


def _parse_shape(text: str) -> tuple[int, ...]:
    """Parse extents, for example ``64x128``."""
    words = text.split("x")
    if not all(word.isascii() and word.isdecimal() and len(word) < 20 for word in words):
        raise LaunchError(f"a shape must be extents, for example 64x128, got {text!r}")
    return tuple(map(int, words))


def _parse_bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise LaunchError(f"bytes must be hexadecimal, for example 00ff17, got {text!r}") from None


def _parse_int(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise LaunchError(f"must be an integer, got {text!r}") from None


def parse_scalar(type_: str, text: str) -> Any:
    """A NumPy scalar of a number format. Raises LaunchError if the number does not fit it."""
    if type_ not in DTYPES or DTYPES[type_].kind not in _NUMBERS:
        raise _unknown_value(f"{type_} is not a scalar type")
    t = DTYPES[type_]
    if t.kind != "float":
        value, (low, high) = _parse_int(text), t.range
        if not low <= value <= high:
            raise LaunchError(f"{t} must be from {low} to {high}, got {value}")
        return t.numpy.type(value)
    try:
        exact = float(text)
    except ValueError:
        raise LaunchError(f"must be a number, got {text!r}") from None
    with np.errstate(over="ignore"):
        made = t.numpy.type(exact)
    if np.isfinite(exact) and not np.isfinite(float(made)):
        raise LaunchError(f"{text} is out of range for {t}")
    return made
