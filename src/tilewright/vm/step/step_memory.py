"""Registers and memory of the stepping evaluator: NumPy views of the frame, and the same native
functions that compiled code calls.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import MetadataError
from ...mma import Instruction, ldmatrix
from ...mma.operand_fragments import chunk
from ...mma.sparse_metadata import positions
from ...native.native_language import Native, u64
from ...native.native_record import Record, view
from ..codegen.code_library import Library
from ..engine import async_copies, ldmatrix_stmatrix, memory_access, vector_access, wgmma_operands
from ..matrix.mma_sparse import CODE
from ..program.evaluator import Evaluator, combine
from ..state.records import SPACES, WRITES, Cta, Launch, Warp, Worker
from ..state.special_fields import Field
from .numpy_primitives import NumpyValues

Lanes = npt.NDArray[Any]
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
POINTEES = {"cta": Cta, "launch": Launch}
LOW = 2**64 - 1


class Fault(Exception):
    """Native code reported a fault; it is in the worker's record."""


def lanes_of(mask: int) -> Lanes:
    """32 bits as a predicate."""
    return (np.uint32(mask) >> np.arange(32, dtype=np.uint32) & 1).astype(bool)


def word_of(p: Lanes) -> int:
    """A predicate as 32 bits."""
    return int(np.packbits(p, bitorder="little").view(np.uint32)[0])


