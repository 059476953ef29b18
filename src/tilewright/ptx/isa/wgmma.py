"""``wgmma``: matrix products by a warpgroup, four warps whose first has a number that 4 divides.

A comes from registers or shared memory, B from shared memory, each through a 64-bit descriptor
(``mma.MatrixDescriptor``); D is read and written. Forms, operands' counts and selectors come from
``mma.ROWS``. ptxas judges immediates by value, and takes one for ``scale_d`` too.
"""

from __future__ import annotations

from typing import Any

from ... import mma
from .matrix import Values, operand
from .primitives import Primitives, Value
from .row import Form, Options, listed, row

WGMMA = tuple(r for r in mma.ROWS if r.asynchronous)
HOPPER: Options = {"ptx": "8.0", "target": "sm_90a", "effects": "convergent async", "leading": 1}
WAITS: Options = {**HOPPER, "effects": "convergent async waits"}
SIGNS = "imm_scale_a:imm(-1 1), imm_scale_b:imm(-1 1)"


def _operands(f: Form) -> str:
    i: mma.MmaInstruction = f.entry
    d = operand(i, "d")
    middle = ["b_desc:u64", *_sparse(i), "scale_d:pred(0 1)"]
    from_registers = [operand(i, "a"), *middle]
    from_shared = ["a_desc:u64", *middle]
    if i.d != "s32":
        from_registers.append(SIGNS)
        from_shared.append(SIGNS)
    if i.a in ("f16", "bf16"):
        from_registers.append("imm_trans_b:imm(0 1)")
        from_shared.append("imm_trans_a:imm(0 1), imm_trans_b:imm(0 1)")
    return " / ".join(f"+{d} = {', '.join(x)}" for x in (from_registers, from_shared))


def _sparse(i: mma.MmaInstruction) -> list[str]:
    if not i.sparse:
        return []
    values = i.selector_values()["selector"]
    return ["sp_meta:b32()", f"sp_sel:imm({' '.join(map(str, values))})"]


@listed("wgmma", "wgmma.mma_async[.sp].sync.aligned.{shape}[.satfinite].{D}.{A}.{B}[.{op}.popc]",
        _operands, WGMMA, mma.find, "convergent whole memory async")  # fmt: skip
def mma_async(
    m: Primitives, f: Form, d: Values, a: Value | Values, b_desc: Value, *more: Any
) -> Values:
    """D = A B, or A B + D where ``scale_d``, by four warps; complete after its group's wait.

    ``imm_scale_a`` and ``imm_scale_b`` of −1 negate, ``imm_trans_a`` and ``imm_trans_b`` of 1 say
    that the operand in shared memory is MN-major.
    """
    i: mma.MmaInstruction = f.entry
    operands = list(more)
    metadata = (operands.pop(0), operands.pop(0)) if i.sparse else None
    scale_d, *immediates = operands
    signs, trans = immediates[:2], immediates[2:]
    return m.wgmma(
        i, d, a, b_desc, scale_d,
        negate=signs.count(1) == 1,
        trans_a=len(trans) == 2 and trans[0] == 1,
        trans_b=bool(trans) and trans[-1] == 1,
        metadata=metadata,
    )  # fmt: skip


@row("wgmma.fence.sync.aligned", "", **WAITS)
def fence(m: Primitives, f: Form) -> None:
    """Order earlier register accesses before the products that follow."""
    m.wgmma_fence()


@row("wgmma.commit_group.sync.aligned", "", **HOPPER)
def commit_group(m: Primitives, f: Form) -> None:
    """Commit the warp's products since the last commit as a group."""
    m.wgmma_commit()


@row("wgmma.wait_group.sync.aligned", "n:imm(0..)", **WAITS)
def wait_group(m: Primitives, f: Form, n: int) -> None:
    """Wait until at most the ``n`` newest groups are in flight."""
    m.wgmma_wait(n)
