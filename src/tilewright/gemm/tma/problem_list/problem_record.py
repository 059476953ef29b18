"""A problem's record in the table, as the kernel reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from ....builder import Builder, Pointer, Reg
from ...epilogue.bound_epilogue import BoundEpilogue
from ...kernel_scalars import global_pointer

MAP_BYTES = 128
MAPS = {"a": 0, "b": MAP_BYTES, "d": 2 * MAP_BYTES}  # byte offsets
SIZES = 3 * MAP_BYTES  # M, N, K, and the number of the first work tile: u32
ADDRESS_OF_D = SIZES + 16  # u64, and its leading dimension in elements
OPERANDS = ADDRESS_OF_D + 16
OPERAND_BYTES = 32  # address, strides along M and N in elements: u64; and a number in f32
STRIDE_M, STRIDE_N, NUMBER = 8, 16, 24


def record_bytes(epilogue: BoundEpilogue | None) -> int:
    """Bytes of a record: the maps of the next one are aligned, too."""
    inputs = 0 if epilogue is None else len(epilogue.inputs)
    return -(-(OPERANDS + inputs * OPERAND_BYTES) // MAP_BYTES) * MAP_BYTES


class ProblemSizes(NamedTuple):
    """The sizes of a problem, and the number of its first work tile."""

    m: Reg
    n: Reg
    depth: Reg
    first_tile: Reg


class ProblemTableReader:
    """The table at the generic address ``table``, of records of ``pitch`` bytes."""

    def __init__(self, k: Builder, table: Reg, pitch: int) -> None:
        self.k, self.table, self.pitch = k, table, pitch

    def record(self, number: Any) -> Reg:
        """The generic address of a record."""
        address: Reg = self.k.emit("mad.wide.u32", number, self.pitch, self.table)
        return address

    def map(self, number: Any, matrix: str) -> Reg:
        """The address of the tensor map of ``a``, ``b`` or ``d``."""
        return self.record(number) + MAPS[matrix]

    def at(self, number: Any, offset: int) -> Pointer:
        """A field of a record, in global memory."""
        return global_pointer(self.k, self.record(number)) + offset

    def sizes(self, number: Any) -> ProblemSizes:
        """Load the sizes of a problem."""
        return ProblemSizes(*self.at(number, SIZES).cast("u32").aligned(16).load(4))


class ProblemRecord(NamedTuple):
    """The record of a work tile's problem; its sizes are loaded."""

    reader: ProblemTableReader
    number: Any
    sizes: ProblemSizes

    def map(self, matrix: str) -> Reg:
        """The address of the tensor map of ``a``, ``b`` or ``d``."""
        return self.reader.map(self.number, matrix)

    def d(self) -> tuple[Pointer, Reg]:
        """D and its leading dimension."""
        fields = self.reader.at(self.number, ADDRESS_OF_D)
        address, leading = fields.cast("u64").aligned(16).load(2)
        return self.reader.k.pointer("global", "b8", address), leading

    def operands(self, epilogue: BoundEpilogue) -> SimpleNamespace:
        """The inputs of an epilogue that are arrays, as a kernel's parameters are named."""
        values: dict[str, Any] = {}
        for i, (name, source, _) in enumerate(epilogue.named_inputs()):
            if source.varies:
                slot = self.reader.at(self.number, OPERANDS + i * OPERAND_BYTES)
                slot = slot.cast("u64").aligned(16)
                values[name], values[f"{name}_m"] = slot.load(2)
                values[f"{name}_n"] = (slot + STRIDE_N // 8).load(1)[0]
        return SimpleNamespace(**values)
