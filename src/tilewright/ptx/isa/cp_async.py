"""``cp.async``: asynchronous copies from global to shared memory, and waits for them."""

from __future__ import annotations

from .compose import int_min_max
from .load_store import NEEDS, PREFETCH, SHARED
from .primitives import Primitives, Value
from .row import Form, Options, row

AMPERE: Options = {"ptx": "7.0", "target": "sm_80"}


def _operands(f: Form) -> str:
    size = "4 8 16" if f.cache == "ca" else "16"
    base, policy = f"[dst:DST], [src:SRC], size:imm({size})", ", policy:u64" if f.hint else ""
    more = ("", ", n:u32(0..16)", ", ignore:pred()@7.5/sm_80")
    return " / ".join(f"{base}{one}{policy}" for one in more)


@row(
    "cp.async.{cache}.{DST}.{SRC}[.{hint}][.{prefetch}]",
    _operands,
    cache="ca cg",
    DST=SHARED,
    SRC="global",
    hint="L2::cache_hint",
    prefetch=PREFETCH,
    effects="memory async",
    needs=NEEDS | dict.fromkeys(("ca", "cg", "shared::cta"), ("7.0", "sm_80")),
    leading=1,
    **AMPERE,
)
def cp_async(m: Primitives, f: Form, dst: Value, src: Value, size: int, *rest: Value) -> None:
    """Copy ``size`` bytes (4, 8, 16; ``cg``: 16): all, the first ``n`` filled up with zeros, or all
    zeros.
    """
    rest = rest[:-1] if f.hint else rest
    valid = m.const(32, size)
    if rest and rest[0] is not None:
        n = rest[0]
        ignored = m.width(n) == 1
        valid = (
            m.select(n, m.const(32, 0), valid)
            if ignored
            else int_min_max(m, "min", n, valid, False)
        )
    m.cp_async(dst, src, size, valid)


@row("cp.async.commit_group", "", effects="async", leading=2, **AMPERE)
def commit_group(m: Primitives, f: Form) -> None:
    """Commit the copies since the last commit as a group."""
    m.cp_async_commit()


@row("cp.async.wait_group", "n:imm", effects="memory async", leading=2, **AMPERE)
def wait_group(m: Primitives, f: Form, n: int) -> None:
    """Wait until at most the ``n`` newest groups are in flight."""
    m.cp_async_wait(n)


@row("cp.async.wait_all", "", effects="memory async", leading=2, **AMPERE)
def wait_all(m: Primitives, f: Form) -> None:
    """Wait for all copies of this thread, committed or not."""
    m.cp_async_wait(-1)
