"""``clusterlaunchcontrol``: a running cluster takes over the work of one that has not started.

The response is written to shared memory and completes on the mbarrier. It is opaque;
``query_cancel`` decodes it.
"""

from __future__ import annotations

from .cp_async_bulk import TX
from .load_store import space_of
from .primitives import Primitives, Value
from .row import Form, Options, row

CLC: Options = {"ptx": "8.6", "target": "sm_100", "leading": 1}
EVERYWHERE = "multicast::cluster::all"
SOME = ("8.6|8.6|8.8|8.8|8.7|8.8", "sm_100a|sm_101a|sm_100f|sm_101f|sm_120a|sm_120f")


@row(f"clusterlaunchcontrol.try_cancel.async[.{{space}}].{TX}[.{EVERYWHERE}].b128",
     "[a:space], [bar:space]", space="shared::cta", effects="memory async", features="bulk_copy",
     needs={EVERYWHERE: SOME}, **CLC)  # fmt: skip
def try_cancel(m: Primitives, f: Form, a: Value, barrier: Value) -> None:
    """Request the work of a cluster that has not started; the response goes to shared memory."""
    m.cancel_cluster(space_of(f), a, barrier, bool(f.multicast__cluster__all))


QUERY = "clusterlaunchcontrol.query_cancel"


@row(f"{QUERY}.is_canceled.pred.b128", "p:pred = answer:b128", **CLC)
def is_canceled(m: Primitives, f: Form, answer: Value) -> Value:
    """Whether a cluster was cancelled: the caller does its work."""
    return m.cmp("ne", m.split(answer, 32)[3], m.const(32, 0))


@row(f"{QUERY}.get_first_ctaid.v4.b32.b128", "d:b32*4 = answer:b128", **CLC)
def first_ctaid(m: Primitives, f: Form, answer: Value) -> tuple[Value, ...]:
    """The ``ctaid`` of its first CTA; the fourth word is undefined."""
    return tuple(m.split(answer, 32))


AXES = {f"get_first_ctaid::{axis}": i for i, axis in enumerate("xyz")}


@row(f"{QUERY}.{{axis}}.b32.b128", "d:b32 = answer:b128", axis=" ".join(AXES), **CLC)
def first_ctaid_along(m: Primitives, f: Form, answer: Value) -> Value:
    """The same, along one axis."""
    return m.split(answer, 32)[AXES[f.axis]]
