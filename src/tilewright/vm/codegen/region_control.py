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
from ..program.bound_operands import CodeBlock
from ..program.evaluator import VOTES, Value
from ..state import lane_groups
from ..state.records import ALL, BAD_INDEX, DONE, FAULT, HERE, JUMP, TRAP, WAIT, YIELD, Warp
from .frame_access import Frame


class Control(Frame):
    """What a region makes of the primitives that steer threads."""

    current: CodeBlock
    heads: dict[int, ir.Block]
    ended: bool  # the block's last operation left it
    gathered: bool  # the block has found all lanes of the warp

    def flush(self) -> None:
        raise NotImplementedError

    # --- going on elsewhere ---

    def goto(self, target: int) -> None:
        """The active lanes go on at block ``target``."""
        if self.program.divergent:
            alone, apart = self.fork(self.is_("==", self.peek("others", I32), 0))
            self.b.position_at_end(apart)
            self.scatter([(target, self.peek("active", I32))])
            self.b.position_at_end(alone)
        if target <= self.current.index:
            out, on = self.fork(self.spend(target))
            self.b.position_at_end(out)
            self.poke("block", I64(target))
            self.b.ret(I64(YIELD))
            self.b.position_at_end(on)
        if target in self.heads:
            self.b.branch(self.heads[target])
        else:
            self.poke("block", I64(target))
            self.b.ret(I64(JUMP))

    def spend(self, target: int) -> ir.Value:
        """A loop costs budget; whether that is spent."""
        cost = self.program.cost(target, self.current.index)
        left = self.b.sub(self.peek("budget"), I64(cost))
        self.poke("budget", left)
        return self.is_("<", left, 0)

    def scatter(self, groups_: list[tuple[int, ir.Value]]) -> None:
        """Lanes pend at several blocks, and a group is chosen anew."""
        for target, mask in groups_:
            self.pend(target, mask)
        self.poke("block", I64(self.current.index))
        first = min(target for target, _ in groups_)
        if first <= self.current.index:
            cost = self.program.cost(first, self.current.index)
            self.poke("spin", self.b.add(self.peek("spin"), I64(cost)))
            out, on = self.fork(self.spend(first))
            self.b.position_at_end(out)
            self.poke("active", I32(0))  # all are pending already
            self.b.ret(I64(YIELD))
            self.b.position_at_end(on)
        self.b.branch(self.dispatcher)

    def pend(self, target: int, mask: ir.Value) -> None:
        place = self.place(Warp.size + 4 * target)
        self.b.store(self.b.or_(self.b.load(place, typ=I32), mask), place)

    @property
    def switch(self) -> ir.Block:
        """Go to the block that ``warp.block`` names, or leave the region."""
        if not hasattr(self, "_switch"):
            self._switch = self.block_of("switch")
            b = ir.IRBuilder(self._switch)
            switch = b.switch(b.load(self.at("block"), typ=I64), self.returning(JUMP))
            for index, head in self.heads.items():
                switch.add_case(I64(index), head)
        return self._switch

    @property
    def dispatcher(self) -> ir.Block:
        """Choose another group of lanes."""
        if not hasattr(self, "_dispatcher"):
            self._dispatcher, stop = self.block_of("dispatch"), self.block_of()
            b = ir.IRBuilder(self._dispatcher)
            code = b.call(declare(self.module, lane_groups.next_group), [self.warp])
            b.cbranch(b.icmp_unsigned("==", code, I64(JUMP)), self.switch, stop)
            ir.IRBuilder(stop).ret(code)
        return self._dispatcher

    def rest(self) -> ir.Value:
        """The active lanes whose guard does not hold."""
        return self.b.and_(self.active_mask, self.b.not_(self.mask))

    # --- branches ---

    def branch(self, label: str) -> None:
        self.ended = True
        self.flush()
        target = self.program.targets[label]
        if self.guard is None:
            self.goto(target)
        elif self.program.blocks[target].is_exit:
            self.leave(self.mask, self.current.index + 1)
        else:
            self.diverge(target, self.current.index + 1)

    def diverge(self, target: int, other: int) -> None:
        """The lanes of ``mask`` go to ``target``, the rest to ``other``."""
        none, some = self.fork(self.is_("==", self.mask, 0))
        self.b.position_at_end(none)
        self.goto(other)
        self.b.position_at_end(some)
        if self.program.divergent:
            every, part = self.fork(self.b.icmp_unsigned("==", self.mask, self.active_mask))
            self.b.position_at_end(part)
            self.scatter([(target, self.mask), (other, self.rest())])
            self.b.position_at_end(every)
        self.goto(target)

    def branch_index(self, index: Value, targets: tuple[str, ...]) -> None:
        self.ended = True
        self.flush()
        beyond = self.word(self.cmp("ge", index, self.const(32, len(targets))))
        self.stop_if(self.b.and_(self.mask, beyond), BAD_INDEX)
        parts = []
        for number, label in enumerate(targets):
            chosen = self.word(self.cmp("eq", index, self.const(32, number)))
            parts.append((self.program.targets[label], self.b.and_(self.mask, chosen)))
        if self.guard is not None:
            parts.append((self.current.index + 1, self.rest()))
        self.scatter(parts)

    # --- the end of lanes ---

    def exit(self) -> None:
        self.ended = True
        self.flush()
        self.leave(self.mask, None if self.guard is None else self.current.index + 1)

    def leave(self, mask: ir.Value, follow: int | None) -> None:
        """These lanes exit; active ones that stay go on at block ``follow``."""
        code = self.runtime(cta_barriers.lanes_exit, mask)
        done, stay = self.fork(self.is_("==", code, DONE))
        self.b.position_at_end(done)
        self.b.ret(I64(DONE))
        self.b.position_at_end(stay)
        if self.program.divergent:
            gone, rest = self.fork(self.is_("==", self.peek("active", I32), 0))
            self.b.position_at_end(gone)
            self.b.branch(self.dispatcher)
            self.b.position_at_end(rest)
        if follow is None:
            self.b.unreachable()
        else:
            self.goto(follow)

    def trap(self, why: str) -> None:
        self.stop_if(self.mask, TRAP)

    def stop_if(self, mask: ir.Value, fault: int) -> None:
        """A fault of the first of these lanes, if there are any."""
        lane = self.b.cttz(mask, I1(0))
        self.unless(self.is_("!=", mask, 0), lane_groups.fault, fault, self.op.pc, lane, 0)

    # --- waiting ---

    def sleep_unless(self, code: ir.Value) -> None:
        stop, on = self.fork(self.is_("!=", code, JUMP))
        self.b.position_at_end(stop)
        asleep = self.block_of()
        self.b.cbranch(self.is_("==", code, FAULT), self.faulted, asleep)
        self.b.position_at_end(asleep)
        left = self.runtime(mbarrier_model.sleep, self.current.index)
        if self.program.divergent:
            away = self.block_of()
            self.b.cbranch(self.is_("==", left, JUMP), self.switch, away)
            self.b.position_at_end(away)
        self.b.ret(left)
        self.b.position_at_end(on)

    def barrier_reduce(
        self, index: Value, threads: Value | None, op: str, p: Value
    ) -> Value | None:
        if not self.op.resumed:
            self.barrier(index, threads, votes=p)
            return None
        word = self.runtime(cta_barriers.barrier_result, self.first(index), VOTES[op])
        result = self._splat(self.b.trunc(word, I32))
        return result if op == "popc" else self.cmp("ne", result, self.const(32, 0))

    def barrier(
        self,
        index: Value,
        threads: Value | None,
        arrive: bool = False,
        votes: Value | None = None,
    ) -> None:
        """Only the lanes whose guard holds come to the barrier; the others go on."""
        number = self.first(index)
        count = 0 if threads is None else self.first(threads)
        ayes = 0 if votes is None else self.b.and_(self.mask, self.word(votes))
        follow = self.current.index + 1
        self.ended = True
        self.flush()
        if self.guard is not None:
            none, some = self.fork(self.is_("==", self.mask, 0))
            self.b.position_at_end(none)
            self.goto(follow)
            self.b.position_at_end(some)
            if self.program.divergent:
                self.pend(follow, self.rest())
                self.poke("active", self.mask)
                others = self.b.or_(self.peek("others", I32), self.rest())
                self.poke("others", others)
        code = self.runtime(
            cta_barriers.barrier, number, count, int(arrive), ayes, follow, self.op.pc
        )
        if arrive:
            self.check(code)
            self.goto(follow)
            return
        go, stop = self.fork(self.is_("==", code, JUMP))
        self.b.position_at_end(stop)
        self.b.ret(code)
        self.b.position_at_end(go)
        self.b.branch(self.switch)

    # --- together ---

    def gather(self, rule: str) -> None:
        members = self.members() if rule == MEMBERS else self.const(32, ALL)
        if self.program.divergent:
            self.await_lanes(members)
        if rule == MEMBERS:
            self.expect_members(members)
        elif rule == WHOLE:
            self.expect(I32(ALL))
        elif self.guard is not None:
            self.expect(self.active_mask)

    def await_lanes(self, members: Value) -> None:
        """Where lanes are elsewhere, wait for those of ``members`` that any lane here names."""
        apart = self.b.and_(
            self.is_("!=", self.peek("others", I32), 0), self.is_("!=", self.mask, 0)
        )
        wait, ready = self.fork(apart)
        self.b.position_at_end(wait)
        named = self.b.select(self.bits(self.mask), members, self.const(32, 0))
        union = self.module.declare_intrinsic(
            "llvm.vector.reduce.or.v32i32", fnty=ir.FunctionType(I32, [named.type])
        )
        wanted = self.b.call(union, [named])
        code = self.runtime(lane_groups.await_members, wanted, self.current.index, self.op.pc)
        moved, wrong = self.block_of(), self.block_of()
        go = self.b.switch(code, wrong)
        go.add_case(I64(HERE), ready)
        go.add_case(I64(JUMP), self.switch)
        go.add_case(I64(WAIT), moved)
        self.b.position_at_end(moved)
        self.b.ret(I64(WAIT))
        self.b.position_at_end(wrong)
        self.b.branch(self.faulted)
        self.b.position_at_end(ready)

    def expect(self, wanted: ir.Value) -> None:
        """A fault unless these lanes execute the operation, or none; without a guard it is asked
        once in a block, where no lane comes or goes."""
        if self.guard is None and self.gathered:
            return
        self.gathered |= self.guard is None
        some, all_ = (self.b.icmp_unsigned("!=", self.mask, x) for x in (I32(0), wanted))
        self.unless(self.b.and_(some, all_), lane_groups.missing, self.mask, self.op.pc)

    def expect_members(self, members: Value) -> None:
        """A fault where a lane is not a member, or members have other masks."""
        if self.member_mask == ALL:
            return
        first = self.first(members)
        others = self.b.and_(self.mask, self.b.not_(first))
        if self.member_mask is None:
            same = self.word(self.cmp("eq", members, self._splat(first)))
            others = self.b.or_(others, self.b.and_(self.mask, self.b.not_(same)))
        hit, on = self.fork(self.is_("!=", others, 0))
        self.b.position_at_end(hit)
        self.set_line("operands", members)
        self.check(self.runtime(lane_groups.agree, self.mask, self.at("operands"), self.op.pc))
        self.b.branch(on)
        self.b.position_at_end(on)

    def unless(self, bad: ir.Value, function: Native, *arguments: ir.Value | int) -> None:
        """Call what reports a fault where that holds."""
        hit, on = self.fork(bad)
        self.b.position_at_end(hit)
        self.runtime(function, *arguments)
        self.b.branch(self.faulted)
        self.b.position_at_end(on)
