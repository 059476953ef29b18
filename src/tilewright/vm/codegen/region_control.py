"""Control in compiled code: branches, lanes that part and meet, exits, barriers.

In a kernel whose branches are all uniform the warp stays whole and a branch is a jump. Otherwise a
group that is alone jumps too; where there are others it pends at its target and the scheduler
chooses. ``vm/step/stepper.py`` does the same in Python; both must make the same choices.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ...native.llvm_types import I1, I32, I64, declare
from ...native.native_language import Native
from ...ptx.isa.convergence import MEMBERS, WHOLE
from ..engine import cta_barriers, mbarrier_model
from ..program.evaluator import VOTES, Value
from ..state import lane_groups
from ..state.records import ALL, BAD_INDEX, DONE, FAULT, HERE, JUMP, TRAP, WAIT, YIELD, Warp
from .region_context import RegionContext, RegionPart
from .region_registers import RegionRegisters


class ControlFlow(RegionPart):
    """What a region makes of the primitives that steer threads."""

    def __init__(
        self, m: RegionContext, registers: RegionRegisters, heads: dict[int, ir.Block]
    ) -> None:
        super().__init__(m)
        self.registers, self.heads = registers, heads
        self.ended = False  # the block's last operation has emitted a terminator
        self.gathered = False  # the block has already checked that the whole warp is active
        self._switch: ir.Block | None = None
        self._dispatcher: ir.Block | None = None

    def begin_block(self) -> None:
        self.ended = self.gathered = False

    # --- going on elsewhere ---

    def goto(self, target: int) -> None:
        """The active lanes go on at block ``target``."""
        if self.m.program.divergent:
            alone, apart = self.m.fork(self.m.is_("==", self.m.peek("others", I32), 0))
            self.b.position_at_end(apart)
            self.scatter([(target, self.m.peek("active", I32))])
            self.b.position_at_end(alone)
        if target <= self.m.current.index:
            out, on = self.m.fork(self.spend(target))
            self.b.position_at_end(out)
            self.m.poke("block", I64(target))
            self.b.ret(I64(YIELD))
            self.b.position_at_end(on)
        if target in self.heads:
            self.b.branch(self.heads[target])
        else:
            self.m.poke("block", I64(target))
            self.b.ret(I64(JUMP))

    def spend(self, target: int) -> ir.Value:
        """A loop costs budget; whether that is spent."""
        cost = self.m.program.cost(target, self.m.current.index)
        left = self.b.sub(self.m.peek("budget"), I64(cost))
        self.m.poke("budget", left)
        return self.m.is_("<", left, 0)

    def scatter(self, groups_: list[tuple[int, ir.Value]]) -> None:
        """Lanes pend at several blocks, and a group is chosen anew."""
        for target, mask in groups_:
            self.pend(target, mask)
        self.m.poke("block", I64(self.m.current.index))
        first = min(target for target, _ in groups_)
        if first <= self.m.current.index:
            cost = self.m.program.cost(first, self.m.current.index)
            self.m.poke("spin", self.b.add(self.m.peek("spin"), I64(cost)))
            out, on = self.m.fork(self.spend(first))
            self.b.position_at_end(out)
            self.m.poke("active", I32(0))  # all are pending already
            self.b.ret(I64(YIELD))
            self.b.position_at_end(on)
        self.b.branch(self.dispatcher)

    def pend(self, target: int, mask: ir.Value) -> None:
        place = self.m.place(Warp.size + 4 * target)
        self.b.store(self.b.or_(self.b.load(place, typ=I32), mask), place)

    @property
    def switch(self) -> ir.Block:
        """Go to the block that ``warp.block`` names, or leave the region."""
        if self._switch is None:
            self._switch = self.m.block_of("switch")
            b = ir.IRBuilder(self._switch)
            switch = b.switch(b.load(self.m.at("block"), typ=I64), self.m.returning(JUMP))
            for index, head in self.heads.items():
                switch.add_case(I64(index), head)
        return self._switch

    @property
    def dispatcher(self) -> ir.Block:
        """Choose another group of lanes."""
        if self._dispatcher is None:
            self._dispatcher, stop = self.m.block_of("dispatch"), self.m.block_of()
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
        none, some = self.m.fork(self.m.is_("==", self.m.mask, 0))
        self.b.position_at_end(none)
        self.goto(other)
        self.b.position_at_end(some)
        if self.m.program.divergent:
            every, part = self.m.fork(self.b.icmp_unsigned("==", self.m.mask, self.m.active_mask))
            self.b.position_at_end(part)
            self.scatter([(target, self.m.mask), (other, self.rest())])
            self.b.position_at_end(every)
        self.goto(target)

    def branch_index(self, index: Value, targets: tuple[str, ...]) -> None:
        self.ended = True
        self.registers.flush()
        beyond = self.m.word(self.m.cmp("ge", index, self.m.const(32, len(targets))))
        self.stop_if(self.b.and_(self.m.mask, beyond), BAD_INDEX)
        parts = []
        for number, label in enumerate(targets):
            chosen = self.m.word(self.m.cmp("eq", index, self.m.const(32, number)))
            parts.append((self.m.program.targets[label], self.b.and_(self.m.mask, chosen)))
        if self.m.guard is not None:
            parts.append((self.m.current.index + 1, self.rest()))
        self.scatter(parts)

    # --- the end of lanes ---

    def exit(self) -> None:
        self.ended = True
        self.registers.flush()
        self.leave(self.m.mask, None if self.m.guard is None else self.m.current.index + 1)

    def leave(self, mask: ir.Value, follow: int | None) -> None:
        """These lanes exit; active ones that stay go on at block ``follow``."""
        code = self.m.runtime(cta_barriers.lanes_exit, mask)
        done, stay = self.m.fork(self.m.is_("==", code, DONE))
        self.b.position_at_end(done)
        self.b.ret(I64(DONE))
        self.b.position_at_end(stay)
        if self.m.program.divergent:
            gone, rest = self.m.fork(self.m.is_("==", self.m.peek("active", I32), 0))
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
        """A fault of the first of these lanes, if there are any."""
        lane = self.b.cttz(mask, I1(0))
        self.unless(self.m.is_("!=", mask, 0), lane_groups.fault, fault, self.m.pc, lane, 0)

    # --- waiting ---

    def sleep_unless(self, code: ir.Value) -> None:
        stop, on = self.m.fork(self.m.is_("!=", code, JUMP))
        self.b.position_at_end(stop)
        asleep = self.m.block_of()
        self.b.cbranch(self.m.is_("==", code, FAULT), self.m.faulted, asleep)
        self.b.position_at_end(asleep)
        left = self.m.runtime(mbarrier_model.sleep, self.m.current.index)
        if self.m.program.divergent:
            away = self.m.block_of()
            self.b.cbranch(self.m.is_("==", left, JUMP), self.switch, away)
            self.b.position_at_end(away)
        self.b.ret(left)
        self.b.position_at_end(on)

    def barrier_reduce(
        self, index: Value, threads: Value | None, op: str, p: Value
    ) -> Value | None:
        if not self.m.op.resumed:
            self.barrier(index, threads, votes=p)
            return None
        word = self.m.runtime(cta_barriers.barrier_result, self.m.first(index), VOTES[op])
        result = self.m._splat(self.b.trunc(word, I32))
        return result if op == "popc" else self.m.cmp("ne", result, self.m.const(32, 0))

    def barrier(
        self,
        index: Value,
        threads: Value | None,
        arrive: bool = False,
        votes: Value | None = None,
    ) -> None:
        """Only the lanes whose guard holds come to the barrier; the others go on."""
        number = self.m.first(index)
        count = 0 if threads is None else self.m.first(threads)
        ayes = 0 if votes is None else self.b.and_(self.m.mask, self.m.word(votes))
        follow = self.m.current.index + 1
        self.ended = True
        self.registers.flush()
        if self.m.guard is not None:
            none, some = self.m.fork(self.m.is_("==", self.m.mask, 0))
            self.b.position_at_end(none)
            self.goto(follow)
            self.b.position_at_end(some)
            if self.m.program.divergent:
                self.pend(follow, self.rest())
                self.m.poke("active", self.m.mask)
                others = self.b.or_(self.m.peek("others", I32), self.rest())
                self.m.poke("others", others)
        code = self.m.runtime(
            cta_barriers.barrier, number, count, int(arrive), ayes, follow, self.m.pc
        )
        if arrive:
            self.m.check(code)
            self.goto(follow)
            return
        go, stop = self.m.fork(self.m.is_("==", code, JUMP))
        self.b.position_at_end(stop)
        self.b.ret(code)
        self.b.position_at_end(go)
        self.b.branch(self.switch)

    # --- together ---

    def gather(self, rule: str) -> None:
        members = self.m.members() if rule == MEMBERS else self.m.const(32, ALL)
        if self.m.program.divergent:
            self.await_lanes(members)
        if rule == MEMBERS:
            self.expect_members(members)
        elif rule == WHOLE:
            self.expect(I32(ALL))
        elif self.m.guard is not None:
            self.expect(self.m.active_mask)

    def await_lanes(self, members: Value) -> None:
        """Where lanes are elsewhere, wait for those of ``members`` that any lane here names."""
        apart = self.b.and_(
            self.m.is_("!=", self.m.peek("others", I32), 0), self.m.is_("!=", self.m.mask, 0)
        )
        wait, ready = self.m.fork(apart)
        self.b.position_at_end(wait)
        named = self.b.select(self.m.bits(self.m.mask), members, self.m.const(32, 0))
        union = self.m.module.declare_intrinsic(
            "llvm.vector.reduce.or.v32i32", fnty=ir.FunctionType(I32, [named.type])
        )
        wanted = self.b.call(union, [named])
        code = self.m.runtime(lane_groups.await_members, wanted, self.m.current.index, self.m.pc)
        moved, wrong = self.m.block_of(), self.m.block_of()
        go = self.b.switch(code, wrong)
        go.add_case(I64(HERE), ready)
        go.add_case(I64(JUMP), self.switch)
        go.add_case(I64(WAIT), moved)
        self.b.position_at_end(moved)
        self.b.ret(I64(WAIT))
        self.b.position_at_end(wrong)
        self.b.branch(self.m.faulted)
        self.b.position_at_end(ready)

    def expect(self, wanted: ir.Value) -> None:
        """A fault unless these lanes execute the operation, or none; without a guard it is asked
        once in a block, where no lane comes or goes."""
        if self.m.guard is None and self.gathered:
            return
        self.gathered |= self.m.guard is None
        some, all_ = (self.b.icmp_unsigned("!=", self.m.mask, x) for x in (I32(0), wanted))
        self.unless(self.b.and_(some, all_), lane_groups.missing, self.m.mask, self.m.pc)

    def expect_members(self, members: Value) -> None:
        """A fault where a lane is not a member, or members have other masks."""
        if self.m.member_mask == ALL:
            return
        first = self.m.first(members)
        others = self.b.and_(self.m.mask, self.b.not_(first))
        if self.m.member_mask is None:
            same = self.m.word(self.m.cmp("eq", members, self.m._splat(first)))
            others = self.b.or_(others, self.b.and_(self.m.mask, self.b.not_(same)))
        hit, on = self.m.fork(self.m.is_("!=", others, 0))
        self.b.position_at_end(hit)
        self.m.set_line("operands", members)
        self.m.call_checked(lane_groups.agree, self.m.mask, self.m.at("operands"), self.m.pc)
        self.b.branch(on)
        self.b.position_at_end(on)

    def unless(self, bad: ir.Value, function: Native, *arguments: ir.Value | int) -> None:
        """Call what reports a fault where that holds."""
        hit, on = self.m.fork(bad)
        self.b.position_at_end(hit)
        self.m.runtime(function, *arguments)
        self.b.branch(self.m.faulted)
        self.b.position_at_end(on)
