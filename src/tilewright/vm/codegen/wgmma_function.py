"""One function for each ``wgmma.mma_async``: unpacks a warp's operands to scratch, calls the core.

    i64 f(ptr warp, ptr d, ptr a, ptr metadata, i64 mask, i64 scale_d, i64 options, i64 pc)

``d`` (also written), ``a`` and ``metadata`` are registers of 32 lanes. Descriptors are in the
warp's ``addresses`` and ``addresses2``. ``options`` are the immediates (``wgmma_operands``). The
result is 1 after a fault. The part of one warp is an instruction of 16 rows.
"""

from __future__ import annotations

from dataclasses import replace

import llvmlite.ir as ir

from ...dtypes import dtype
from ...mma import MmaInstruction
from ...native.llvm_types import I64, POINTER, declare
from ...native.native_language import Native
from ..engine import wgmma_operands as native
from ..engine.wgmma_operands import FROM_SHARED, NEGATE, ROWS
from ..llvm.vector_memory import at, counted_loop, scaled, stack_buffer
from ..matrix.mma_core import core
from ..matrix.mma_function import symbol
from ..matrix.mma_plan import columns, element, plan
from ..matrix.mma_registers import load, store
from ..matrix.mma_sparse import expand

LINE = 4 * 32  # bytes of a register of 32 lanes
BLOCK = 8  # columns of D after which its layout repeats
KIND = ir.FunctionType(I64, [POINTER] * 4 + [I64] * 4)


def part(i: MmaInstruction) -> MmaInstruction:
    """The part of an instruction that one warp computes."""
    return replace(i, m=ROWS)


def stored(i: MmaInstruction) -> int:
    """The words of a row of A as stored in memory."""
    return i.stored_k * dtype(i.a).bits // element(dtype(i.a))


def shape(i: MmaInstruction) -> int:
    """The shapes of the operands in shared memory, packed for ``wgmma_groups.issue``."""
    return element(dtype(i.a)) << 48 | i.n << 32 | plan(part(i)).k << 16 | stored(i)


class WgmmaFunction:
    """Emits one instruction's function."""

    def __init__(self, module: ir.Module, instruction: MmaInstruction) -> None:
        i = self.i = part(instruction)
        self.module, self.plan = module, plan(i)
        assert columns(i) == tuple(range(self.plan.k)), "shared memory is read in the order of k"
        self.core = core(module, self.plan)
        self.core.linkage = "internal"
        self.function = ir.Function(module, KIND, symbol(instruction))
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.stored_k = stored(i)

    def emit(self) -> ir.Function:
        b, sizes = self.b, self.plan.bytes
        warp, d, a, metadata, mask, scale_d, options, pc = self.function.args
        self.warp, self.options, self.pc = warp, options, pc
        areas = {name: stack_buffer(b, size) for name, size in sizes.items()}
        stored = stack_buffer(b, sizes["a"]) if self.i.sparse else areas["a"]
        codes = stack_buffer(b, sizes["a"]) if self.i.sparse else stored
        with b.if_then(b.icmp_unsigned("==", mask, I64(0))):
            b.ret(I64(0))
        self.check(native.check_operands, mask, options, pc)
        self.left(a, stored)
        if self.i.sparse:
            self.expand_sparse(stored, metadata, codes, areas["a"])
        self.gather(native.gather_b, self.i.b, self.plan.n, self.plan.k, areas["b"])
        self.start(scale_d, d, areas["c"])
        b.call(self.core, [areas[x] for x in "abcd"])
        with counted_loop(b, self.plan.n // BLOCK) as block:
            store(b, self.block, "d", self.columns(areas["d"], block), self.registers(d, block))
        b.ret(I64(0))
        return self.function

    # --- calls ---

    def call(self, function: Native, *arguments: ir.Value | int) -> ir.Value:
        values = [I64(x) if isinstance(x, int) else x for x in arguments]
        return self.b.call(declare(self.module, function), values)

    def check(self, function: Native, *arguments: ir.Value | int) -> None:
        """Call native code with the warp; return 1 after a fault."""
        failed = self.b.icmp_unsigned("!=", self.call(function, self.warp, *arguments), I64(0))
        with self.b.if_then(failed, likely=False):
            self.b.ret(I64(1))

    def gather(self, function: Native, type_: str, *shape_and_target: ir.Value | int) -> None:
        """Load an operand from shared memory to scratch."""
        self.check(function, self.options, element(dtype(type_)), *shape_and_target, self.pc)

    def has(self, option: int) -> ir.Value:
        return self.b.icmp_unsigned("!=", self.b.and_(self.options, I64(option)), I64(0))

    # --- A ---

    def left(self, registers: ir.Value, out: ir.Value) -> None:
        """A as it is stored, with unused bits cleared; negated if the product is negated."""
        b, t = self.b, self.plan.how.a
        with b.if_else(self.has(FROM_SHARED)) as (from_shared, from_registers):
            with from_shared:
                self.gather(native.gather_a, self.i.a, self.stored_k, out)
            with from_registers:
                load(b, self.i, "a", registers, out)
        if t.kind == "float":
            sign = b.select(self.has(NEGATE), I64(1 << (t.bits - 1)), I64(0))
            self.call(native.mask_words, out, ROWS * self.stored_k, -(1 << t.unused), sign)

    def expand_sparse(
        self, stored: ir.Value, metadata: ir.Value, codes: ir.Value, out: ir.Value
    ) -> None:
        """Expand sparse A to dense A; fault if the metadata is invalid."""
        load(self.b, self.i, "metadata", metadata, codes)
        self.check(native.check_metadata, expand(self.b, self.i, stored, codes, out), self.pc)

    # --- C and D ---

    @property
    def block(self) -> MmaInstruction:
        """The instruction on one block of columns of D."""
        return replace(self.i, n=BLOCK)

    def start(self, scale_d: ir.Value, registers: ir.Value, out: ir.Value) -> None:
        """The accumulator: from the registers, or zeros if ``scale_d`` is 0."""
        b = self.b
        with b.if_else(b.icmp_unsigned("!=", scale_d, I64(0))) as (accumulate, zero):
            with accumulate, counted_loop(b, self.plan.n // BLOCK) as block:
                load(b, self.block, "c", self.registers(registers, block), self.columns(out, block))
            with zero:
                self.call(native.fill_words, out, ROWS * self.plan.n, 0)

    def columns(self, area: ir.Value, block: ir.Value) -> ir.Value:
        """The address of a block of columns in scratch."""
        return at(self.b, area, scaled(self.b, block, 4 * ROWS * BLOCK))

    def registers(self, registers: ir.Value, block: ir.Value) -> ir.Value:
        """The address of the registers of a block of columns."""
        return at(self.b, registers, scaled(self.b, block, LINE * self.block.fragment("d").count))
