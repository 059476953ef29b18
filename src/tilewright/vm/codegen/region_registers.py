"""A region's registers: LLVM values inside a block, slots of the warp's frame between blocks."""

from __future__ import annotations

import llvmlite.ir as ir

from ...native.llvm_types import I32
from ..program.evaluator import Value
from .region_context import RegionContext, RegionPart, lanes


class RegionRegisters(RegionPart):
    """Registers of the block that is being compiled.

    ``values``: the registers that the block has read or written. ``dirty``: those to write back at
    its end. ``uniform``: the values that are equal in all lanes, by their ``id``.
    """

    def __init__(self, m: RegionContext) -> None:
        super().__init__(m)
        self.begin_block()

    def begin_block(self) -> None:
        self.values: dict[int, Value] = {}
        self.dirty: dict[int, None] = {}
        self.uniform: dict[int, Value] = {}

    def slot(self, index: int) -> ir.Value:
        return self.m.frame_address(self.m.program.slots[index])

    def load_slot(self, index: int) -> Value:
        width = self.m.program.registers[index].width
        if width == 1:
            return self.m.bits(self.b.load(self.slot(index), typ=I32))
        return self.b.load(self.slot(index), typ=lanes(width), align=min(64, 4 * width))

    def store_slot(self, index: int, value: Value) -> None:
        width = self.m.program.registers[index].width
        if width == 1:
            self.b.store(self.m.to_mask(value), self.slot(index))
        else:
            self.b.store(value, self.slot(index), align=min(64, 4 * width))

    def get(self, index: int) -> Value:
        if index not in self.values:
            self.define_register(index, self.load_slot(index))
        return self.values[index]

    def put(self, index: int, value: Value) -> None:
        if self.m.guard is not None:
            value = self.b.select(self.m.guard, value, self.get(index))
        self.define_register(index, value)
        if self.m.program.live[self.m.current.index] >> index & 1:
            self.dirty[index] = None

    def define_register(self, index: int, value: Value) -> None:
        self.values[index] = value
        if index not in self.m.program.varying:
            self.uniform[id(value)] = value

    def flush(self) -> None:
        """Write the changed registers back to the frame."""
        if not self.dirty:
            return
        active = self.m.bits(self.m.active_mask) if self.m.program.divergent else None
        for index in self.dirty:
            value = self.values[index]
            if active is not None:
                value = self.b.select(active, value, self.load_slot(index))
            self.store_slot(index, value)
        self.dirty.clear()
