"""State that the parts of a ``Region`` share: the builder, the warp's frame, native calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llvmlite.ir as ir

from ...native.llvm_types import I8, I32, I64, POINTER, call
from ...native.native_language import Native
from ..llvm.folding_builder import FoldingBuilder, scalar_of
from ..llvm.llvm_primitives import LlvmValues
from ..program.evaluator import Evaluator, Value
from ..program.program import Program
from ..state.records import FAULT, WarpRecord, Worker
from ..state.special_fields import RecordField

LANES = 32


def lanes(width: int) -> ir.VectorType:
    """The type of a register: 32 lanes of an integer."""
    return ir.VectorType(ir.IntType(width), LANES)


class RegionContext(LlvmValues, Evaluator):
    """Emits code at the position of ``builder``; ``warp`` points to the frame.

    ``active_mask``: the lanes that execute the block. ``mask``: those of them whose guard holds.
    """

    warp: ir.Value
    active_mask: ir.Value
    guard: Value | None

    def __init__(self, program: Program, module: ir.Module, name: str, arch: str) -> None:
        self.program, self.arch = program, arch
        self.function = ir.Function(module, ir.FunctionType(I64, [POINTER]), name)
        self.warp = self.function.args[0]
        self.entry = FoldingBuilder(self.function.append_basic_block("entry"))
        self._frame_addresses: dict[int, ir.Value] = {}
        self._faulted: ir.Block | None = None
        super().__init__(FoldingBuilder(self.entry.block), module, I32(0))

    @property
    def b(self) -> ir.IRBuilder:
        return self.builder

    # --- records ---

    def at(self, name: str, offset: int = 0) -> ir.Value:
        """The address ``offset`` bytes after the start of a field of the warp's record."""
        return self.frame_address(WarpRecord.offset(name) + offset)

    def frame_address(self, offset: int) -> ir.Value:
        """The address at an offset in the frame; computed once, at the entry of the region."""
        if offset not in self._frame_addresses:
            self._frame_addresses[offset] = self.entry.gep(
                self.warp, [I64(offset)], source_etype=I8
            )
        return self._frame_addresses[offset]

    def load_field(self, name: str, type_: ir.Type = I64) -> ir.Value:
        return self.b.load(self.at(name), typ=type_)

    def store_field(self, name: str, value: ir.Value) -> None:
        self.b.store(value, self.at(name))

    def field(self, field: RecordField) -> Value:
        record = self.load_field(field.via, POINTER) if field.via else self.warp
        offset = field.record.offset(field.name) + 4 * field.index
        address = self.b.gep(record, [I64(offset)], source_etype=I8)
        return self._splat(self.b.load(address, typ=I32))

    def thread_index(self, axis: str) -> Value:
        return self.load_area(f"tid_{axis}", 32)

    def clock(self, ticks: int) -> Value:
        self.store_field("budget", self.b.sub(self.load_field("budget"), I64(ticks)))
        worker = self.load_field("worker", POINTER)
        steps = self.b.gep(worker, [I64(Worker.offset("steps"))], source_etype=I8)
        return self._splat(self.b.sub(self.b.load(steps, typ=I64), self.load_field("budget")))

    def load_area(self, name: str, width: int, index: int = 0) -> Value:
        size = LANES * width // 8
        address = self.at(name, index * size)
        return self.b.load(address, typ=lanes(width), align=min(64, size))

    def store_area(self, name: str, value: Value, index: int = 0) -> None:
        size = LANES * self.width(value) // 8
        self.b.store(value, self.at(name, index * size), align=min(64, size))

    def store_registers(self, name: str, *groups: tuple[Value, ...]) -> Iterator[ir.Value]:
        """Store groups of registers to an area, one after the other; yields the address of each
        group.
        """
        offset = 0
        for group in groups:
            yield self.at(name, offset)
            for value in group:
                self.b.store(value, self.at(name, offset), align=64)
                offset += LANES * self.width(value) // 8
        assert offset <= WarpRecord.fields[name][1].size, f"more registers than {name} holds"

    # --- masks ---

    def to_mask(self, p: Value) -> ir.Value:
        """A predicate as a mask of 32 bits."""
        return self.b.bitcast(p, I32)

    def bits(self, word: ir.Value) -> Value:
        """A mask of 32 bits as a predicate."""
        return self.b.bitcast(word, lanes(1))

    def first(self, value: Value) -> ir.Value:
        """The value in the first lane whose guard holds."""
        scalar = scalar_of(value)
        if scalar is not None:
            return scalar
        lane = self.b.cttz(self.mask, ir.IntType(1)(0))
        return self.b.extract_element(value, self.b.and_(lane, I32(LANES - 1)))

    def carry(self) -> Value:
        return self.bits(self.load_field("carry", I32))

    def set_carry(self, p: Value) -> None:
        others = self.b.and_(self.load_field("carry", I32), self.b.not_(self.mask))
        self.store_field("carry", self.b.or_(others, self.b.and_(self.to_mask(p), self.mask)))

    # --- code ---

    def new_block(self, name: str = "") -> ir.Block:
        return self.function.append_basic_block(name)

    def return_block(self, code: int) -> ir.Block:
        block = self.new_block()
        ir.IRBuilder(block).ret(I64(code))
        return block

    def branch_if(self, condition: ir.Value) -> tuple[ir.Block, ir.Block]:
        """Branch to one of two new blocks: the first if the condition holds, else the second."""
        yes, no = self.new_block(), self.new_block()
        self.b.cbranch(condition, yes, no)
        return yes, no

    def phi_of(self, *incoming: tuple[Value, ir.Block]) -> Value:
        """The value that belongs to the block from which control arrives."""
        phi = self.b.phi(incoming[0][0].type)
        for value, block in incoming:
            phi.add_incoming(value, block)
        return phi

    def compare(self, relation: str, a: ir.Value, b: int) -> ir.Value:
        """A signed comparison of a scalar with a constant."""
        return self.b.icmp_signed(relation, a, a.type(b))

    def call_native(self, function: Native, *arguments: Any) -> ir.Value:
        """Call native code with this warp; integers are extended to 64 bits."""
        values = [I64(a) if isinstance(a, int) else a for a in arguments]
        extended = [self.b.zext(a, I64) if a.type == I32 else a for a in values]
        return call(self.b, function, [self.warp, *extended])

    def check(self, failed: ir.Value) -> None:
        """Leave the region if native code reported a fault."""
        following = self.new_block()
        branch = self.b.cbranch(self.compare("!=", failed, 0), self.faulted, following)
        branch.set_weights([1, 1000])
        self.b.position_at_end(following)

    @property
    def faulted(self) -> ir.Block:
        """The block that reports a fault; one for each region."""
        if self._faulted is None:
            self._faulted = self.return_block(FAULT)
        return self._faulted


class RegionPart:
    """A part of region ``m``: emits one family of primitives at the position of its builder."""

    def __init__(self, m: RegionContext) -> None:
        self.m, self.b = m, m.builder
