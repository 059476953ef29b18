"""Control flow in compiled code: branches, divergence and reconvergence, exits, barriers.

In a kernel whose branches are all warp-uniform a branch is a jump. In a divergent kernel a group
of lanes jumps too when it is the whole warp; otherwise its lanes become pending at the target, and
the scheduler selects the next group. ``vm/step/step_control.py`` does the same in Python; both
must make the same choices.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ...native.llvm_types import I1, I32, I64, declare
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
    WarpRecord,
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
        self._dispatcher: ir.Block | None = None

    def begin_block(self) -> None:
        self.ended = self.warp_checked = False

    # --- transfers of control ---

    def goto(self, target: int) -> None:
        """Continue the active lanes at block ``target``."""
        if self.m.program.divergent:
            alone, apart = self.m.branch_if(
                self.m.compare("==", self.m.load_field("others", I32), 0)
            )
            self.b.position_at_end(apart)
            self.scatter([(target, self.m.load_field("active", I32))])
            self.b.position_at_end(alone)
        if target <= self.m.current.index:
            out, on = self.m.branch_if(self.spend(target))
            self.b.position_at_end(out)
            self.m.store_field("block", I64(target))
            self.b.ret(I64(YIELD))
            self.b.position_at_end(on)
        if target in self.heads:
            self.b.branch(self.heads[target])
        else:
            self.m.store_field("block", I64(target))
            self.b.ret(I64(JUMP))

    def spend(self, target: int) -> ir.Value:
        """Charge a back edge to the step budget; true if the budget is exhausted."""
        cost = self.m.program.cost(target, self.m.current.index)
        left = self.b.sub(self.m.load_field("budget"), I64(cost))
        self.m.store_field("budget", left)
        return self.m.compare("<", left, 0)

    def scatter(self, groups_: list[tuple[int, ir.Value]]) -> None:
        """Make lanes pending at several blocks and select the next group to execute."""
        for target, mask in groups_:
            self.pend(target, mask)
        self.m.store_field("block", I64(self.m.current.index))
        first = min(target for target, _ in groups_)
        if first <= self.m.current.index:
            cost = self.m.program.cost(first, self.m.current.index)
            self.m.store_field("spin", self.b.add(self.m.load_field("spin"), I64(cost)))
            out, on = self.m.branch_if(self.spend(first))
            self.b.position_at_end(out)
            self.m.store_field("active", I32(0))  # all are pending already
            self.b.ret(I64(YIELD))
            self.b.position_at_end(on)
        self.b.branch(self.dispatcher)

    def pend(self, target: int, mask: ir.Value) -> None:
        place = self.m.place(WarpRecord.size + 4 * target)
        self.b.store(self.b.or_(self.b.load(place, typ=I32), mask), place)

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

    @property
    def dispatcher(self) -> ir.Block:
        """The block that selects another group of lanes."""
        if self._dispatcher is None:
            self._dispatcher, stop = self.m.new_block("dispatch"), self.m.new_block()
            b = ir.IRBuilder(self._dispatcher)
            code = b.call(declare(self.m.module, lane_groups.next_group), [self.m.warp])
            b.cbranch(b.icmp_unsigned("==", code, I64(JUMP)), self.switch, stop)
            ir.IRBuilder(stop).ret(code)
        return self._dispatcher

    def rest(self) -> ir.Value:
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
        """The lanes of ``mask`` go to ``target``, the rest to ``other``."""
        none, some = self.m.branch_if(self.m.compare("==", self.m.mask, 0))
        self.b.position_at_end(none)
        self.goto(other)
        self.b.position_at_end(some)
        if self.m.program.divergent:
            every, part = self.m.branch_if(
                self.b.icmp_unsigned("==", self.m.mask, self.m.active_mask)
            )
            self.b.position_at_end(part)
            self.scatter([(target, self.m.mask), (other, self.rest())])
            self.b.position_at_end(every)
        self.goto(target)

    def branch_index(self, index: Value, targets: tuple[str, ...]) -> None:
        self.ended = True
        self.registers.flush()
        beyond = self.m.to_mask(self.m.cmp("ge", index, self.m.const(32, len(targets))))
        self.stop_if(self.b.and_(self.m.mask, beyond), BAD_INDEX)
        parts = []
        for number, label in enumerate(targets):
            chosen = self.m.to_mask(self.m.cmp("eq", index, self.m.const(32, number)))
            parts.append((self.m.program.targets[label], self.b.and_(self.m.mask, chosen)))
        if self.m.guard is not None:
            parts.append((self.m.current.index + 1, self.rest()))
        self.scatter(parts)

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
            gone, rest = self.m.branch_if(self.m.compare("==", self.m.load_field("active", I32), 0))
            self.b.position_at_end(gone)
            self.b.branch(self.dispatcher)
            self.b.position_at_end(rest)
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
        stop, on = self.m.branch_if(self.m.compare("!=", code, JUMP))
        self.b.position_at_end(stop)
        asleep = self.m.new_block()
        self.b.cbranch(self.m.compare("==", code, FAULT), self.m.faulted, asleep)
        self.b.position_at_end(asleep)
        left = self.m.call_native(mbarrier_model.sleep, self.m.current.index)
        if self.m.program.divergent:
            away = self.m.new_block()
            self.b.cbranch(self.m.compare("==", left, JUMP), self.switch, away)
            self.b.position_at_end(away)
        self.b.ret(left)
        self.b.position_at_end(on)

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
                self.pend(follow, self.rest())
                self.m.store_field("active", self.m.mask)
                others = self.b.or_(self.m.load_field("others", I32), self.rest())
                self.m.store_field("others", others)
        code = self.m.call_native(
            cta_barriers.barrier, number, count, int(arrive), true_votes, follow, self.m.pc
        )
        if arrive:
            self.m.check(code)
            self.goto(follow)
            return
        go, stop = self.m.branch_if(self.m.compare("==", code, JUMP))
        self.b.position_at_end(stop)
        self.b.ret(code)
        self.b.position_at_end(go)
        self.b.branch(self.switch)

    # --- convergence ---

    def gather(self, rule: str) -> None:
        members = self.m.members() if rule == MEMBERS else self.m.const(32, FULL_MASK)
        if self.m.program.divergent:
            self.await_lanes(members)
        if rule == MEMBERS:
            self.expect_members(members)
        elif rule == WHOLE:
            self.expect(I32(FULL_MASK))
        elif self.m.guard is not None:
            self.expect(self.m.active_mask)

    def await_lanes(self, members: Value) -> None:
        """In a divergent warp, wait for all lanes of the union of the active lanes' ``members``."""
        apart = self.b.and_(
            self.m.compare("!=", self.m.load_field("others", I32), 0),
            self.m.compare("!=", self.m.mask, 0),
        )
        wait, ready = self.m.branch_if(apart)
        self.b.position_at_end(wait)
        named = self.b.select(self.m.bits(self.m.mask), members, self.m.const(32, 0))
        union = self.m.module.declare_intrinsic(
            "llvm.vector.reduce.or.v32i32", fnty=ir.FunctionType(I32, [named.type])
        )
        wanted = self.b.call(union, [named])
        code = self.m.call_native(
            lane_groups.await_members, wanted, self.m.current.index, self.m.pc
        )
        moved, wrong = self.m.new_block(), self.m.new_block()
        go = self.b.switch(code, wrong)
        go.add_case(I64(CONVERGED), ready)
        go.add_case(I64(JUMP), self.switch)
        go.add_case(I64(WAIT), moved)
        self.b.position_at_end(moved)
        self.b.ret(I64(WAIT))
        self.b.position_at_end(wrong)
        self.b.branch(self.m.faulted)
        self.b.position_at_end(ready)

    def expect(self, wanted: ir.Value) -> None:
        """Report a fault unless exactly these lanes, or none, execute the operation. Without guard
        it is checked once in a block, in which the active mask is constant.
        """
        if self.m.guard is None and self.warp_checked:
            return
        self.warp_checked |= self.m.guard is None
        some, all_ = (self.b.icmp_unsigned("!=", self.m.mask, x) for x in (I32(0), wanted))
        self.fault_if(
            self.b.and_(some, all_), lane_groups.fault_missing_lanes, self.m.mask, self.m.pc
        )

    def expect_members(self, members: Value) -> None:
        """Report a fault if an active lane is not a member or lanes pass different member masks."""
        if self.m.member_mask == FULL_MASK:
            return
        first = self.m.first(members)
        others = self.b.and_(self.m.mask, self.b.not_(first))
        if self.m.member_mask is None:
            same = self.m.to_mask(self.m.cmp("eq", members, self.m._splat(first)))
            others = self.b.or_(others, self.b.and_(self.m.mask, self.b.not_(same)))
        hit, on = self.m.branch_if(self.m.compare("!=", others, 0))
        self.b.position_at_end(hit)
        self.m.store_area("operands", members)
        self.m.call_checked(
            lane_groups.check_member_masks, self.m.mask, self.m.at("operands"), self.m.pc
        )
        self.b.branch(on)
        self.b.position_at_end(on)

    def fault_if(self, bad: ir.Value, function: Native, *arguments: ir.Value | int) -> None:
        """Call native code that reports a fault if ``bad``."""
        hit, on = self.m.branch_if(bad)
        self.b.position_at_end(hit)
        self.m.call_native(function, *arguments)
        self.b.branch(self.m.faulted)
        self.b.position_at_end(on)
