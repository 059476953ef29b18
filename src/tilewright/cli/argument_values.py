"""What ``--arg NAME=…`` gives a kernel: arrays, numbers, tensor maps, bytes; and ``--array`` for
its maps to be of.

Arrays lie in the virtual machine's memory from the beginning: what they hold after the launch is
what the kernel left.
"""

from __future__ import annotations

import re
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

KINDS = """\
zeros:f32:1024x1024 (or ones, arange, random: normal numbers), x.npy (x.npy:bf16 says of what type
its elements are), u32:1024, s64:-1, f32:0.5, bytes:00ff (a structure), or
map:NAME:box=64x64:swizzle=128 (and type=, l2=, fill=), the tensor map of an earlier array"""

_FILLS = ("zeros", "ones", "arange", "random")
_FILE = re.compile(r"(.+\.npy)(?::(\w+))?")
_NUMBERS = ("float", "int", "uint")
_MAP = {"box": "box", "swizzle": "swizzle", "type": "dtype", "l2": "l2_promotion",
        "fill": "oob_fill"}  # fmt: skip

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Placed:
    """An array in the machine's memory."""

    array: Array
    type: DType
    address: int


class Given:
    """The arguments of a launch in their order, and all arrays by name."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine, self.rng = machine, np.random.default_rng(seed)
        self.args: list[bytes] = []
        self.arrays: dict[str, Placed] = {}
        self.names: set[str] = set()

    def take_array(self, text: str) -> None:
        """What ``--array`` says."""
        with _speaking_of(f"--array {text}"):
            if not isinstance(self._named(text), Placed):
                raise LaunchError("that is no array")

    def take_args(self, layout: parameter_block.ParameterLayout, texts: Sequence[str]) -> None:
        """What ``--arg`` says, as the bytes of each parameter."""
        for parameter, text in layout.each(texts):
            with _speaking_of(f"--arg {text}"):
                value = self._named(text)
                if isinstance(value, Placed):
                    if not parameter.is_address:
                        raise LaunchError(f"{parameter.description} takes no address")
                    value = value.address
                self.args.append(parameter.pack(value))

    def _named(self, text: str) -> object:
        name, _, what = text.partition("=")
        if not name.isidentifier() or not what:
            raise _unknown("this is not NAME=WHAT")
        if name in self.names:
            raise LaunchError(f"{name} is there already")
        self.names.add(name)
        value = self._value(what)
        if isinstance(value, Placed):
            self.arrays[name] = value
        return value

    def _value(self, what: str) -> object:
        kind, *rest = what.split(":")
        if kind in _FILLS:
            return self._filled(kind, rest)
        if found := _FILE.fullmatch(what):
            return self._loaded(*found.groups())
        if kind == "map":
            return self._map(rest)
        if kind == "bytes":
            return _bytes("".join(rest))
        if len(rest) == 1:
            return _number(kind, rest[0])
        raise _unknown(f"{what} is nothing that a kernel can be given")

    # --- arrays ---

    def _filled(self, kind: str, rest: list[str]) -> Placed:
        if len(rest) != 2:
            raise LaunchError(f"an array has a type and a shape, as {kind}:f32:64x64")
        t, shape = dtype(rest[0]), _sizes(rest[1])
        placed = self._placed(t, shape)
        if kind == "random":
            placed.array[...] = normal(self.rng, shape, t)
        elif kind == "arange":
            placed.array[...] = np.arange(placed.array.size).reshape(shape)
        elif kind == "ones":
            placed.array[...] = 1
        return placed

    def _loaded(self, file: str, type_: str | None) -> Placed:
        try:
            with open(file, "rb") as data:
                found = np.lib.format.read_array(data, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise LaunchError(f"{file} is no array that NumPy can read: {error}") from None
        t = from_numpy(found.dtype) if type_ is None else dtype(type_)
        if t.numpy.itemsize != found.dtype.itemsize:
            raise DtypeError(f"its elements have {found.dtype.itemsize} bytes, those of {t} do not")
        placed = self._placed(t, found.shape)
        placed.array[...] = np.ascontiguousarray(found).view(t.numpy).reshape(found.shape)
        return placed

    def _placed(self, t: DType, shape: tuple[int, ...]) -> Placed:
        """Zeros. DeviceError where the machine has no room."""
        size = prod(shape) * t.numpy.itemsize
        address = self.machine.alloc(size)
        flat = self.machine.memory.bytes(address, size).view(t.numpy)
        try:
            return Placed(flat.reshape(shape), t, address)
        except (ValueError, OverflowError) as error:  # 0 of too many
            raise LaunchError(f"NumPy has no array of this shape: {error}") from None

    # --- tensor maps ---

    def _map(self, rest: list[str]) -> bytes:
        of, *words = rest or [""]
        if of not in self.arrays:
            there = ", ".join(self.arrays) or "none yet"
            raise LaunchError(f"there is no array {of!r} to have a map of; there are: {there}")
        options: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            if key not in _MAP:
                raise LaunchError(f"a map has no {key!r}; it has {', '.join(_MAP)}")
            options[_MAP[key]] = value
        if "box" not in options:
            raise LaunchError("a map has a box, as box=64x64: what one copy takes of the array")
        options["box"] = _sizes(options["box"])
        for key in ("swizzle", "l2_promotion"):
            if key in options:
                options[key] = _whole(options[key])
        placed = self.arrays[of]
        return tensor_map(placed.array, **options).at(placed.address)


@contextmanager
def _speaking_of(what: str) -> Iterator[None]:
    """Errors begin with what they speak of."""
    try:
        yield
    except TilewrightError as error:
        raise type(error)(f"{what}: {error.message}", hint=error.hint) from None


def _unknown(message: str) -> LaunchError:
    return LaunchError(message, hint=f"it may be {' '.join(KINDS.split())}")


def _sizes(text: str) -> tuple[int, ...]:
    """``64x128`` as numbers."""
    words = text.split("x")
    if not all(word.isascii() and word.isdecimal() and len(word) < 20 for word in words):
        raise LaunchError(f"{text!r} are no sizes, as 64x128")
    return tuple(map(int, words))


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise LaunchError(f"{text!r} are no bytes, as 00ff17") from None


def _whole(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise LaunchError(f"{text!r} is no whole number") from None


def _number(type_: str, text: str) -> Any:
    """A NumPy scalar of a format. LaunchError where it has no such number."""
    if type_ not in DTYPES or DTYPES[type_].kind not in _NUMBERS:
        raise _unknown(f"{type_} is no type of a number")
    t = DTYPES[type_]
    if t.kind != "float":
        value, (low, high) = _whole(text), t.range
        if not low <= value <= high:
            raise LaunchError(f"{t} has numbers from {low} to {high}")
        return t.numpy.type(value)
    try:
        exact = float(text)
    except ValueError:
        raise LaunchError(f"{text!r} is no number") from None
    with np.errstate(over="ignore"):
        made = t.numpy.type(exact)
    if np.isfinite(exact) and not np.isfinite(float(made)):
        raise LaunchError(f"{text} is out of {t}'s range")
    return made
