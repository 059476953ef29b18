"""The stepping evaluator: one instruction at a time in NumPy, with every register visible.

It replaces the compiled regions only, and evaluates the same rows; the scheduler, barriers and
bounds checks are the compiled ones. It is the reference of the compiled evaluator and the base of a
debugger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ...native.native_record import Record
from ..codegen.block_code import BlockCode
from ..codegen.code_library import Library
from ..engine.async_evaluator import AsyncEvaluator
from ..engine.host_calls import HostCallEvaluator
from ..engine.local_stack import StackEvaluator
from ..program.bound_operands import Op
from ..program.primitive_parts import composed_of
from ..program.program import Program
from ..state.records import FAULT, YIELD, Cta, LaunchRecord
from .step_context import Fault, Lanes, StepContext, word_of
from .step_control import LeaveBlock, StepControl
from .step_matrix import StepMatrix
from .step_memory import StepMemory
from .step_wgmma import StepWgmma


class Step:
    """The next instruction of a warp, as ``on_step`` sees it; valid until ``on_step`` returns.

    ``pc``: its index among the kernel's operations. ``text``: the opcode. ``location``: its source
    location. ``block`` (x, y, z) and ``warp``: the warp that executes it. ``active``: the active
    lanes whose guard holds, a bit for each. ``step["%r1"]`` is a register: the bits in all 32 lanes
    as unsigned integers, or booleans for a predicate.
    """

    def __init__(self, evaluator: SteppingEvaluator) -> None:
        self._evaluator = evaluator
        self.pc = evaluator.op.pc
        self.text = evaluator.op.form.opcode
        self.location = evaluator.program.location(self.pc)
        self.warp = evaluator.warp.index
        x, y, z = (int(i) for i in Record(Cta, evaluator.warp.cta).index)
        self.block = x, y, z
        self.active = evaluator.mask

    def __repr__(self) -> str:
        return f"<{self.text} of warp {self.warp} in block {self.block}, lanes {self.active:#010x}>"

    def __getitem__(self, name: str) -> Lanes:
        """A register by name, 32 lanes. Raises KeyError if the kernel does not use it."""
        for index, register in enumerate(self._evaluator.program.registers):
            if register.name == name:
                return self._evaluator.get(index)
        raise KeyError(name)

    @property
    def registers(self) -> dict[str, Lanes]:
        """All registers that the kernel uses, by name; the last one of a name in several scopes."""
        registers = self._evaluator.program.registers
        return {r.name: self._evaluator.get(i) for i, r in enumerate(registers)}


@composed_of(
    control=StepControl,
    memory=StepMemory,
    matrix=StepMatrix,
    wgmma_instructions=StepWgmma,
    asynchronous=AsyncEvaluator,
    host_calls=HostCallEvaluator,
    stack=StackEvaluator,
)
class SteppingEvaluator(StepContext):
    """Evaluates the basic blocks of warps."""

    def __init__(self, program: Program, library: Library, arch: str) -> None:
        super().__init__(program, library, arch)
        self.control = StepControl(self)
        self.memory = StepMemory(self)
        self.matrix = StepMatrix(self, self.memory)
        self.wgmma_instructions = StepWgmma(self, self.control, self.matrix)
        self.asynchronous = AsyncEvaluator(self)
        self.host_calls, self.stack = HostCallEvaluator(self), StackEvaluator(self)

    @classmethod
    def create(cls, program: Program, library: Library, arch: str) -> Self:
        """An instance. (``composed_of`` adds primitives that type checkers take for abstract.)"""
        return cls(program, library, arch)

    def run_block(self, on_step: Callable[[Step], object]) -> None:
        self.current = self.program.blocks[self.warp.block]
        self.active_mask = self.warp.active
        for op in self.current.ops:
            self.op = op
            self.guard = self._guard(op)
            self.mask = self.active_mask
            if self.guard is not None:
                self.mask &= word_of(self.guard)
            on_step(Step(self))
            self.operate(op)
        self.guard = None
        if self.current.index + 1 < len(self.program.blocks):
            self.control.goto(self.current.index + 1)
        self.mask = self.active_mask
        self.control.exit()

    def _guard(self, op: Op) -> Lanes | None:
        if op.guard is None:
            return None
        holds = self.get(op.guard.index)
        return ~holds if op.negated else holds

    # --- methods of ``Evaluator`` that one part implements ---

    def gather(self, rule: str) -> None:
        self.control.gather(rule)

    def check_wgmma_registers(self, sets: int) -> None:
        self.wgmma_instructions.check_wgmma_registers(sets)

    def sleep_unless(self, code: int) -> None:
        self.control.sleep_unless(code)

    # --- primitives of more than one part ---

    def store(self, space: str, address: Lanes, values: tuple[Lanes, ...]) -> None:
        self.asynchronous.check_wgmma_memory(
            space, address, self.width(values[0]) // 8 * len(values)
        )
        self.memory.store(space, address, values)

    def atomic(self, space: str, op: str, type_: str, address: Lanes, *operands: Lanes) -> Lanes:
        self.asynchronous.check_wgmma_memory(space, address, self.width(operands[0]) // 8)
        return self.memory.atomic(space, op, type_, address, *operands)


class Stepper(BlockCode):
    """Runs basic blocks for the scheduler, which calls back for each one."""

    failed = FAULT

    def __init__(
        self,
        program: Program,
        library: Library,
        arch: str,
        on_step: Callable[[Step], object],
    ) -> None:
        super().__init__(library, arch, len(program.blocks), program.full_frame_bytes)
        self.evaluator = SteppingEvaluator.create(program, library, arch)
        self.on_step = on_step
        self.table[:] = self.callback

    def run_block(self, warp: Record) -> int:
        self.evaluator.warp = warp
        if Record(LaunchRecord, warp.launch).stop:
            return YIELD
        try:
            self.evaluator.run_block(self.on_step)
        except LeaveBlock as left:
            return left.code
        except Fault:
            return FAULT
        raise AssertionError("a block must end by LeaveBlock")