class SteppedMemory(NumpyValues, Evaluator):
    """Evaluates on behalf of the warp whose record is ``warp``."""

    warp: Record
    arch: str
    library: Library

    # --- registers ---

    def get(self, index: int) -> Lanes:
        return _read(self.warp.address + self.program.slots[index], self._width(index))

    def put(self, index: int, value: Lanes) -> None:
        merged = np.where(lanes_of(self.mask), value, self.get(index))
        _write(self.warp.address + self.program.slots[index], merged, self._width(index))

    def _width(self, index: int) -> int:
        return self.program.registers[index].width

    def field(self, field: Field) -> Lanes:
        record = self.warp
        if field.via:
            record = Record(POINTEES[field.via], getattr(record, field.via))
        value = getattr(record, field.name)
        return self.const(32, int(value[field.index] if isinstance(value, np.ndarray) else value))

    def thread_index(self, axis: str) -> Lanes:
        return getattr(self.warp, f"tid_{axis}").copy()

    def clock(self, ticks: int) -> Lanes:
        self.warp.budget -= ticks
        return self.const(64, Record(Worker, self.warp.worker).steps - self.warp.budget)

    def carry(self) -> Lanes:
        return lanes_of(self.warp.carry)

    def set_carry(self, p: Lanes) -> None:
        self.warp.carry = self.warp.carry & ~self.mask | word_of(p) & self.mask

    # --- native code ---

    def native(self, function: Native, *arguments: int) -> int:
        """Call native code with this warp."""
        return self.library.call(function, self.warp.address, *arguments)

    def checked(self, function: Native, *arguments: int) -> None:
        """Call native code that may report a fault."""
        self.check(self.native(function, *arguments))

    runtime = native

    def check(self, failed: int) -> None:
        if failed:
            raise Fault

    def at(self, name: str, offset: int = 0) -> int:
        """The address of an area of the frame."""
        return int(self.warp.address + Warp.offset(name) + offset)

    def set_line(self, name: str, value: Lanes, index: int = 0) -> None:
        width = self.width(value)
        _write(self.at(name, index * 4 * width), value, width)

    def line(self, name: str, width: int, index: int = 0) -> Lanes:
        return _read(self.at(name, index * 4 * width), width)

    def _space(self, name: str) -> int:
        return SPACES[self.space(name)]

    def _hosts(
        self, mask: int, space: str, address: Lanes, size: int, writes: int = 0
    ) -> list[int]:
        """Host addresses, of those lanes; the others' mean nothing."""
        self.warp.addresses[:] = address
        self.checked(
            memory_access.resolve_lanes, mask, self._space(space) + writes, size, self.op.pc
        )
        return [int(a) for a in self.warp.addresses]

    # --- memory ---

    def load(self, space: str, address: Lanes, width: int, count: int = 1) -> tuple[Lanes, ...]:
        self.warp.addresses[:] = address
        out, size = self.at("results"), width // 8
        common = (self.mask, self._space(space), out)
        self.checked(vector_access.load_n, *common, size, count, self.op.pc)
        return tuple(_read(out + e * 32 * size, width) for e in range(count))

    def store(self, space: str, address: Lanes, values: tuple[Lanes, ...]) -> None:
        self.warp.addresses[:] = address
        width = self.width(values[0])
        values_at, size = self.at("operands"), width // 8
        for e, value in enumerate(values):
            _write(values_at + e * 32 * size, value, width)
        common = (self.mask, self._space(space), values_at)
        self.checked(vector_access.store_n, *common, size, len(values), self.op.pc)

    def reach(self, space: str, address: Lanes, width: int) -> None:
        self.warp.addresses[:] = address
        self.checked(memory_access.reach, self.mask, self._space(space), width // 8, self.op.pc)

    def atomic(self, space: str, op: str, type_: str, address: Lanes, *operands: Lanes) -> Lanes:
        width = self.width(operands[0])
        in_global = self.in_space("global", address)
        if self.space(space):
            in_global = self.const(1, self.space(space) == "global")
        hosts = self._hosts(self.mask, space, address, width // 8, WRITES)
        result = self.const(width, 0)
        for lane in np.flatnonzero(lanes_of(self.mask)):
            raw = (ctypes.c_uint8 * (width // 8)).from_address(hosts[lane])
            old = int.from_bytes(bytes(raw), "little")
            new = combine(self, op, type_, self.const(width, old), operands, in_global)
            result[lane] = old
            raw[:] = int(new[lane]).to_bytes(width // 8, "little")
        return result

    def cp_async(self, shared: Lanes, global_: Lanes, size: int, valid: Lanes) -> None:
        self.warp.addresses[:], self.warp.addresses2[:] = shared, global_
        _write(self.at("operands"), valid, 32)
        self.checked(async_copies.copy_async, self.mask, size, self.at("operands"), self.op.pc)

    def cp_async_commit(self) -> None:
        self.checked(async_copies.commit_async, self.mask)

    def cp_async_wait(self, pending: int) -> None:
        self.checked(async_copies.wait_async, self.mask, pending)

    # --- matrices ---

    def ldmatrix(self, space: str, address: Lanes, count: int, trans: bool) -> tuple[Lanes, ...]:
        """Whole rows first, then each lane takes its elements by the fragment's layout."""
        rows = np.zeros((8 * count, 8), np.uint16)
        if self.mask:
            hosts = self._hosts((1 << 8 * count) - 1, space, address, 16)
            for row, host in enumerate(hosts[: 8 * count]):
                rows[row] = view(host, u64, 2).view(np.uint16)
        return tuple(ldmatrix(count, trans).registers(rows).T)

    def stmatrix(self, space: str, address: Lanes, values: tuple[Lanes, ...], trans: bool) -> None:
        self.warp.addresses[:] = address
        for i, value in enumerate(values):
            self.set_line("operands", value, i)
        arguments = (self.mask, self._space(space), int(trans), self.at("operands"), len(values))
        self.checked(ldmatrix_stmatrix.store_matrix, *arguments, self.op.pc)

    def mma(
        self,
        instruction: Instruction,
        a: tuple[Lanes, ...],
        b: tuple[Lanes, ...],
        c: tuple[Lanes, ...],
        metadata: Lanes | None = None,
        selectors: tuple[int, ...] = (),
        scale_a: Lanes | None = None,
        scale_b: Lanes | None = None,
    ) -> tuple[Lanes, ...]:
        row = instruction.on(self.arch)
        if self.mask == 0:  # no lane takes it, whatever metadata is there
            d = row.fragment("d")
            return tuple(np.zeros((d.count, 32), f"u{d.word // 8}"))
        operands = (np.stack(x, axis=-1) for x in (a, b, c))
        given = {"metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
        extra = {name: x[:, None] for name, x in given.items() if x is not None}
        if metadata is not None:
            copy = row.copies(selectors).get("metadata", 0)
            self.selects(row, row.fragment("metadata").matrix(extra["metadata"], copy))
        return tuple(row.execute(*operands, selectors=selectors, **extra).T)

    def selects(self, row: Instruction, codes: Lanes) -> None:
        """A fault where a row's metadata selects nothing."""
        for number, some in enumerate(codes):
            try:
                positions(some[None], chunk(row.a, row.kind), row.ordered)
            except MetadataError as error:
                status = number + 1 | int(error.message.split()[1], 2) << CODE
                self.checked(wgmma_operands.selects_nothing, status, self.op.pc)


def _read(address: int, width: int) -> Lanes:
    """32 lanes of memory as a value; a predicate is a word."""
    if width == 1:
        return lanes_of(int(_array(address, 32, 1)[0]))
    if width == 128:
        parts = _array(address, 64, 64).astype(object)
        return parts[0::2] | parts[1::2] << 64
    return _array(address, width, 32).copy()


def _write(address: int, value: Lanes, width: int) -> None:
    if width == 1:
        _array(address, 32, 1)[0] = word_of(value)
    elif width == 128:
        parts = _array(address, 64, 64)
        parts[0::2] = (value & LOW).astype(np.uint64)
        parts[1::2] = (value >> 64).astype(np.uint64)
    else:
        _array(address, width, 32)[:] = value


def _array(address: int, width: int, count: int) -> Lanes:
    raw = (ctypes.c_uint8 * (width // 8 * count)).from_address(address)
    return np.ctypeslib.as_array(raw).view(UNSIGNED[width])
