"""One function for each matrix instruction of a warp: unpacks registers to scratch memory, calls
the core, and packs D.

    i64 f(ptr a, ptr b, ptr c, ptr d, ptr metadata, ptr scale_a, ptr scale_b)

Operands are registers of 32 lanes in memory, 32 bits each (64 bits for f64). Metadata and scales
are in the lanes and bytes that selectors of 0 name. The result is 0, or a status for invalid
metadata (``mma_sparse``).
"""

from __future__ import annotations

import llvmlite.ir as ir

from ...errors import PtxCheckError
from ...mma import MmaInstruction
from ...native.llvm_types import I64, POINTER
from ..llvm.vector_memory import at, stack_buffer
from .mma_core import compiled, core
from .mma_plan import plan, sides
from .mma_registers import load, store
from .mma_sparse import expand

OPERANDS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
KIND = ir.FunctionType(I64, [POINTER] * len(OPERANDS))


def symbol(instruction: MmaInstruction) -> str:
    """The name of an instruction's function."""
    opcode = instruction.opcode.replace(".", "_").replace("::", "_")
    return f"tw_{opcode}_{instruction.arch}"


class MmaFunction:
    """Emits one instruction's function."""

    def __init__(self, module: ir.Module, instruction: MmaInstruction) -> None:
        if not compiled(instruction.arithmetic):
            raise PtxCheckError(
                f"the virtual machine does not support {instruction} as {instruction.arch} has it"
            )
        self.i, self.plan = instruction, plan(instruction)
        self.core = core(module, self.plan)
        self.core.linkage = "internal"
        self.function = ir.Function(module, KIND, symbol(instruction))
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.operand_pointers = dict(zip(OPERANDS, self.function.args, strict=True))

    def emit(self) -> ir.Function:
        b, i, sizes = self.b, self.i, self.plan.bytes
        areas = {name: stack_buffer(b, i.tiles * size) for name, size in sizes.items()}
        left, right = (areas[s] for s in sorted("ab", key=sides(i).index))
        status = self.sparse(left) if i.sparse else I64(0)
        if not i.sparse:
            self.load("a", left)
        self.load("b", right)
        self.load("c", areas["c"])
        scales = [self.load(x, areas[x]) for x in ("scale_a", "scale_b") if i.stype]
        for tile in range(i.tiles):
            starts = [at(b, areas[name], tile * sizes[name]) for name in "abcd"]
            b.call(self.core, [*starts, *scales])
        store(b, i, "d", areas["d"], self.operand_pointers["d"])
        b.ret(status)
        return self.function

    def load(self, name: str, area: ir.Value) -> ir.Value:
        load(self.b, self.i, name, self.operand_pointers[name], area)
        return area

    def sparse(self, out: ir.Value) -> ir.Value:
        """Expand sparse A to ``out``; the status of its metadata."""
        stored, codes = (stack_buffer(self.b, self.plan.bytes["a"]) for _ in range(2))
        self.load("a", stored)
        self.load("metadata", codes)
        return expand(self.b, self.i, stored, codes, out)
