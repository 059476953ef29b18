"""``wgmma`` in compiled code: registers are passed on the stack to the instruction's function."""

from __future__ import annotations

import llvmlite.ir as ir

from ...mma import MmaInstruction
from ...native.llvm_types import I64
from ..engine import wgmma_groups
from ..engine.wgmma_operands import FROM_SHARED, NEGATE, TRANS_A, TRANS_B
from ..llvm.vector_memory import at, stack_buffer
from ..matrix.mma_function import symbol
from ..program.evaluator import Value
from .region_context import RegionContext, RegionPart, lanes
from .region_control import RegionControlFlow
from .region_matrix import MatrixInstructions
from .wgmma_function import KIND, LINE, part, shape

MAX_REGISTERS = 128 + 4 + 1  # of D, of A, and metadata


class WgmmaInstructions(RegionPart):
    """The primitives of ``wgmma``."""

    def __init__(
        self, m: RegionContext, control: RegionControlFlow, matrix: MatrixInstructions
    ) -> None:
        super().__init__(m)
        self.control, self.matrix = control, matrix
        self.checked_sets = 0  # register sets that the block has found not in flight
        self._registers: ir.Value | None = None

    def begin_block(self) -> None:
        self.checked_sets = 0

    def wgmma(
        self,
        instruction: MmaInstruction,
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
        """Computed when issued; its registers are in flight until its group is waited for."""
        shared = not isinstance(a, tuple)
        options = FROM_SHARED * shared | TRANS_A * trans_a | TRANS_B * trans_b | NEGATE * negate
        row = instruction.on(self.m.arch)
        if shared:
            self.m.store_area("addresses", a)
        self.m.store_area("addresses2", b_desc)
        indices = (
            () if metadata is None else (self.matrix.selected(part(row), "metadata", *metadata),)
        )
        groups = (d, () if shared else a, indices)
        starts, index = [], 0
        for group in groups:
            starts.append(at(self.b, self.registers, index * LINE))
            for value in group:
                self.b.store(value, self.register(index), align=64)
                index += 1
        scalars = [self.m.mask, self.m.first(scale_d), I64(options), I64(self.m.pc)]
        wide = [self.b.zext(x, I64) if x.type != I64 else x for x in scalars]
        name = symbol(row)
        function = self.m.module.globals.get(name) or ir.Function(self.m.module, KIND, name)
        self.m.check(self.b.call(function, [self.m.warp, *starts, *wide]))
        sets = self.m.program.wgmma_sets[self.m.pc]
        adds, size = wide[1], shape(row)
        self.m.call_checked(wgmma_groups.issue, self.m.mask, sets, adds, options, size, self.m.pc)
        self.checked_sets = 0
        return tuple(self.b.load(self.register(i), typ=lanes(32), align=64) for i in range(len(d)))

    def wgmma_fence(self) -> None:
        self.control.sleep_unless(self.m.call_native(wgmma_groups.fence, self.m.mask))

    def wgmma_commit(self) -> None:
        self.m.call_native(wgmma_groups.commit, self.m.mask)

    def wgmma_wait(self, pending: int) -> None:
        self.control.sleep_unless(
            self.m.call_native(wgmma_groups.wait_groups, self.m.mask, pending, self.m.pc)
        )

    def check_wgmma_registers(self, sets: int) -> None:
        """Emit the check, unless this block has checked these sets since the last ``wgmma``."""
        if not sets & ~self.checked_sets:
            return
        if self.m.guard is None:
            self.checked_sets |= sets
        in_flight = self.b.and_(self.m.load_field("in_flight"), I64(sets))
        some, none = self.m.branch_if(self.m.compare("!=", in_flight, 0))
        self.b.position_at_end(some)
        self.m.call_checked(wgmma_groups.check_registers, self.m.mask, sets, self.m.pc)
        self.b.branch(none)
        self.b.position_at_end(none)

    def register(self, index: int) -> ir.Value:
        return at(self.b, self.registers, index * LINE)

    @property
    def registers(self) -> ir.Value:
        """The stack buffer for registers; one for each region."""
        if self._registers is None:
            self._registers = stack_buffer(self.m.entry, MAX_REGISTERS * LINE)
        return self._registers
