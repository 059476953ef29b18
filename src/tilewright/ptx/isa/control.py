"""Control: branches, calls, the end of a thread, barriers of a CTA."""

from __future__ import annotations

from typing import Any

from .primitives import Primitives, Value
from .row import Form, Options, row


@row("bra[.uni]", "target:label", effects="branch")
def bra(m: Primitives, f: Form, target: str) -> None:
    """Go to the label."""
    m.branch(target)


@row("brx.idx[.uni]", "index:u32, targets:symbol", ptx="6.0", target="sm_30", effects="branch")
def brx(m: Primitives, f: Form, index: Value, targets: str) -> None:
    """Go to the label at that index of a ``.branchtargets`` list."""
    m.branch_index(index, targets)


@row(
    "call[.uni]", "results:any?, callee:any, arguments:any?, prototype:any?", effects="call memory"
)
def call(m: Primitives, f: Form, *operands: Any) -> None:
    """Call a function by name or through a register; operands as ``tree.Instruction`` says."""
    m.call(*operands)


@row("ret[.uni]", "", effects="exit")
def ret(m: Primitives, f: Form) -> None:
    """Return to the caller; from a kernel, the end of the thread."""
    m.ret()


@row("exit", "", effects="exit")
def exit_(m: Primitives, f: Form) -> None:
    """The end of the thread."""
    m.exit()


@row("trap", "", effects="exit")
@row("brkpt", "", effects="exit")
def trap(m: Primitives, f: Form) -> None:
    """Abort the launch."""
    m.trap(f.mnemonic)


@row("nanosleep.u32", "time:u32", ptx="6.3", target="sm_70")
def nanosleep(m: Primitives, f: Form, time: Value) -> None:
    """Give way for about that many nanoseconds."""
    m.nanosleep(time)


@row("pmevent[.mask]", "event:imm", needs={"mask": ("3.0", "sm_20")})
def pmevent(m: Primitives, f: Form, event: int) -> None:
    """Trigger a performance monitor event; no effect here."""


# --- barriers ---------------------------------------------------------------------------------

OLD: Options = {"effects": "barrier", "needs": {"cta": ("7.8", "sm_30")}}
NEW: Options = {
    "effects": "barrier",
    "ptx": "6.0",
    "target": "sm_30",
    "needs": {"cta": ("7.8", "sm_30")},
}
FERMI: Options = {**OLD, "ptx": "2.0", "target": "sm_20"}


@row("bar[.cta].sync", "index:u32, threads:u32?", **OLD)
@row("barrier[.cta].sync[.aligned]", "index:u32, threads:u32?", **NEW)
def sync(m: Primitives, f: Form, index: Value, threads: Value | None = None) -> None:
    """Wait until ``threads`` threads (all of the CTA) have come to the barrier."""
    m.barrier(index, threads)


@row("bar[.cta].arrive", "index:u32, threads:u32", **FERMI)
@row("barrier[.cta].arrive[.aligned]", "index:u32, threads:u32", **NEW)
def arrive(m: Primitives, f: Form, index: Value, threads: Value) -> None:
    """Count towards the barrier without waiting."""
    m.barrier(index, threads, arrive=True)


REDUCE = "{d} = index:u32, c:pred / {d} = index:u32, threads:u32, c:pred"


@row("bar[.cta].red.{op}.pred", REDUCE.format(d="d:pred"), op="and or", **FERMI)
@row("bar[.cta].red.{op}.u32", REDUCE.format(d="d:u32"), op="popc", **FERMI)
@row("barrier[.cta].red.{op}[.aligned].pred", REDUCE.format(d="d:pred"), op="and or", **NEW)
@row("barrier[.cta].red.{op}[.aligned].u32", REDUCE.format(d="d:u32"), op="popc", **NEW)
def reduce(m: Primitives, f: Form, index: Value, *rest: Value) -> Value:
    """``sync``, and the predicate over the threads: ``and``, ``or``, or how often it holds."""
    *threads, predicate = rest
    return m.barrier_reduce(index, threads[0] if threads else None, f.op, predicate)


@row("bar.warp.sync", "members:b32", ptx="6.0", target="sm_30", effects="convergent")
def warp_sync(m: Primitives, f: Form, members: Value) -> None:
    """Wait for the lanes of the mask; memory is ordered among them."""
    m.convergent(members)
