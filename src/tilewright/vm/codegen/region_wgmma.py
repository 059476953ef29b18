"""``wgmma`` in compiled code: registers go through an area of the stack to the instruction's
function and back.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ...mma import Instruction
from ...native.llvm_types import I64
from ..engine import wgmma_groups
from ..engine.wgmma_operands import FROM_SHARED, NEGATE, TRANS_A, TRANS_B
from ..llvm.vector_memory import at, room
from ..matrix.mma_function import symbol
from ..program.evaluator import Value
from .frame_access import lanes
from .region_memory import MemoryAccess
from .wgmma_function import KIND, LINE, part, shape

MOST = 128 + 4 + 1  # registers of D, of A, and metadata


class Products(MemoryAccess):
    """What a region makes of a warpgroup's products."""

    settled: int  # sets of registers that no product under way has, as the block has found

    def wgmma(
        self,
        instruction: Instruction,
        d: tuple[Value, ...],
        a: Value | tuple[Value, ...],
        b_desc: Value,
        scale_d: Value,
        *,
        negate: bool,
        trans_a: bool,
        trans_b: bool,
        metadata: tuple[Value, int] | None,
    ) -> tuple[Value, ...]:
        """Computed at once and under way until its group was waited for (``products``)."""
        shared = not isinstance(a, tuple)
        how = FROM_SHARED * shared | TRANS_A * trans_a | TRANS_B * trans_b | NEGATE * negate
        row = instruction.on(self.arch)
        if shared:
            self.set_line("addresses", a)
        self.set_line("addresses2", b_desc)
        indices = () if metadata is None else (self._selected(part(row), "metadata", *metadata),)
        groups = (d, () if shared else a, indices)
        starts, index = [], 0
        for group in groups:
            starts.append(at(self.b, self.registers, index * LINE))
            for value in group:
                self.b.store(value, self.register(index), align=64)
                index += 1
        scalars = [self.mask, self.first(scale_d), I64(how), I64(self.op.pc)]
        wide = [self.b.zext(x, I64) if x.type != I64 else x for x in scalars]
        name = symbol(row)
        function = self.module.globals.get(name) or ir.Function(self.module, KIND, name)
        self.check(self.b.call(function, [self.warp, *starts, *wide]))
        used = self.program.wgmma_sets[self.op.pc]
        adds, size = wide[1], shape(row)
        self.check(self.runtime(wgmma_groups.issue, self.mask, used, adds, how, size, self.op.pc))
        self.settled = 0
        return tuple(self.b.load(self.register(i), typ=lanes(32), align=64) for i in range(len(d)))

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        self.spare(space, address, self.width(values[0]) // 8 * len(values))
        super().store(space, address, values)

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        self.spare(space, address, self.width(operands[0]) // 8)
        return super().atomic(space, op, type_, address, *operands)

    def wgmma_fence(self) -> None:
        self.sleep_unless(self.runtime(wgmma_groups.fence, self.mask))

    def wgmma_commit(self) -> None:
        self.runtime(wgmma_groups.commit, self.mask)

    def wgmma_wait(self, pending: int) -> None:
        self.sleep_unless(self.runtime(wgmma_groups.await_, self.mask, pending, self.op.pc))

    def meet(self, sets: int) -> None:
        """Asked once in a block, as long as no product is issued."""
        if not sets & ~self.settled:
            return
        if self.guard is None:
            self.settled |= sets
        held = self.b.and_(self.peek("in_flight"), I64(sets))
        some, none = self.fork(self.is_("!=", held, 0))
        self.b.position_at_end(some)
        self.check(self.runtime(wgmma_groups.touched, self.mask, sets, self.op.pc))
        self.b.branch(none)
        self.b.position_at_end(none)

    def register(self, index: int) -> ir.Value:
        return at(self.b, self.registers, index * LINE)

    @property
    def registers(self) -> ir.Value:
        """The area; one for each region."""
        if not hasattr(self, "_registers"):
            self._registers = room(self.entry, MOST * LINE)
        return self._registers
