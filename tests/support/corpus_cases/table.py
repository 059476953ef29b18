"""The corpus's table: each kernel of ``corpus/`` with a launch, its inputs and what must come out.

    @case("scan", grid=1, block=64, shared=512)
    def hillis_steele(rng):
        x = whole(rng, 64)
        return [x, Gives(np.cumsum(x))]

The function has the kernel's name and returns its arguments; the array that a kernel writes is a
``Gives``. Results are exact unless ``Gives`` says otherwise: floats of small whole numbers make
sums that have one value in any order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.mma import TensorMap
from tilewright.ptx import parse
from tilewright.vm import Machine

CORPUS = Path(__file__).parents[2] / "corpus"


@dataclass
class Gives:
    """An array that must end as ``expected`` (None: as anything); it begins as zeros."""

    expected: Any
    begins: Any = None
    near: float = 0  # of |expected| + 1

    def start(self) -> np.ndarray:
        return np.zeros_like(self.expected) if self.begins is None else np.array(self.begins)

    def hold(self, found: np.ndarray, name: str) -> None:
        if self.near:
            found, expected = (np.asarray(a, np.float64) for a in (found, self.expected))
            np.testing.assert_allclose(found, expected, self.near, self.near, err_msg=name)
        else:
            np.testing.assert_array_equal(found, self.expected, err_msg=name)


@dataclass(frozen=True)
class Map:
    """A tensor map of an array: its type's name, its box, its swizzle."""

    array: np.ndarray | Gives
    type: str
    box: tuple[int, ...]
    swizzle: int = 0

    def encode(self, address: int, array: np.ndarray) -> bytes:
        sizes = array.shape[::-1]
        strides = tuple(array.strides[::-1][1:])
        how = {"swizzle": self.swizzle} if self.swizzle else {}
        return TensorMap.tiled(address, self.type, sizes, strides, self.box, **how).encode()


@dataclass(frozen=True)
class Case:
    kernel: str
    file: str
    make: Callable
    launch: dict[str, Any] = field(default_factory=dict)
    slow: bool = False
    fails: str = ""  # the error that the machine tells of instead
    says: str = ""  # what is printed
    linked: tuple[str, ...] = ()  # the other modules that it is linked with
    again: bool = False  # another file has the same source's kernel, too, and comes before

    def __str__(self) -> str:
        return f"{self.file}-{self.make.__name__}"


CASES: list[Case] = []


def case(
    *files: str, kernel="", slow=False, fails="", says="", linked=(), **launch: Any
) -> Callable:
    """Put a kernel into the table, once for each PTX file that has it, NVRTC's too."""

    def put(make: Callable) -> Callable:
        name = kernel or make.__name__
        others = [f"nvrtc/{f}" for f in files if (CORPUS / f"nvrtc/{f}.ptx").exists()]
        CASES.extend(
            Case(name, file, make, launch, slow, fails, says, linked, again=number > 0)
            for number, file in enumerate([*files, *others])
        )
        return make

    return put


@cache
def module(file: str):
    return parse(text(file))


def text(file: str) -> str:
    return (CORPUS / f"{file}.ptx").read_text()


def run(case: Case, machine: Machine, **how: Any) -> None:
    """Launch a kernel and hold its results."""
    rng = np.random.default_rng(len(case.kernel))
    machine.load(*map(module, (case.file, *case.linked)))
    args = case.make(rng) if inspect.signature(case.make).parameters else case.make()
    outs: list[tuple[Gives, int, np.ndarray]] = []
    values = [_place(machine, arg, outs) for arg in args]
    machine.launch(case.kernel, **case.launch, args=values, **how)
    for gives, address, like in outs:
        if gives.expected is not None:
            gives.hold(machine.download(address, like), str(case))


def _place(machine: Machine, arg: Any, outs: list) -> Any:
    """What the launch takes for an argument; arrays are uploaded."""
    if isinstance(arg, Map):
        address = _place(machine, arg.array, outs)
        array = arg.array.start() if isinstance(arg.array, Gives) else arg.array
        return arg.encode(address, array)
    if isinstance(arg, Gives):
        start = arg.start()
        outs.append((arg, address := machine.upload(start), start))
        return address
    return machine.upload(arg) if isinstance(arg, np.ndarray) else arg


# --- inputs ---


def whole(rng, *shape: int, low: int = -9, high: int = 10, dtype: Any = np.int32) -> np.ndarray:
    """Small whole numbers."""
    return rng.integers(low, high, shape).astype(dtype)


def words(rng, *shape: int, dtype: Any = np.uint32) -> np.ndarray:
    """Any bits."""
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def normal(rng, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)
