"""Fences: memory order within a thread, between proxies, and for initialised objects.

``m.fence`` receives the kind of fence; the evaluators implement the ordering.
"""

from __future__ import annotations

from .load_store import SCOPES
from .primitives import Primitives, Value
from .row import Form, Options, row

VOLTA: Options = {"ptx": "6.0", "target": "sm_70", "effects": "memory"}
ALIAS: Options = {"ptx": "7.5", "target": "sm_70", "effects": "memory"}
HOPPER: Options = {"ptx": "8.0", "target": "sm_90", "effects": "memory"}
RESTRICTED: Options = {"ptx": "8.6", "target": "sm_90", "effects": "memory"}
NEEDS = {
    "scope=cluster": ("7.8", "sm_90"),
    **dict.fromkeys(("acquire", "release"), ("8.6", "sm_90")),
}


@row(
    "fence[.{sem}].{scope}",
    "",
    sem="sc acq_rel acquire release",
    scope=SCOPES,
    needs=NEEDS,
    **VOLTA,
)
def fence(m: Primitives, f: Form) -> None:
    """Orders this thread's memory accesses before it against those after it."""
    m.fence(f"{f.sem or 'acq_rel'}.{f.scope}")


@row(
    "membar.{level}",
    "",
    level="cta gl sys",
    ptx="1.4",
    effects="memory",
    needs={"sys": ("2.0", "sm_20")},
)
def membar(m: Primitives, f: Form) -> None:
    """The old name of ``fence.sc``."""
    m.fence("sc." + {"gl": "gpu"}.get(f.level, f.level))


@row("fence.mbarrier_init.release.cluster", "", **HOPPER)
@row("fence.acquire.sync_restrict::shared::cluster.cluster", "", **RESTRICTED)
@row("fence.release.sync_restrict::shared::cta.cluster", "", **RESTRICTED)
def fence_some(m: Primitives, f: Form) -> None:
    """Orders, in the cluster, only mbarrier initializations or accesses to one shared memory."""
    m.fence(f"{'release' if f.release else 'acquire'}.cluster")


# --- proxies ----------------------------------------------------------------------------------


@row("membar.proxy.{proxy}", "", proxy="alias", leading=1, **ALIAS)
@row("membar.proxy.{proxy}", "", proxy="async", leading=1, **HOPPER)
@row("fence.proxy.{proxy}", "", proxy="alias", leading=1, **ALIAS)
@row("fence.proxy.{proxy}[.{space}]", "", proxy="async",
     space="global shared::cta shared::cluster", leading=1, **HOPPER)  # fmt: skip
def fence_proxy(m: Primitives, f: Form) -> None:
    """Orders accesses through different proxies."""
    m.fence(f"proxy.{f.proxy}")


@row("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", "", leading=1,
     **RESTRICTED)  # fmt: skip
@row("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "", leading=1,
     **RESTRICTED)  # fmt: skip
def fence_proxy_some(m: Primitives, f: Form) -> None:
    """Orders accesses of the async proxy and the generic proxy to one shared memory."""
    m.fence("proxy.async")


MAPS: Options = {
    "ptx": "8.3", "target": "sm_90", "effects": "memory reads", "scope": SCOPES, "leading": 1,
}  # fmt: skip


@row("fence.proxy.tensormap::generic.release.{scope}", "", **MAPS)
@row("fence.proxy.tensormap::generic.acquire.{scope}", "[a:generic], size:imm(128)", **MAPS)
def fence_map(m: Primitives, f: Form, a: Value | None = None, size: int = 128) -> None:
    """Orders writes to a tensor map against copies that read it."""
    m.fence("proxy.tensormap")
