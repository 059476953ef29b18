"""mbarriers: objects in shared memory that count arrivals and transaction bytes, phase by phase.

A phase completes when its pending count and its transaction count are zero. An arrival returns the
phase's state, which a wait takes; an arrival at another CTA's barrier returns none (``_``).
``expect_tx`` and ``complete_tx`` are ``mbarrier_arrive`` without an arrival.
"""

from __future__ import annotations

from .load_store import CLUSTER, SHARED, scoped, space_of
from .primitives import Primitives, Value
from .row import Form, Options, row

OTHERS = "shared::cluster"
NEEDS = {
    "shared::cta": ("7.8", "sm_80"),
    OTHERS: ("8.0", "sm_90"),
    "scope=cta": ("8.0", "sm_80"),
    "scope=cluster": ("8.0", "sm_90"),
    "relaxed": ("8.6", "sm_90"),
}
HERE: Options = {"space": SHARED, "needs": NEEDS, "effects": "memory"}
AMPERE: Options = {**HERE, "ptx": "7.0", "target": "sm_80"}
HOPPER: Options = {**HERE, "ptx": "7.8", "target": "sm_90"}


@row("mbarrier.init[.{space}].b64", "[a:space], count:u32", leading=1, **AMPERE)
def init(m: Primitives, f: Form, a: Value, count: Value) -> None:
    """Initialize a barrier whose phases complete after ``count`` arrivals."""
    m.mbarrier_init(space_of(f), a, count)


@row("mbarrier.inval[.{space}].b64", "[a:space]", leading=1, **AMPERE)
def inval(m: Primitives, f: Form, a: Value) -> None:
    """Invalidate the barrier; its memory may be reused."""
    m.mbarrier_inval(space_of(f), a)


# --- bytes and arrivals -----------------------------------------------------------------------

SEM: Options = {"scope": "cta cluster", "constraint": scoped}
BYTES: Options = {
    **SEM, "sem": "relaxed", "space": CLUSTER, "needs": {"shared::cta": NEEDS["shared::cta"]},
    "ptx": "8.0", "target": "sm_90", "effects": "memory", "leading": 1,
}  # fmt: skip


@row("mbarrier.expect_tx[.{sem}][.{scope}][.{space}].b64", "[a:space], tx:u32", **BYTES)
def expect_tx(m: Primitives, f: Form, a: Value, tx: Value) -> None:
    """Increase the phase's transaction count by ``tx`` bytes."""
    m.mbarrier_arrive(space_of(f), a, m.const(32, 0), tx)


@row("mbarrier.complete_tx[.{sem}][.{scope}][.{space}].b64", "[a:space], tx:u32", **BYTES)
def complete_tx(m: Primitives, f: Form, a: Value, tx: Value) -> None:
    """Decrease the phase's transaction count, as a copy of ``tx`` bytes does."""
    zero = m.const(32, 0)
    m.mbarrier_arrive(space_of(f), a, zero, m.sub(zero, tx))


ARRIVE: Options = {
    **AMPERE, **SEM, "verb": "arrive arrive_drop", "sem": "release relaxed",
    "effects": "memory discard",
}  # fmt: skip
REMOTE: Options = {**ARRIVE, "space": OTHERS, "ptx": "8.0", "target": "sm_90", "effects": "memory"}
COUNT = "count:u32(1..)"
ORDER = "[.{sem}][.{scope}]"


@row(f"mbarrier.{{verb}}{ORDER}[.{{space}}].b64", f"d:u64 = [a:space], {COUNT}@7.8/sm_90?",
     leading=1, **ARRIVE)  # fmt: skip
@row(
    f"mbarrier.{{verb}}{ORDER}.{{space}}.b64", f"_:sink = [a:space], {COUNT}?", leading=1, **REMOTE
)
@row(
    f"mbarrier.{{verb}}.noComplete{ORDER}[.{{space}}].b64",
    f"d:u64 = [a:space], {COUNT}",
    leading=1,
    **{**ARRIVE, "sem": "release", "scope": "cta"},
)
def arrive(m: Primitives, f: Form, a: Value, count: Value | None = None) -> Value:
    """``count`` (1) arrivals; ``_drop`` also lowers the count that later phases wait for."""
    one, none = m.const(32, 1), m.const(32, 0)
    drop = f.verb == "arrive_drop"
    return m.mbarrier_arrive(space_of(f), a, one if count is None else count, none, drop)


LATER: Options = {"ptx": "8.0", "target": "sm_90", "leading": 2}


@row(f"mbarrier.{{verb}}.expect_tx{ORDER}[.{{space}}].b64", "d:u64 = [a:space], tx:u32",
     **{**ARRIVE, **LATER})  # fmt: skip
@row(f"mbarrier.{{verb}}.expect_tx{ORDER}.{{space}}.b64", "_:sink = [a:space], tx:u32",
     **{**REMOTE, **LATER})  # fmt: skip
def arrive_expect_tx(m: Primitives, f: Form, a: Value, tx: Value) -> Value:
    """``expect_tx``, then one arrival."""
    return m.mbarrier_arrive(space_of(f), a, m.const(32, 1), tx, f.verb == "arrive_drop")


@row("cp.async.mbarrier.arrive[.{noinc}][.{space}].b64", "[a:space]", noinc="noinc", leading=3,
     **AMPERE | {"effects": "memory async"})  # fmt: skip
def arrive_after_copies(m: Primitives, f: Form, a: Value) -> None:
    """Arrive when this thread's copies so far are complete. Without ``.noinc`` the phase's pending
    count is increased for this arrival.
    """
    m.cp_async_arrive(space_of(f), a, not f.noinc)


# --- waiting ----------------------------------------------------------------------------------

WAIT: Options = {**SEM, "sem": "acquire relaxed"}
TRY: Options = {**HOPPER, **WAIT, "effects": "memory waits"}


@row(f"mbarrier.test_wait{ORDER}[.{{space}}].b64", "p:pred = [a:space], phase:u64", leading=1,
     **AMPERE, **WAIT)  # fmt: skip
@row(f"mbarrier.test_wait.{{parity}}{ORDER}[.{{space}}].b64", "p:pred = [a:space], phase:u32(0 1)",
     parity="parity", leading=2, **AMPERE | {"ptx": "7.1"}, **WAIT)  # fmt: skip
def test_wait(m: Primitives, f: Form, a: Value, phase: Value) -> Value:
    """Whether the phase of that state, or the last phase of that parity, has completed."""
    return m.mbarrier_wait(space_of(f), a, phase, bool(f.parity), sleep=False)


@row(f"mbarrier.try_wait{ORDER}[.{{space}}].b64", "p:pred = [a:space], phase:u64, time:u32?",
     leading=1, **TRY)  # fmt: skip
@row(f"mbarrier.try_wait.{{parity}}{ORDER}[.{{space}}].b64",
     "p:pred = [a:space], phase:u32(0 1), time:u32?", parity="parity", leading=2,
     **TRY)  # fmt: skip
def try_wait(m: Primitives, f: Form, a: Value, phase: Value, time: Value | None = None) -> Value:
    """``test_wait`` that may suspend the thread for approximately ``time`` nanoseconds."""
    return m.mbarrier_wait(space_of(f), a, phase, bool(f.parity), sleep=True, time=time)


@row("mbarrier.pending_count.b64", "d:u32 = state:u64", ptx="7.0", target="sm_80", leading=1)
def pending_count(m: Primitives, f: Form, state: Value) -> Value:
    """The pending count of a state."""
    return m.mbarrier_pending(state)
