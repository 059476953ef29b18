"""Control flow in compiled code: branches, divergence and reconvergence, exits, barriers.

In a kernel whose branches are all warp-uniform a branch is a jump. In a divergent kernel a group
of lanes jumps too when it is the whole warp; otherwise its lanes become pending at the target, and
the scheduler selects the next group. ``vm/step/step_control.py`` does the same in Python; both
must make the same choices.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ...native.llvm_types import I1, I32, I64
from ...native.native_language import Native
from ...ptx.isa.convergence import MEMBERS, WHOLE
from ..engine import cta_barriers, mbarrier_model
from ..program.evaluator import VOTES, Value
from ..state import lane_groups
from ..state.records import (
    BAD_INDEX,
    CONVERGED,
    DONE,
    FAULT,
    FULL_MASK,
    JUMP,
    TRAP,
    WAIT,
    YIELD,
)
from .region_context import RegionContext, RegionPart
from .region_registers import RegionRegisters


class RegionControlFlow(RegionPart):
    """The primitives of control flow, barriers and convergence."""

    def __init__(
        self, m: RegionContext, registers: RegionRegisters, heads: dict[int, ir.Block]
    ) -> None:
        super().__init__(m)
        self.registers, self.heads = registers, heads
        self.ended = False  # the block's last operation has emitted a terminator
        self.warp_checked = False  # the block has already checked that the whole warp is active
        self._switch: ir.Block | None = None
        self._resumed: ir.PhiInstr | None = None

    def begin_block(self) -> None:
        self.ended = self.warp_checked = False

    # --- transfers of control ---

    def goto(self, target: int) -> None:
        """Continue the active lanes at block ``target``."""
        if self.m.program.divergent:
            whole, diverged = self.m.branch_if(
                self.m.compare("==", self.m.load_field("others", I32), 0)
            )
            self.b.position_at_end(diverged)
            self.scatter([(target, self.m.load_field("active", I32))])
            self.b.position_at_end(whole)
        if target <= self.m.current.index:
            exhausted, following = self.m.branch_if(self.spend(target))
            self.b.position_at_end(exhausted)
            self.m.store_field("block", I64(target))
            self.b.ret(I64(YIELD))
            self.b.position_at_end(following)
        if target in self.heads:
            self.b.branch(self.heads[target])
        else:
            self.m.store_field("block", I64(target))
            self.b.ret(I64(JUMP))

    def spend(self, target: int) -> ir.Value:
        """Charge a back edge to the step budget; true if the budget is exhausted."""
        cost = self.m.program.cost(target, self.m.current.index)
        budget = self.b.sub(self.m.load_field("budget"), I64(cost))
        self.m.store_field("budget", budget)
        return self.m.compare("<", budget, 0)

    def scatter(self, groups: list[tuple[int, ir.Value]]) -> None:
        """Make lanes pending at several blocks and select the next group to execute."""
        for target, mask in groups:
            self.pend(target, mask)
        block = self.m.current.index
        cost = self.m.program.back_edge_cost(min(target for target, _ in groups), block)
        self.resume(self.m.call_native(lane_groups.next_after, block, cost))

    def pend(self, target: int, mask: ir.Value) -> None:
        """Make lanes pending at block ``target``."""
        self.m.call_native(lane_groups.pend, target, mask)

    @property
    def switch(self) -> ir.Block:
        """The block that dispatches on ``warp.block``, or leaves the region."""
        if self._switch is None:
            self._switch = self.m.new_block("switch")
            b = ir.IRBuilder(self._switch)
            switch = b.switch(b.load(self.m.at("block"), typ=I64), self.m.return_block(JUMP))
            for index, head in self.heads.items():
                switch.add_case(I64(index), head)
        return self._switch

    def resume(self, code: ir.Value) -> None:
        """Continue at ``warp.block`` if native code returned JUMP; leave the region with any other
        ``code``.
        """
        if self._resumed is None:
            block, stop = self.m.new_block("resume"), self.m.new_block()
            b = ir.IRBuilder(block)
            self._resumed = b.phi(I64)
            b.cbranch(b.icmp_unsigned("==", self._resumed, I64(JUMP)), self.switch, stop)
            ir.IRBuilder(stop).ret(self._resumed)
        self._resumed.add_incoming(code, self.b.block)
        self.b.branch(self._resumed.parent)

    def skipped_lanes(self) -> ir.Value:
        """The active lanes whose guard does not hold."""
        return self.b.and_(self.m.active_mask, self.b.not_(self.m.mask))

    # --- branches ---

    def branch(self, label: str) -> None:
        self.ended = True
        self.registers.flush()
        target = self.m.program.targets[label]
        if self.m.guard is None:
            self.goto(target)
        elif self.m.program.blocks[target].is_exit:
            self.leave(self.m.mask, self.m.current.index + 1)
        else:
            self.diverge(target, self.m.current.index + 1)

    def diverge(self, target: int, other: int) -> None:
        """Continue the lanes of ``mask`` at block ``target``, other active lanes at ``other``."""
        none, some = self.m.branch_if(self.m.compare("==", self.m.mask, 0))
        self.b.position_at_end(none)
        self.goto(other)
        self.b.position_at_end(some)
        if self.m.program.divergent:
            every, part = self.m.branch_if(
                self.b.icmp_unsigned("==", self.m.mask, self.m.active_mask)
            )
            self.b.position_at_end(part)
            self.scatter([(target, self.m.mask), (other, self.skipped_lanes())])
            self.b.position_at_end(every)
        self.goto(target)

    def branch_index(self, index: Value, targets: tuple[str, ...]) -> None:
        self.ended = True
        self.registers.flush()
        beyond = self.m.to_mask(self.m.cmp("ge", index, self.m.const(32, len(targets))))
        self.stop_if(self.b.and_(self.m.mask, beyond), BAD_INDEX)
        groups = []
        for number, label in enumerate(targets):
            selected = self.m.to_mask(self.m.cmp("eq", index, self.m.const(32, number)))
            groups.append((self.m.program.targets[label], self.b.and_(self.m.mask, selected)))
        if self.m.guard is not None:
            groups.append((self.m.current.index + 1, self.skipped_lanes()))
        self.scatter(groups)

    # --- exits ---

    def exit(self) -> None:
        self.ended = True
        self.registers.flush()
        self.leave(self.m.mask, None if self.m.guard is None else self.m.current.index + 1)

    def leave(self, mask: ir.Value, follow: int | None) -> None:
        """Exit these lanes; the other active lanes continue at block ``follow``."""
        code = self.m.call_native(cta_barriers.exit_lanes, mask)
        done, stay = self.m.branch_if(self.m.compare("==", code, DONE))
        self.b.position_at_end(done)
        self.b.ret(I64(DONE))
        self.b.position_at_end(stay)
        if self.m.program.divergent:
            none, some = self.m.branch_if(self.m.compare("==", self.m.load_field("active", I32), 0))
            self.b.position_at_end(none)
            self.resume(self.m.call_native(lane_groups.next_group))
            self.b.position_at_end(some)
        if follow is None:
            self.b.unreachable()
        else:
            self.goto(follow)

    def trap(self, why: str) -> None:
        self.stop_if(self.m.mask, TRAP)

    def stop_if(self, mask: ir.Value, fault: int) -> None:
        """Report a fault of the first of these lanes, if there is one."""
        lane = self.b.cttz(mask, I1(0))
        self.fault_if(self.m.compare("!=", mask, 0), lane_groups.fault, fault, self.m.pc, lane, 0)

    # --- waiting ---

    def sleep_unless(self, code: ir.Value) -> None:
        stop, following = self.m.branch_if(self.m.compare("!=", code, JUMP))
        self.b.position_at_end(stop)
        asleep = self.m.new_block()
        self.b.cbranch(self.m.compare("==", code, FAULT), self.m.faulted, asleep)
        self.b.position_at_end(asleep)
        result = self.m.call_native(mbarrier_model.sleep, self.m.current.index)
        if self.m.program.divergent:
            self.resume(result)
        else:
            self.b.ret(result)
        self.b.position_at_end(following)

    def barrier_reduce(
        self, index: Value, threads: Value | None, op: str, p: Value
    ) -> Value | None:
        if not self.m.op.resumed:
            self.barrier(index, threads, votes=p)
            return None
        word = self.m.call_native(cta_barriers.barrier_result, self.m.first(index), VOTES[op])
        result = self.m._splat(self.b.trunc(word, I32))
        return result if op == "popc" else self.m.cmp("ne", result, self.m.const(32, 0))

    def barrier(
        self,
        index: Value,
        threads: Value | None,
        arrive: bool = False,
        votes: Value | None = None,
    ) -> None:
        """Only the lanes whose guard holds arrive at the barrier; the others continue."""
        number = self.m.first(index)
        count = 0 if threads is None else self.m.first(threads)
        true_votes = 0 if votes is None else self.b.and_(self.m.mask, self.m.to_mask(votes))
        follow = self.m.current.index + 1
        self.ended = True
        self.registers.flush()
        if self.m.guard is not None:
            none, some = self.m.branch_if(self.m.compare("==", self.m.mask, 0))
            self.b.position_at_end(none)
            self.goto(follow)
            self.b.position_at_end(some)
            if self.m.program.divergent:
                self.pend(follow, self.skipped_lanes())
                self.m.store_field("active", self.m.mask)
                others = self.b.or_(self.m.load_field("others", I32), self.skipped_lanes())
                self.m.store_field("others", others)
        code = self.m.call_native(
            cta_barriers.barrier, number, count, int(arrive), true_votes, follow, self.m.pc
        )
        if arrive:
            self.m.check(code)
            self.goto(follow)
            return
        self.resume(code)

    # --- convergence ---

    def gather(self, rule: str) -> None:
        members = self.m.members() if rule == MEMBERS else self.m.const(32, FULL_MASK)
        if self.m.program.divergent:
            self.await_lanes(members)
        if rule == MEMBERS:
            self.check_members(members)
        elif rule == WHOLE:
            self.check_mask(I32(FULL_MASK))
        elif self.m.guard is not None:
            self.check_mask(self.m.active_mask)

    def await_lanes(self, members: Value) -> None:
        """In a divergent warp, wait for all lanes of the union of the active lanes' ``members``."""
        diverged = self.b.and_(
            self.m.compare("!=", self.m.load_field("others", I32), 0),
            self.m.compare("!=", self.m.mask, 0),
        )
        wait, converged = self.m.branch_if(diverged)
        self.b.position_at_end(wait)
        masks = self.b.select(self.m.bits(self.m.mask), members, self.m.const(32, 0))
        union = self.m.module.declare_intrinsic(
            "llvm.vector.reduce.or.v32i32", fnty=ir.FunctionType(I32, [masks.type])
        )
        mask = self.b.call(union, [masks])
        code = self.m.call_native(lane_groups.await_members, mask, self.m.current.index, self.m.pc)
        suspended, failed = self.m.new_block(), self.m.new_block()
        switch = self.b.switch(code, failed)
        switch.add_case(I64(CONVERGED), converged)
        switch.add_case(I64(JUMP), self.switch)
        switch.add_case(I64(WAIT), suspended)
        self.b.position_at_end(suspended)
        self.b.ret(I64(WAIT))
        self.b.position_at_end(failed)
        self.b.branch(self.m.faulted)
        self.b.position_at_end(converged)

    def check_mask(self, mask: ir.Value) -> None:
        """Report a fault unless exactly these lanes, or none, execute the operation. Without guard
        it is checked once in a block, in which the active mask is constant.
        """
        if self.m.guard is None and self.warp_checked:
            return
        self.warp_checked |= self.m.guard is None
        some, other = (self.b.icmp_unsigned("!=", self.m.mask, x) for x in (I32(0), mask))
        self.fault_if(
            self.b.and_(some, other), lane_groups.fault_missing_lanes, self.m.mask, self.m.pc
        )

    def check_members(self, members: Value) -> None:
        """Report a fault if an active lane is not a member or lanes pass different member masks."""
        if self.m.member_mask == FULL_MASK:
            return
        first = self.m.first(members)
        wrong = self.b.and_(self.m.mask, self.b.not_(first))
        if self.m.member_mask is None:
            same = self.m.to_mask(self.m.cmp("eq", members, self.m._splat(first)))
            wrong = self.b.or_(wrong, self.b.and_(self.m.mask, self.b.not_(same)))
        failed, following = self.m.branch_if(self.m.compare("!=", wrong, 0))
        self.b.position_at_end(failed)
        self.m.store_area("operands", members)
        self.m.call_checked(
            lane_groups.check_member_masks, self.m.mask, self.m.at("operands"), self.m.pc
        )
        self.b.branch(following)
        self.b.position_at_end(following)

    def fault_if(self, condition: ir.Value, function: Native, *arguments: ir.Value | int) -> None:
        """Call native code that reports a fault, and leave the region, if the condition holds."""
        failed, following = self.m.branch_if(condition)
        self.b.position_at_end(failed)
        self.m.call_native(function, *arguments)
        self.b.branch(self.m.faulted)
        self.b.position_at_end(following)
