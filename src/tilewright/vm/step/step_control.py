"""Control flow of the stepping evaluator: branches, divergent lanes, exits, barriers.

It follows the same rules as compiled code (``codegen/region_control.py``).
"""

from __future__ import annotations

import numpy as np

from ...ptx.isa.convergence import MEMBERS, WHOLE
from ..engine import cta_barriers, mbarrier_model
from ..program.evaluator import VOTES
from ..state import lane_groups
from ..state.records import BAD_INDEX, CONVERGED, DONE, FAULT, FULL_MASK, TRAP, WAIT, YIELD
from .step_context import Fault, Lanes, StepPart, lanes_of, word_of


class LeaveBlock(Exception):
    """Control leaves the block; ``code`` is the result for the scheduler."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class StepControl(StepPart):
    """The primitives of control flow; each ends the block by ``LeaveBlock``, or returns."""

    # --- transfer of control ---

    def goto(self, target: int) -> None:
        """Continue with all active lanes at block ``target``."""
        if self.m.program.divergent and self.m.warp.others:
            self.scatter([(target, self.m.warp.active)])
        self.m.warp.block = target
        if target <= self.m.current.index and self.spend(target):
            raise LeaveBlock(YIELD)
        raise LeaveBlock(0)

    def spend(self, target: int) -> bool:
        """Charge a back edge to the budget; whether the budget is exhausted."""
        self.m.warp.budget -= self.m.program.cost(target, self.m.current.index)
        return self.m.warp.budget < 0

    def scatter(self, groups: list[tuple[int, int]]) -> None:
        """Make lanes pending at several blocks, and choose the group that runs next."""
        for target, mask in groups:
            self.pend(target, mask)
        block = self.m.current.index
        cost = self.m.program.back_edge_cost(min(target for target, _ in groups), block)
        raise LeaveBlock(self.m.call_native(lane_groups.next_after, block, cost))

    def pend(self, target: int, mask: int) -> None:
        """Make lanes pending at block ``target``."""
        self.m.call_native(lane_groups.pend, target, mask)

    def skipped_lanes(self) -> int:
        """The active lanes whose guard does not hold."""
        return self.m.active_mask & ~self.m.mask

    # --- branches and exits ---

    def branch(self, label: str) -> None:
        target, follow = self.m.program.targets[label], self.m.current.index + 1
        if self.m.guard is not None and self.m.program.blocks[target].is_exit:
            self.leave(follow)
        if self.m.mask in (self.m.active_mask, 0):
            self.goto(target if self.m.mask else follow)
        self.scatter([(target, self.m.mask), (follow, self.skipped_lanes())])

    def branch_index(self, index: Lanes, targets: tuple[str, ...]) -> None:
        self.stop_if(self.m.mask & word_of(index >= len(targets)), BAD_INDEX)
        masks = (self.m.mask & word_of(index == number) for number in range(len(targets)))
        groups = [(self.m.program.targets[t], mask) for t, mask in zip(targets, masks, strict=True)]
        if self.m.guard is not None:
            groups.append((self.m.current.index + 1, self.skipped_lanes()))
        self.scatter(groups)

    def exit(self) -> None:
        self.leave(self.m.current.index + 1)

    def leave(self, follow: int) -> None:
        if self.m.call_native(cta_barriers.exit_lanes, self.m.mask) == DONE:
            raise LeaveBlock(DONE)
        if self.m.program.divergent and self.m.warp.active == 0:
            raise LeaveBlock(self.m.call_native(lane_groups.next_group))
        self.goto(follow)

    def trap(self, why: str) -> None:
        self.stop_if(self.m.mask, TRAP)

    def stop_if(self, mask: int, fault: int) -> None:
        if mask:
            self.m.call_native(lane_groups.fault, fault, self.m.pc, _lowest(mask), 0)
            raise Fault

    # --- waiting ---

    def sleep_unless(self, code: int) -> None:
        if code == FAULT:
            raise Fault
        if code == WAIT:
            raise LeaveBlock(self.m.call_native(mbarrier_model.sleep, self.m.current.index))

    def barrier_reduce(self, index: Lanes, threads: Lanes | None, op: str, p: Lanes) -> Lanes:
        if not self.m.op.resumed:
            self.barrier(index, threads, votes=p)
        word = self.m.call_native(cta_barriers.barrier_result, self._first(index), VOTES[op])
        return self.m.const(32 if op == "popc" else 1, word)

    def barrier(
        self,
        index: Lanes,
        threads: Lanes | None,
        arrive: bool = False,
        votes: Lanes | None = None,
    ) -> None:
        count = 0 if threads is None else self._first(threads)
        true_votes = 0 if votes is None else self.m.mask & word_of(votes)
        follow = self.m.current.index + 1
        if self.m.mask == 0:
            self.goto(follow)
        if self.m.guard is not None and self.m.program.divergent:
            self.pend(follow, self.skipped_lanes())
            self.m.warp.active = self.m.mask
            self.m.warp.others |= self.skipped_lanes()
        code = self.m.call_native(
            cta_barriers.barrier, self._first(index), count, arrive, true_votes, follow, self.m.pc
        )
        if arrive and not code:
            self.goto(follow)
        raise LeaveBlock(code)

    def gather(self, rule: str) -> None:
        if not self.m.mask:
            return
        members = self.m.members() if rule == MEMBERS else self.m.const(32, FULL_MASK)
        if self.m.program.divergent and self.m.warp.others:
            mask = int(np.bitwise_or.reduce(members[lanes_of(self.m.mask)]))
            code = self.m.call_native(
                lane_groups.await_members, mask, self.m.current.index, self.m.pc
            )
            if code != CONVERGED:
                raise LeaveBlock(code)
        if rule == MEMBERS:
            self.m.store_area("operands", members)
            self.m.call_checked(
                lane_groups.check_member_masks, self.m.mask, self.m.at("operands"), self.m.pc
            )
        elif self.m.mask != (FULL_MASK if rule == WHOLE else self.m.active_mask):
            self.m.call_checked(lane_groups.fault_missing_lanes, self.m.mask, self.m.pc)

    def _first(self, value: Lanes) -> int:
        """The value in the first lane whose guard holds."""
        return int(value[_lowest(self.m.mask) if self.m.mask else 0])


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
