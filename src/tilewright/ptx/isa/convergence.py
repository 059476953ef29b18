"""Which threads of a warp execute an instruction together: the rules behind ``.sync`` and
``.aligned``.

A row with the effect ``convergent`` has one of three rules. The virtual machine waits for the
threads that the rule names and that can still come, and reports a fault in every mode where a
thread is missing or where the guard holds in some of them only (PTX ISA 9.0, section of each
instruction: "The mandatory .aligned qualifier indicates …", "The behavior is undefined if …").

rule      who must execute it                        instructions
-------   ----------------------------------------   --------------------------------------------
WHOLE     all 32 threads of the warp; none has       mma, mma.sp, wmma.load, wmma.store,
          exited, and the block fills the warp       wmma.mma, ldmatrix, stmatrix, movmatrix,
                                                     wgmma.mma_async (9.7.14, 9.7.15)
WARP      all threads of the warp that have not      wgmma.fence, .commit_group, .wait_group;
          exited                                     setmaxnreg; tensormap.cp_fenceproxy;
                                                     barrier.cluster.arrive.aligned, .wait.aligned
MEMBERS   the threads of the member mask that have   shfl.sync, vote.sync, match.sync,
          not exited, each with the same mask;       redux.sync, elect.sync, bar.warp.sync
          whoever executes it is one of them         (9.7.9, 9.7.13)

A matrix instruction distributes its operands over 32 threads, so part of them is missing if a
thread has exited or does not exist: the manual says so for mma, wmma, ldmatrix and stmatrix. For
WARP and MEMBERS it names threads that have not exited; blocks whose last warp is not full can use
those.

Instructions with other rules, or none:

bar, barrier (.aligned or not)   The CTA's barrier waits for the threads of a warp that have not
                                 exited, at whichever barrier instruction each arrives, as hardware
                                 does from sm_70 on. A thread that never arrives causes a deadlock,
                                 which is reported. Warps may execute different barrier
                                 instructions (producers, consumers).
wgmma.mma_async                  The four warps of its warpgroup also execute the same products, in
                                 the same groups (``vm/engine/wgmma_groups.py``).
setmaxnreg                       The other three warps are not checked: the virtual machine has no
                                 register allocation.
barrier.cluster without          Each thread separately.
.aligned; activemask; vote,
shfl without .sync;
griddepcontrol
"""

from __future__ import annotations

from functools import cache

from .row import Form

WHOLE, WARP, MEMBERS = "whole warp", "warp", "members"


@cache
def convergence_rule(f: Form) -> str:
    """The rule of a form; an empty string if each thread executes it separately."""
    if "convergent" not in f.effects or (_optional(f) and not f.aligned):
        return ""
    if any(spec.name == "members" for specs in f.signatures for spec in specs):
        return MEMBERS
    return WHOLE if "whole" in f.effects else WARP


def _optional(f: Form) -> bool:
    """Whether the row has forms with and without ``.aligned``."""
    return any(slot.name == "aligned" and slot.optional for slot in f.row.slots)
