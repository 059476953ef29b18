"""Blocks become machine code: the compiled evaluator.

A region is one LLVM function over a run of a kernel's blocks: ``i64 region(ptr warp)`` goes on at
``warp.block`` until the warp must wait, ends, faults, or leaves for another region. Inside a block
registers are LLVM values; what crosses blocks is read from the frame at its first use, and what is
still to be read is written back at the block's end. In a kernel whose branches are all uniform the
masks cost nothing; otherwise a write keeps the lanes that are elsewhere.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ...native.llvm_types import I32, I64, POINTER
from ..engine.async_evaluator import Asynchronous
from ..engine.host_calls import Calls
from ..engine.local_stack import Stack
from ..program.bound_operands import CodeBlock, Op
from ..program.evaluator import Value
from ..program.kernel_metadata import region_name
from ..program.program import Program
from .frame_access import lanes
from .region_control import Control
from .region_wgmma import Products


class Region(Control, Products, Asynchronous, Calls, Stack):
    """Compiles blocks ``first`` … ``last - 1`` of a program into one function of ``module``."""

    def __init__(
        self, program: Program, module: ir.Module, first: int, last: int, arch: str
    ) -> None:
        self.program, self.module, self.arch = program, module, arch
        self.small = last - first == len(program.blocks)
        self.function = ir.Function(module, ir.FunctionType(I64, [POINTER]), region_name(first))
        self.warp = self.function.args[0]
        self.entry, self.places, self.once_made = ir.IRBuilder(self.block_of("entry")), {}, {}
        self.heads = {i: self.block_of(f"block{i}") for i in range(first, last)}
        super().__init__(ir.IRBuilder(self.entry.block), module, I32(0))

    def compile(self) -> None:
        for index in self.heads:
            self.block(self.program.blocks[index])
        self.entry.branch(self.switch)

    def block(self, block: CodeBlock) -> None:
        self.current, self.ended = block, False
        self.values: dict[int, Value] = {}
        self.dirty: dict[int, None] = {}
        self.even: dict[int, Value] = {}
        self.b.position_at_end(self.heads[block.index])
        self.active_mask = self.peek("active", I32)
        self.settled, self.gathered = 0, False
        for op in block.ops:
            self.prepare(op)
            self.operate(op)
        if self.ended:
            return
        self.guard = None
        self.flush()
        if block.index + 1 < len(self.program.blocks):
            self.goto(block.index + 1)
        else:
            self.leave(self.active_mask, None)

    def prepare(self, op: Op) -> None:
        """Guard and mask of an operation."""
        self.guard, self.mask = None, self.active_mask
        if op.guard:
            self.guard = self.get(op.guard.index)
            if op.negated:
                self.guard = self.b.not_(self.guard)
            self.mask = self.b.and_(self.active_mask, self.word(self.guard))

    def fence(self, kind: str) -> None:
        with self.b.if_then(self.checked, likely=False):
            super().fence(kind)

    # --- registers ---

    def slot(self, index: int) -> ir.Value:
        return self.place(self.program.slots[index])

    def load_slot(self, index: int) -> Value:
        width = self.program.registers[index].width
        if width == 1:
            return self.bits(self.b.load(self.slot(index), typ=I32))
        return self.b.load(self.slot(index), typ=lanes(width), align=min(64, 4 * width))

    def store_slot(self, index: int, value: Value) -> None:
        width = self.program.registers[index].width
        if width == 1:
            self.b.store(self.word(value), self.slot(index))
        else:
            self.b.store(value, self.slot(index), align=min(64, 4 * width))

    def get(self, index: int) -> Value:
        if index not in self.values:
            self.know(index, self.load_slot(index))
        return self.values[index]

    def put(self, index: int, value: Value) -> None:
        if self.guard is not None:
            value = self.b.select(self.guard, value, self.get(index))
        self.know(index, value)
        if self.program.live[self.current.index] >> index & 1:
            self.dirty[index] = None

    def know(self, index: int, value: Value) -> None:
        self.values[index] = value
        if index not in self.program.varying:
            self.even[id(value)] = value

    def flush(self) -> None:
        """Write what this block changed back to the frame."""
        if not self.dirty:
            return
        active = self.bits(self.active_mask) if self.program.divergent else None
        for index in self.dirty:
            value = self.values[index]
            if active is not None:
                value = self.b.select(active, value, self.load_slot(index))
            self.store_slot(index, value)
        self.dirty.clear()
