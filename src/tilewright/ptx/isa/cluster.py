"""Clusters: distributed shared memory and the cluster barrier.

``mapa`` maps an address of this CTA to the corresponding address of another; stores and reductions
there may be asynchronous and complete on an mbarrier there.
"""

from __future__ import annotations

from .compose import width_of
from .cp_async_bulk import TX
from .load_store import CLUSTER, space_of
from .primitives import Primitives, Value
from .row import Form, Options, row

HOPPER: Options = {"ptx": "7.8", "target": "sm_90"}


# --- the cluster's barrier --------------------------------------------------------------------

BARRIER: Options = {
    **HOPPER, "leading": 2,
    "needs": dict.fromkeys(("release", "relaxed", "acquire"), ("8.0", "sm_90")),
}  # fmt: skip


@row("barrier.cluster.arrive[.{sem}][.aligned]", "", sem="release relaxed",
     effects="memory convergent", **BARRIER)  # fmt: skip
def arrive(m: Primitives, f: Form) -> None:
    """Arrive at the cluster's barrier without waiting."""
    m.cluster_arrive(f.sem or "release")


@row("barrier.cluster.wait[.{sem}][.aligned]", "", sem="acquire",
     effects="waits convergent", **BARRIER)  # fmt: skip
def wait(m: Primitives, f: Form) -> None:
    """Wait until all threads of the cluster have arrived."""
    m.cluster_wait()


# --- addresses --------------------------------------------------------------------------------

ADDRESS: Options = {**HOPPER, "space": "shared::cluster", "T": "u32 u64"}


@row("mapa[.{space}].{T}", "d:T = a:T, rank:u32", **ADDRESS)
def mapa(m: Primitives, f: Form, a: Value, rank: Value) -> Value:
    """The corresponding address in the shared memory of the cluster's CTA with that rank."""
    return m.trunc(m.map_rank(space_of(f), m.zext(a, 64), rank), width_of(f.T))


@row("getctarank[.{space}].{T}", "d:u32 = a:T", **ADDRESS)
def getctarank(m: Primitives, f: Form, a: Value) -> Value:
    """The rank of the CTA whose shared memory contains the address."""
    return m.rank_of(space_of(f), m.zext(a, 64))


# --- asynchronous stores and reductions -------------------------------------------------------

ASYNC: Options = {"ptx": "8.1", "target": "sm_90", "effects": "memory async", "leading": 1}
BULK: Options = {**ASYNC, "features": "bulk_copy"}
STORED = "b32 b64 u32 u64 s32 s64 f32 f64"


def _fits(f: Form) -> str:
    length = int(f.vec[1:]) if f.vec else 1
    return "more than 128 bits" if length * width_of(f.T) > 128 else ""


@row(f"st.async[.weak][.{{space}}].{TX}[.{{vec}}].{{T}}", "[a:space], b:T*vec, [bar:space]",
     space=CLUSTER, vec="v2 v4", T=STORED, constraint=_fits, **BULK)  # fmt: skip
def st_async(
    m: Primitives, f: Form, a: Value, b: Value | tuple[Value, ...], barrier: Value
) -> None:
    """Store asynchronously; completes on the mbarrier."""
    m.store_async(space_of(f), a, tuple(b) if f.vec else (b,), barrier, "", f.T)


RED = f"red.async.{{sem}}.{{scope}}[.{{space}}].{TX}.{{op}}.{{T}}"
REDUCE: Options = {**BULK, "sem": "relaxed", "scope": "cluster", "space": "shared::cluster"}


@row(RED, "[a:space], b:T, [bar:space]", op="inc dec", T="u32", **REDUCE)
@row(RED, "[a:space], b:T, [bar:space]", op="min max", T="u32 s32", **REDUCE)
@row(RED, "[a:space], b:T, [bar:space]", op="add", T="u32 s32 u64 s64", **REDUCE)
@row(RED, "[a:space], b:T, [bar:space]", op="and or xor", T="b32", **REDUCE)
def red_async(m: Primitives, f: Form, a: Value, b: Value, barrier: Value) -> None:
    """Combine ``b`` into memory asynchronously; completes on the mbarrier."""
    m.store_async(space_of(f), a, (b,), barrier, f.op, f.T)


def _mmio(f: Form) -> str:
    return ".mmio needs .sys" if f.mmio and f.scope != "sys" else ""


MMIO: Options = {
    **ASYNC, "ptx": "8.7", "target": "sm_100", "scope": "gpu sys", "space": "global",
    "constraint": _mmio,
}  # fmt: skip


@row("st.async[.mmio].release.{scope}[.{space}].{T}", "[a:space], b:T",
     T=f"b8 b16 u8 u16 s8 s16 {STORED}", **MMIO)  # fmt: skip
def st_async_global(m: Primitives, f: Form, a: Value, b: Value) -> None:
    """Store to global memory; the virtual machine completes it immediately."""
    m.store(f.space, a, (b,))


RED_GLOBAL = "red.async[.mmio].release.{scope}[.{space}].{op}.{T}"


@row(RED_GLOBAL, "[a:space], b:T", op="add", T="u32 s32 u64 s64", **MMIO)
@row(RED_GLOBAL, "[a:space], b:T", op="min max", T="u32 s32", **MMIO)
@row(RED_GLOBAL, "[a:space], b:T", op="inc dec", T="u32", **MMIO)
@row(RED_GLOBAL, "[a:space], b:T", op="and or xor", T="b32", **MMIO)
def red_async_global(m: Primitives, f: Form, a: Value, b: Value) -> None:
    """Combine ``b`` into global memory; the virtual machine completes it immediately."""
    m.atomic(f.space, f.op, f.T, a, b)
