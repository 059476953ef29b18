"""The compiled evaluator: basic blocks are lowered to LLVM IR.

A region is one LLVM function over consecutive blocks of a kernel: ``i64 region(ptr warp)``
continues at ``warp.block`` until the warp waits, exits, faults, or branches to another region.
Within a block registers are LLVM values. A register that is live across blocks is loaded from its
slot in the warp's frame at its first use and stored at the end of the block. In a kernel whose
branches are all warp-uniform, the execution masks cost nothing; in any other kernel a store to a
slot preserves the inactive lanes.
"""

from __future__ import annotations

from typing import Self

import llvmlite.ir as ir

from ...native.llvm_types import I32
from ..engine.async_evaluator import AsyncEvaluator
from ..engine.host_calls import HostCallEvaluator
from ..engine.local_stack import StackEvaluator
from ..program.bound_operands import CodeBlock, Op
from ..program.evaluator import Value
from ..program.kernel_metadata import region_name
from ..program.primitive_parts import composed_of
from ..program.program import Program
from .region_context import RegionContext
from .region_control import RegionControlFlow
from .region_fast_memory import FastMemory
from .region_matrix import MatrixInstructions
from .region_memory import MemoryAccess
from .region_registers import RegionRegisters
from .region_wgmma import WgmmaInstructions


@composed_of(
    control=RegionControlFlow,
    memory=MemoryAccess,
    matrix=MatrixInstructions,
    wgmma_instructions=WgmmaInstructions,
    asynchronous=AsyncEvaluator,
    host_calls=HostCallEvaluator,
    stack=StackEvaluator,
)
class Region(RegionContext):
    """Compiles blocks ``first`` … ``last - 1`` of a program into one function of ``module``."""

    def __init__(
        self, program: Program, module: ir.Module, first: int, last: int, arch: str
    ) -> None:
        super().__init__(program, module, region_name(first), arch)
        heads = {i: self.new_block(f"block{i}") for i in range(first, last)}
        self.registers = RegionRegisters(self)
        self.control = RegionControlFlow(self, self.registers, heads)
        self.fast_memory = FastMemory(self, self.registers, last - first == len(program.blocks))
        self.memory = MemoryAccess(self, self.fast_memory)
        self.matrix = MatrixInstructions(self, self.fast_memory)
        self.wgmma_instructions = WgmmaInstructions(self, self.control, self.matrix)
        self.asynchronous, self.host_calls, self.stack = (
            AsyncEvaluator(self),
            HostCallEvaluator(self),
            StackEvaluator(self),
        )

    @classmethod
    def create(cls, program: Program, module: ir.Module, first: int, last: int, arch: str) -> Self:
        """An instance. (``composed_of`` adds primitives that type checkers take for abstract.)"""
        return cls(program, module, first, last, arch)

    def compile(self) -> None:
        for index in self.control.heads:
            self.block(self.program.blocks[index])
        self.entry.branch(self.control.switch)

    def block(self, block: CodeBlock) -> None:
        self.current = block
        self.registers.begin_block()
        self.control.begin_block()
        self.wgmma_instructions.begin_block()
        self.b.position_at_end(self.control.heads[block.index])
        self.active_mask = self.load_field("active", I32)
        for op in block.ops:
            self.prepare(op)
            self.operate(op)
        if self.control.ended:
            return
        self.guard = None
        self.registers.flush()
        if block.index + 1 < len(self.program.blocks):
            self.control.goto(block.index + 1)
        else:
            self.control.leave(self.active_mask, None)

    def prepare(self, op: Op) -> None:
        """Set the guard and the execution mask of an operation."""
        self.guard, self.mask = None, self.active_mask
        if op.guard:
            self.guard = self.get(op.guard.index)
            if op.negated:
                self.guard = self.b.not_(self.guard)
            self.mask = self.b.and_(self.active_mask, self.to_mask(self.guard))

    # --- methods of ``Evaluator`` that one part implements ---

    def get(self, index: int) -> Value:
        return self.registers.get(index)

    def put(self, index: int, value: Value) -> None:
        self.registers.put(index, value)

    def shared_address(self, offset: int) -> Value:
        return self.fast_memory.shared_address(offset)

    def gather(self, rule: str) -> None:
        self.control.gather(rule)

    def check_wgmma_registers(self, sets: int) -> None:
        self.wgmma_instructions.check_wgmma_registers(sets)

    def sleep_unless(self, code: ir.Value) -> None:
        self.control.sleep_unless(code)

    # --- primitives of more than one part ---

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        self.asynchronous.check_wgmma_memory(
            space, address, self.width(values[0]) // 8 * len(values)
        )
        self.memory.store(space, address, values)

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        self.asynchronous.check_wgmma_memory(space, address, self.width(operands[0]) // 8)
        return self.memory.atomic(space, op, type_, address, *operands)

    def fence(self, kind: str) -> None:
        with self.b.if_then(self.fast_memory.checked, likely=False):
            self.asynchronous.fence(kind)
