"""Control flow: branches, calls, exits, barriers of a CTA, register counts and dependent grids."""

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
def call(m: Primitives, f: Form, callee: str, *arguments: Value) -> Any:
    """Call a function by name or through a register; operands as ``tree.Instruction`` says. An
    evaluator passes the values of the arguments."""
    return m.call(callee, *arguments)


@row("ret[.uni]", "", effects="exit")
def ret(m: Primitives, f: Form) -> None:
    """Return to the caller; from a kernel, the end of the thread."""
    m.ret()


@row("exit", "", effects="exit")
def exit_(m: Primitives, f: Form) -> None:
    """End the thread."""
    m.exit()


@row("trap", "", effects="exit")
@row("brkpt", "", effects="exit")
def trap(m: Primitives, f: Form) -> None:
    """Abort the launch."""
    m.trap(f.mnemonic)


@row("nanosleep.u32", "time:u32", ptx="6.2", target="sm_70")
def nanosleep(m: Primitives, f: Form, time: Value) -> None:
    """Suspend the thread for approximately that many nanoseconds."""
    m.nanosleep(time)


@row(
    "setmaxnreg.{action}.sync.aligned.u32",
    "count:imm(24..256:8)",
    action="inc dec",
    ptx="8.0|8.6|8.6|8.8|8.8|8.7|8.8",
    target="sm_90a|sm_100a|sm_101a|sm_100f|sm_101f|sm_120a|sm_120f",
    effects="convergent",
    leading=1,
)
def setmaxnreg(m: Primitives, f: Form, count: int) -> None:
    """Release or request registers of the warp; no effect here."""


@row("griddepcontrol.{what}", "", what="launch_dependents wait", ptx="7.8", target="sm_90",
     effects="memory")  # fmt: skip
def griddepcontrol(m: Primitives, f: Form) -> None:
    """Launch the dependent grid, or wait for the prerequisite grid. The virtual machine runs them
    in sequence.
    """
    if f.what == "wait":
        m.fence("grid")


@row("pmevent[.mask]", "event:imm", needs={"mask": ("3.0", "sm_20")})
def pmevent(m: Primitives, f: Form, event: int) -> None:
    """Trigger a performance monitor event; no effect here."""


# --- barriers ---------------------------------------------------------------------------------

CTA = {"cta": ("7.8", "sm_30")}
OLD: Options = {"effects": "barrier", "needs": CTA}
NEW: Options = {**OLD, "ptx": "6.0", "target": "sm_30"}
FERMI: Options = {**OLD, "ptx": "2.0", "target": "sm_20"}
INDEX, THREADS = "index:u32(0..15)", "threads:u32(0..:32)"


@row("bar[.cta].sync", f"{INDEX}, {THREADS}?", leading=1, **OLD)
@row("barrier[.cta].sync[.aligned]", f"{INDEX}, {THREADS}?", leading=1, **NEW)
def sync(m: Primitives, f: Form, index: Value, threads: Value | None = None) -> None:
    """Wait until ``threads`` threads (default: all of the CTA) have arrived at the barrier."""
    m.barrier(index, threads)


@row("bar[.cta].arrive", f"{INDEX}, {THREADS}", leading=2, **FERMI)
@row("barrier[.cta].arrive[.aligned]", f"{INDEX}, {THREADS}", leading=2, **NEW)
def arrive(m: Primitives, f: Form, index: Value, threads: Value) -> None:
    """Arrive at the barrier without waiting."""
    m.barrier(index, threads, arrive=True)


PREDICATE = f"d:pred = {INDEX}, c:pred / d:pred = {INDEX}, {THREADS}, c:pred"
COUNT = PREDICATE.replace("d:pred", "d:u32")


@row("bar[.cta].red.{op}.pred", PREDICATE, op="and or", leading=2, **FERMI)
@row("bar[.cta].red.{op}.u32", COUNT, op="popc", leading=2, **FERMI)
@row("barrier[.cta].red.{op}[.aligned].pred", PREDICATE, op="and or", leading=2, **NEW)
@row("barrier[.cta].red.{op}[.aligned].u32", COUNT, op="popc", leading=2, **NEW)
def reduce(m: Primitives, f: Form, index: Value, *rest: Value) -> Value:
    """``sync`` with a reduction of the threads' predicates: ``and``, ``or`` or ``popc``."""
    *threads, predicate = rest
    return m.barrier_reduce(index, threads[0] if threads else None, f.op, predicate)


@row("bar.warp.sync", "members:b32", ptx="6.0", target="sm_30", effects="convergent",
     leading=1)  # fmt: skip
def warp_sync(m: Primitives, f: Form, members: Value) -> None:
    """Wait for the lanes of the mask; memory is ordered among them."""
    m.fence("warp")
