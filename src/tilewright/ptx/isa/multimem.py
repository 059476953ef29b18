"""``multimem``: multicast memory of several GPUs. A store writes all copies; a load reduces."""

from __future__ import annotations

from .compose import width_of
from .load_store import SCOPES, scoped
from .primitives import Primitives, Value
from .row import Form, Options, Requirement, row

FP8 = "e4m3 e4m3x2 e4m3x4 e5m2 e5m2x2 e5m2x4"
HALVES = "f16 f16x2 bf16 bf16x2"
NEW: Requirement = (
    "8.6|8.6|8.8|8.8|8.7|8.8", "sm_100a|sm_101a|sm_100f|sm_101f|sm_120a|sm_121a"
)  # fmt: skip
NEEDS: dict[str, Requirement] = {
    **{f"T={t}": NEW for t in FP8.split()},
    "acc::f16": NEW,
    "acc::f32": ("8.2", "sm_90"),
}
HOPPER: Options = {
    "ptx": "8.1", "target": "sm_90", "effects": "memory", "scope": SCOPES, "space": "global",
    "needs": NEEDS, "leading": 1, "features": "multimem",
}  # fmt: skip


def _length(f: Form) -> int:
    return int(f.vec[1:]) if f.vec else 1


def _floats(f: Form) -> str:
    """Why the vector's size is not supported: it must be 32, 64 or 128 bits."""
    bits = _length(f) * width_of(f.T)
    if bits not in (32, 64, 128):
        return f"{bits} bits are neither 32, 64 nor 128"
    return scoped(f)


LOAD = "multimem.ld_reduce[.{sem}][.{scope}][.{space}].{op}[.{acc}][.{vec}].{T}"
LOADS: Options = {**HOPPER, "sem": "weak relaxed acquire", "effects": "memory reads"}
PLAIN = LOAD.replace("[.{acc}][.{vec}]", "")
OPS: Options = {**LOADS, "constraint": scoped}
VECTORS: Options = {"vec": "v2 v4 v8", "constraint": _floats}


@row(PLAIN, "d:T = [a:space]", op="min max", T="u32 s32 u64 s64", **OPS)
@row(PLAIN, "d:T = [a:space]", op="add", T="u32 s32 u64 f64", **OPS)
@row(PLAIN, "d:T = [a:space]", op="and or xor", T="b32 b64", **OPS)
@row(LOAD.replace("[.{acc}]", ""), "d:T*vec = [a:space]", op="add", T="f32", **LOADS, **VECTORS)
@row(LOAD, "d:T*vec = [a:space]", op="add", acc="acc::f32", T=HALVES, **LOADS, **VECTORS)
@row(LOAD, "d:T*vec = [a:space]", op="add", acc="acc::f16", T=FP8, **LOADS, **VECTORS)
@row(LOAD.replace("[.{acc}]", ""), "d:T*vec = [a:space]", op="min max", T=f"{HALVES} {FP8}",
     **LOADS, **VECTORS)  # fmt: skip
def ld_reduce(m: Primitives, f: Form, a: Value) -> Value | tuple[Value, ...]:
    """Load from all copies and reduce."""
    found = m.multimem_load(f.op, f.T, a, width_of(f.T), _length(f), f.acc.rpartition(":")[2])
    return found if f.vec else found[0]


STORE = "multimem.st[.{sem}][.{scope}][.{space}][.{vec}].{T}"
STORES: Options = {**HOPPER, "sem": "weak relaxed release"}


@row(STORE.replace("[.{vec}]", ""), "[a:space], b:T", T="b32 b64 u32 u64 s32 s64 f64", **STORES,
     constraint=scoped)  # fmt: skip
@row(STORE, "[a:space], b:T*vec", T=f"f32 {HALVES} {FP8}", **STORES, **VECTORS)
def st(m: Primitives, f: Form, a: Value, b: Value | tuple[Value, ...]) -> None:
    """Store to all copies."""
    m.multimem_store(a, tuple(b) if f.vec else (b,))


RED = "multimem.red[.{sem}][.{scope}][.{space}].{op}.{T}"
REDUCE: Options = {**HOPPER, "sem": "relaxed release"}


@row(RED, "[a:space], b:T", op="min max", T="u32 s32 u64 s64", **REDUCE, constraint=scoped)
@row(RED, "[a:space], b:T", op="add", T="u32 s32 u64 f64", **REDUCE, constraint=scoped)
@row(RED, "[a:space], b:T", op="and or xor", T="b32 b64", **REDUCE, constraint=scoped)
@row(RED.replace(".{T}", "[.{vec}].{T}"), "[a:space], b:T*vec", op="add", T=f"f32 {HALVES}",
     **REDUCE, **VECTORS)  # fmt: skip
@row(RED.replace(".{T}", ".{vec}.{T}"), "[a:space], b:T*vec", op="min max", T=HALVES,
     **REDUCE, **VECTORS)  # fmt: skip
def red(m: Primitives, f: Form, a: Value, b: Value | tuple[Value, ...]) -> None:
    """Combine into all copies."""
    m.multimem_reduce(f.op, f.T, a, tuple(b) if f.vec else (b,))
