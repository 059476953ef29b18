"""Access of the stepping evaluator to a warp's records, registers and frame, as NumPy arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ...native.native_language import Native
from ...native.native_record import Record
from ..codegen.code_library import Library
from ..program.evaluator import Evaluator
from ..program.program import Program
from ..state.records import Cta, LaunchRecord, WarpRecord, Worker
from ..state.special_fields import RecordField
from .numpy_primitives import NumpyValues

Lanes = npt.NDArray[Any]
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
POINTEES = {"cta": Cta, "launch": LaunchRecord}
LOW = 2**64 - 1


class Fault(Exception):
    """Native code reported a fault; it is in the worker's record."""


def lanes_of(mask: int) -> Lanes:
    """A mask of 32 bits as a predicate."""
    return (np.uint32(mask) >> np.arange(32, dtype=np.uint32) & 1).astype(bool)


def word_of(p: Lanes) -> int:
    """A predicate as a mask of 32 bits."""
    return int(np.packbits(p, bitorder="little").view(np.uint32)[0])


class StepContext(NumpyValues, Evaluator):
    """The state of evaluating one warp. ``warp``: its record. ``guard``: the lanes whose guard
    holds (None without a guard). ``active_mask``: the lanes that execute the block.
    """

    warp: Record
    guard: Lanes | None
    active_mask: int

    def __init__(self, program: Program, library: Library, arch: str) -> None:
        self.program, self.library, self.arch = program, library, arch

    # --- registers ---

    def get(self, index: int) -> Lanes:
        return read_lanes(self.warp.address + self.program.slots[index], self._width(index))

    def put(self, index: int, value: Lanes) -> None:
        merged = np.where(lanes_of(self.mask), value, self.get(index))
        write_lanes(self.warp.address + self.program.slots[index], merged, self._width(index))

    def _width(self, index: int) -> int:
        return self.program.registers[index].width

    def field(self, field: RecordField) -> Lanes:
        record = self.warp
        if field.via:
            record = Record(POINTEES[field.via], getattr(record, field.via))
        value = getattr(record, field.name)
        return self.const(32, int(value[field.index] if isinstance(value, np.ndarray) else value))

    def thread_index(self, axis: str) -> Lanes:
        indices: Lanes = getattr(self.warp, f"tid_{axis}")
        return indices.copy()

    def clock(self, ticks: int) -> Lanes:
        self.warp.budget -= ticks
        return self.const(64, Record(Worker, self.warp.worker).steps - self.warp.budget)

    def carry(self) -> Lanes:
        return lanes_of(self.warp.carry)

    def set_carry(self, p: Lanes) -> None:
        self.warp.carry = self.warp.carry & ~self.mask | word_of(p) & self.mask

    # --- native code ---

    def call_native(self, function: Native, *arguments: int) -> int:
        return self.library.call(function, self.warp.address, *arguments)

    def check(self, failed: int) -> None:
        if failed:
            raise Fault

    def at(self, name: str, offset: int = 0) -> int:
        """The address of an area of the frame."""
        return int(self.warp.address + WarpRecord.offset(name) + offset)

    def store_area(self, name: str, value: Lanes, index: int = 0) -> None:
        width = self.width(value)
        write_lanes(self.at(name, index * 4 * width), value, width)

    def load_area(self, name: str, width: int, index: int = 0) -> Lanes:
        return read_lanes(self.at(name, index * 4 * width), width)


class StepPart:
    """A part of the stepping evaluator ``m``: one family of primitives."""

    def __init__(self, m: StepContext) -> None:
        self.m = m


def read_lanes(address: int, width: int) -> Lanes:
    """Load 32 lanes from memory; a predicate is a 32-bit word."""
    if width == 1:
        return lanes_of(int(_array(address, 32, 1)[0]))
    if width == 128:
        halves: Lanes = _array(address, 64, 64).astype(object)
        value: Lanes = halves[0::2] | halves[1::2] << 64
        return value
    return _array(address, width, 32).copy()


def write_lanes(address: int, value: Lanes, width: int) -> None:
    if width == 1:
        _array(address, 32, 1)[0] = word_of(value)
    elif width == 128:
        halves = _array(address, 64, 64)
        halves[0::2] = (value & LOW).astype(np.uint64)
        halves[1::2] = (value >> 64).astype(np.uint64)
    else:
        _array(address, width, 32)[:] = value


def _array(address: int, width: int, count: int) -> Lanes:
    raw = (ctypes.c_uint8 * (width // 8 * count)).from_address(address)
    return np.ctypeslib.as_array(raw).view(UNSIGNED[width])
