"""The stepping evaluator: one instruction at a time in NumPy, every register of every lane to see.

The scheduler, barriers and bounds checks are the compiled ones; only what a region would do is done
here, from the same rows. It is the specification in doubt, and what a debugger stands on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...native.native_language import u32
from ...native.native_record import Record, view
from ...ptx.isa.convergence import MEMBERS, WHOLE
from ..codegen.block_code import BlockCode
from ..codegen.code_library import Library
from ..engine import cta_barriers, mbarrier_model
from ..engine.async_evaluator import Asynchronous
from ..engine.host_calls import Calls
from ..engine.local_stack import Stack
from ..program.bound_operands import Op
from ..program.evaluator import VOTES
from ..program.program import Program
from ..state import lane_groups
from ..state.records import ALL, BAD_INDEX, DONE, FAULT, HERE, TRAP, WAIT, YIELD, Cta, Launch
from .step_memory import Fault, lanes_of, word_of
from .step_wgmma import SteppedProducts

Lanes = npt.NDArray[Any]


class Step:
    """An instruction about to happen, as ``on_step`` sees it; good until ``on_step`` returns.

    ``pc`` counts the kernel's instructions from 0, ``text`` is the opcode, ``place`` where it
    stands; ``block`` (x, y, z) and ``warp`` say whose it is, ``active`` (a bit for each lane) which
    lanes run it: those at this place whose guard holds. ``step["%r1"]`` is a register: the bits in
    all 32 lanes as unsigned integers, or booleans for a predicate.
    """

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self.pc = stepper.op.pc
        self.text = stepper.op.form.opcode
        self.place = stepper.program.place(self.pc)
        self.warp = stepper.warp.index
        x, y, z = (int(i) for i in Record(Cta, stepper.warp.cta).index)
        self.block = x, y, z
        self.active = stepper.mask

    def __repr__(self) -> str:
        return f"<{self.text} of warp {self.warp} in block {self.block}, lanes {self.active:#010x}>"

    def __getitem__(self, name: str) -> Lanes:
        """A register by name, 32 lanes. KeyError where the kernel uses no such."""
        for index, register in enumerate(self._stepper.program.registers):
            if register.name == name:
                return self._stepper.get(index)
        raise KeyError(name)

    @property
    def registers(self) -> dict[str, Lanes]:
        """All registers that the kernel uses, by name; of several scopes' the last."""
        registers = self._stepper.program.registers
        return {r.name: self._stepper.get(i) for i, r in enumerate(registers)}


