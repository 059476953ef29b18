"""Bulk copies: rows of 16 bytes between global and shared memory, and between CTAs' shared memory.

They are asynchronous: copies into shared memory complete on an mbarrier (its transaction count),
copies out of it belong to their thread's bulk groups. A reduction combines with the destination.
"""

from __future__ import annotations

from typing import Any

from .primitives import Primitives, Value
from .row import Form, Options, row

HOPPER: Options = {
    "ptx": "8.0", "target": "sm_90", "effects": "memory async", "features": "bulk_copy",
}  # fmt: skip
SIZE = "size:u32(0..1048560:16)"
TX, HINT = "mbarrier::complete_tx::bytes", "L2::cache_hint"


def space(word: str) -> str:
    """``shared::cta`` and ``shared::cluster`` are ``shared`` to the primitives."""
    return word.partition("::")[0]


def hinted(f: Form) -> str:
    """The operand of a cache hint."""
    return ", policy:u64" if f.hint else ""


# --- copies -----------------------------------------------------------------------------------

COPY: Options = {**HOPPER, "leading": 2}


def _into(f: Form) -> str:
    ctas = ", ctas:u16" if f.multicast else ""
    return f"[dst:DST], [src:SRC], {SIZE}, [bar:DST]{ctas}{hinted(f)}"


@row(f"cp.async.bulk.{{DST}}.{{SRC}}.{TX}[.{{multicast}}][.{{hint}}]", _into,
     DST="shared::cluster", SRC="global", multicast="multicast::cluster", hint=HINT,
     **COPY)  # fmt: skip
@row(f"cp.async.bulk.{{DST}}.{{SRC}}.{TX}[.{{hint}}]", _into, DST="shared::cta", SRC="global",
     hint=HINT, **COPY | {"ptx": "8.6"})  # fmt: skip
@row(f"cp.async.bulk.{{DST}}.{{SRC}}.{TX}", _into, DST="shared::cluster", SRC="shared::cta",
     **COPY)  # fmt: skip
def into_shared(
    m: Primitives, f: Form, dst: Value, src: Value, size: Value, barrier: Value, *more: Value
) -> None:
    """Copy ``size`` bytes, with multicast to the same address in each CTA of a mask."""
    m.bulk_copy("shared", dst, space(f.SRC), src, size, barrier=barrier,
                ctas=more[0] if f.multicast else None)  # fmt: skip


@row(
    "cp.async.bulk.{DST}.{SRC}.bulk_group[.{hint}][.{cp_mask}]",
    lambda f: f"[dst:DST], [src:SRC], {SIZE}{hinted(f)}" + ", bytes:u16" * bool(f.cp_mask),
    DST="global", SRC="shared::cta", hint=HINT, cp_mask="cp_mask",
    needs={"cp_mask": ("8.6", "sm_100")}, **COPY,
)  # fmt: skip
def into_global(m: Primitives, f: Form, dst: Value, src: Value, size: Value, *more: Value) -> None:
    """Copy ``size`` bytes; of each 16 bytes only those that ``cp_mask`` selects."""
    m.bulk_copy("global", dst, "shared", src, size, bytes_=more[-1] if f.cp_mask else None)


@row("cp.async.bulk.prefetch.{level}.{space}[.{hint}]",
     lambda f: f"[a:space], {SIZE}{hinted(f)}", level="L2", space="global", hint=HINT, leading=3,
     **HOPPER | {"effects": "memory reads async"})  # fmt: skip
def prefetch(m: Primitives, f: Form, a: Value, size: Value, policy: Value | None = None) -> None:
    """A hint to the cache; no effect on values."""


# --- reductions -------------------------------------------------------------------------------

REDUCE: Options = {**HOPPER, "leading": 3}
INTO: Options = {**REDUCE, "DST": "shared::cluster", "SRC": "shared::cta"}
REDUCE_INTO = f"cp.reduce.async.bulk.{{DST}}.{{SRC}}.{TX}.{{op}}.{{T}}"
INTO_OPERANDS = f"[dst:DST], [src:SRC], {SIZE}, [bar:DST]"


@row(REDUCE_INTO, INTO_OPERANDS, op="and or xor", T="b32", **INTO)
@row(REDUCE_INTO, INTO_OPERANDS, op="add", T="u32 s32 u64", **INTO)
@row(REDUCE_INTO, INTO_OPERANDS, op="inc dec", T="u32", **INTO)
@row(REDUCE_INTO, INTO_OPERANDS, op="min max", T="u32 s32", **INTO)
def reduce_into_shared(
    m: Primitives, f: Form, dst: Value, src: Value, size: Value, barrier: Value
) -> None:
    """Combine ``size`` bytes into another CTA's shared memory, element by element."""
    m.bulk_reduce("shared", dst, src, size, f.op, f.T, barrier)


OUT: Options = {**REDUCE, "DST": "global", "SRC": "shared::cta", "hint": HINT}
REDUCE_OUT = "cp.reduce.async.bulk.{DST}.{SRC}.bulk_group[.{hint}].{op}.{T}"
REDUCE_OUT_NOFTZ = REDUCE_OUT.replace("{op}", "{op}.noftz")


def _out(f: Form) -> str:
    return f"[dst:DST], [src:SRC], {SIZE}{hinted(f)}"


@row(REDUCE_OUT, _out, op="and or xor", T="b32 b64", **OUT)
@row(REDUCE_OUT, _out, op="add", T="u32 s32 u64 f32 f64", **OUT)
@row(REDUCE_OUT_NOFTZ, _out, op="add", T="f16 bf16", **OUT)
@row(REDUCE_OUT, _out, op="inc dec", T="u32", **OUT)
@row(REDUCE_OUT, _out, op="min max", T="u32 s32 u64 s64 f16 bf16", **OUT)
def reduce_into_global(
    m: Primitives, f: Form, dst: Value, src: Value, size: Value, policy: Any = None
) -> None:
    """Combine ``size`` bytes into global memory, element by element."""
    m.bulk_reduce("global", dst, src, size, f.op, f.T)


# --- groups -----------------------------------------------------------------------------------


@row("cp.async.bulk.commit_group", "", leading=3, **HOPPER)
def commit_group(m: Primitives, f: Form) -> None:
    """Commit this thread's bulk copies since the last commit as a group."""
    m.bulk_commit()


@row("cp.async.bulk.wait_group[.{read}]", "n:imm", read="read", leading=3, **HOPPER)
def wait_group(m: Primitives, f: Form, n: int) -> None:
    """Wait until at most the ``n`` newest groups are in flight, or have not read their source."""
    m.bulk_wait(n, bool(f.read))