class _Left(Exception):
    """Control left the block; ``code`` is what the region returns."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Stepper(SteppedProducts, Asynchronous, Calls, Stack, BlockCode):
    """Runs blocks on behalf of the scheduler, which calls it back for each."""

    failed = FAULT

    def __init__(
        self,
        program: Program,
        library: Library,
        arch: str,
        on_step: Callable[[Step], object],
    ) -> None:
        super().__init__(library, arch, len(program.blocks), program.full_frame_bytes)
        self.program = program
        self.on_step = on_step
        self.table[:] = self.callback

    def run_block(self, warp: Record) -> int:
        self.warp = warp
        if Record(Launch, warp.launch).stop:
            return YIELD
        try:
            self._block()
        except _Left as left:
            return left.code
        except Fault:
            return FAULT
        raise AssertionError("control left no block")

    def _block(self) -> None:
        self.current = self.program.blocks[self.warp.block]
        self.active_mask = self.warp.active
        for op in self.current.ops:
            self.op = op
            self.guard = self._guard(op)
            self.mask = self.active_mask
            if self.guard is not None:
                self.mask &= word_of(self.guard)
            self.on_step(Step(self))
            self.operate(op)
        self.guard = None
        if self.current.index + 1 < len(self.program.blocks):
            self.goto(self.current.index + 1)
        self.mask = self.active_mask
        self.exit()

    def _guard(self, op: Op) -> Lanes | None:
        if op.guard is None:
            return None
        holds = self.get(op.guard.index)
        return ~holds if op.negated else holds

    # --- going on elsewhere ---

    def goto(self, target: int) -> None:
        """The active lanes go on at block ``target``."""
        if self.program.divergent and self.warp.others:
            self.scatter([(target, self.warp.active)])
        self.warp.block = target
        if target <= self.current.index and self.spend(target):
            raise _Left(YIELD)
        raise _Left(0)

    def spend(self, target: int) -> bool:
        """A loop costs budget; whether that is spent."""
        self.warp.budget -= self.program.cost(target, self.current.index)
        return self.warp.budget < 0

    def scatter(self, parts: list[tuple[int, int]]) -> None:
        """Lanes pend at several blocks, and a group is chosen anew."""
        for target, mask in parts:
            self.pend(target, mask)
        self.warp.block = self.current.index
        first = min(target for target, _ in parts)
        if first <= self.current.index:
            self.warp.spin += self.program.cost(first, self.current.index)
            if self.spend(first):
                self.warp.active = 0  # all are pending already
                raise _Left(YIELD)
        raise _Left(self.native(lane_groups.next_group))

    def pend(self, target: int, mask: int) -> None:
        view(self.warp.pending, u32, len(self.program.blocks))[target] |= np.uint32(mask)

    def rest(self) -> int:
        """The active lanes whose guard does not hold."""
        return self.active_mask & ~self.mask

    # --- branches and exits ---

    def branch(self, label: str) -> None:
        target, follow = self.program.targets[label], self.current.index + 1
        if self.guard is not None and self.program.blocks[target].is_exit:
            self.leave(follow)
        if self.mask in (self.active_mask, 0):
            self.goto(target if self.mask else follow)
        self.scatter([(target, self.mask), (follow, self.rest())])

    def branch_index(self, index: Lanes, targets: tuple[str, ...]) -> None:
        self.stop_if(self.mask & word_of(index >= len(targets)), BAD_INDEX)
        chosen = (self.mask & word_of(index == number) for number in range(len(targets)))
        parts = [(self.program.targets[t], mask) for t, mask in zip(targets, chosen, strict=True)]
        if self.guard is not None:
            parts.append((self.current.index + 1, self.rest()))
        self.scatter(parts)

    def exit(self) -> None:
        self.leave(self.current.index + 1)

    def leave(self, follow: int) -> None:
        if self.native(cta_barriers.lanes_exit, self.mask) == DONE:
            raise _Left(DONE)
        if self.program.divergent and self.warp.active == 0:
            raise _Left(self.native(lane_groups.next_group))
        self.goto(follow)

    def trap(self, why: str) -> None:
        self.stop_if(self.mask, TRAP)

    def stop_if(self, mask: int, fault: int) -> None:
        if mask:
            self.native(lane_groups.fault, fault, self.op.pc, _lowest(mask), 0)
            raise Fault

    # --- waiting ---

    def sleep_unless(self, code: int) -> None:
        if code == FAULT:
            raise Fault
        if code == WAIT:
            raise _Left(self.native(mbarrier_model.sleep, self.current.index))

    def barrier_reduce(self, index: Lanes, threads: Lanes | None, op: str, p: Lanes) -> Lanes:
        if not self.op.resumed:
            self.barrier(index, threads, votes=p)
        word = self.native(cta_barriers.barrier_result, self._first(index), VOTES[op])
        return self.const(32 if op == "popc" else 1, word)

    def barrier(
        self,
        index: Lanes,
        threads: Lanes | None,
        arrive: bool = False,
        votes: Lanes | None = None,
    ) -> None:
        count = 0 if threads is None else self._first(threads)
        ayes = 0 if votes is None else self.mask & word_of(votes)
        follow = self.current.index + 1
        if self.mask == 0:
            self.goto(follow)
        if self.guard is not None and self.program.divergent:
            self.pend(follow, self.rest())
            self.warp.active = self.mask
            self.warp.others |= self.rest()
        code = self.native(
            cta_barriers.barrier, self._first(index), count, arrive, ayes, follow, self.op.pc
        )
        if arrive and not code:
            self.goto(follow)
        raise _Left(code)

    def gather(self, rule: str) -> None:
        if not self.mask:
            return
        members = self.members() if rule == MEMBERS else self.const(32, ALL)
        if self.program.divergent and self.warp.others:
            wanted = int(np.bitwise_or.reduce(members[lanes_of(self.mask)]))
            code = self.native(lane_groups.await_members, wanted, self.current.index, self.op.pc)
            if code != HERE:
                raise _Left(code)
        if rule == MEMBERS:
            self.set_line("operands", members)
            self.checked(lane_groups.agree, self.mask, self.at("operands"), self.op.pc)
        elif self.mask != (ALL if rule == WHOLE else self.active_mask):
            self.checked(lane_groups.missing, self.mask, self.op.pc)

    def _first(self, value: Lanes) -> int:
        """The value in the first lane whose guard holds."""
        return int(value[_lowest(self.mask) if self.mask else 0])


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
