"""``atom`` and ``red``: read, combine and write one element atomically.

The lanes of a warp execute in ascending order. A ``red`` is an ``atom`` without a result. A vector
is combined element by element.
"""

from __future__ import annotations

from .compose import width_of
from .load_store import CLUSTER, NEEDS, SCOPES, space_of
from .primitives import Primitives, Value
from .row import Form, Options, row

ATOM = "atom[.{sem}][.{scope}][.{space}].{op}[.{hint}].{T}"
RED = "red[.{sem}][.{scope}][.{space}].{op}[.{hint}].{T}"
NOFTZ = ".{op}.noftz[.{hint}].{T}"
ATOM_VECTOR, RED_VECTOR = (text.replace(".{T}", ".{vec}.{T}") for text in (ATOM, RED))
ATOM_HALVES, RED_HALVES = (
    text.replace(".{op}", ".{op}.noftz") for text in (ATOM_VECTOR, RED_VECTOR)
)


def _atom_operands(f: Form) -> str:
    return ("d:T*vec = " if f.vec else "d:T = ") + _red_operands(f)


def _red_operands(f: Form) -> str:
    value = "b:T*vec" if f.vec else "b:T"
    return f"[a:space], {value}" + (", policy:u64" if f.hint else "")


def _hint_is_global(f: Form) -> str:
    return "cache hints need global memory" if f.hint and f.space not in ("", "global") else ""


BASE: Options = {
    "scope": SCOPES,
    "space": f"global {CLUSTER}",
    "hint": "L2::cache_hint",
    "effects": "memory",
    "constraint": _hint_is_global,
}
A: Options = {**BASE, "sem": "relaxed acquire release acq_rel", "effects": "memory discard"}
R: Options = {**BASE, "sem": "relaxed release"}
FIRST: Options = {"ptx": "1.1", "target": "sm_11"}
ATOMIC_NEEDS: Options = {
    **NEEDS,
    "sys": ("5.0", "sm_60"),
    "scope=cta": ("5.0", "sm_60"),
    "scope=gpu": ("5.0", "sm_60"),
    "u64": ("1.2", "sm_12"),
    "b64": ("1.2", "sm_12"),
    "s64": ("3.1", "sm_32"),
    "f32": ("2.0", "sm_20"),
    "f64": ("5.0", "sm_60"),
}
BITWISE_NEEDS: Options = {**ATOMIC_NEEDS, "b64": ("3.1", "sm_32")}
EXTREME_NEEDS = {**BITWISE_NEEDS, "u64": ("3.1", "sm_32")}
HALF_NEEDS = {
    **ATOMIC_NEEDS,
    "f16": ("6.3", "sm_70"),
    "bf16": ("7.8", "sm_90"),
    "bf16x2": ("7.8", "sm_90"),
}
VECTOR: Options = {"space": "global", "ptx": "8.1", "target": "sm_90", "needs": NEEDS}
WORDS: Options = {**VECTOR, "op": "add", "vec": "v2 v4", "T": "f32"}
HALVES: Options = {**VECTOR, "op": "add min max", "vec": "v2 v4 v8", "T": "f16 bf16"}
PAIRS: Options = {**HALVES, "vec": "v2 v4", "T": "f16x2 bf16x2"}


@row(ATOM, _atom_operands, op="add", T="u32 s32 u64 f32 f64", needs=ATOMIC_NEEDS, **FIRST, **A)
@row(ATOM, _atom_operands, op="inc dec", T="u32", needs=ATOMIC_NEEDS, **FIRST, **A)
@row(
    ATOM,
    _atom_operands,
    op="exch",
    T="b32 b64 b128",
    needs=ATOMIC_NEEDS | {"b128": ("8.4", "sm_90")},
    **FIRST,
    **A,
)
@row(ATOM, _atom_operands, op="min max", T="u32 s32 u64 s64", needs=EXTREME_NEEDS, **FIRST, **A)
@row(ATOM, _atom_operands, op="and or xor", T="b32 b64", needs=BITWISE_NEEDS, **FIRST, **A)
@row(
    ATOM[: ATOM.index(".{op}")] + NOFTZ,
    _atom_operands,
    op="add",
    T="f16 f16x2 bf16 bf16x2",
    ptx="6.2",
    target="sm_60",
    needs=HALF_NEEDS,
    **A,
)
@row(ATOM_VECTOR, _atom_operands, **{**A, **WORDS})
@row(ATOM_HALVES, _atom_operands, **{**A, **HALVES})
@row(ATOM_HALVES, _atom_operands, **{**A, **PAIRS})
def atom(
    m: Primitives, f: Form, a: Value, b: Value | tuple[Value, ...], policy: Value | None = None
) -> Value | tuple[Value, ...]:
    """Combine ``b`` into memory; the result is the old value."""
    old = m.atomic(space_of(f), f.op, f.T, a, m.join(*b) if f.vec else b)
    return m.split(old, width_of(f.T)) if f.vec else old


@row(
    "atom[.{sem}][.{scope}][.{space}].cas.{T}",
    "d:T = [a:space], b:T, c:T",
    T="b16 b32 b64 b128",
    needs=ATOMIC_NEEDS | {"b16": ("6.3", "sm_70"), "b128": ("8.4", "sm_90")},
    **FIRST,
    **A,
)
def cas(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Compare and swap: store ``c`` where memory equals ``b``; the result is the old value."""
    return m.atomic(space_of(f), "cas", f.T, a, b, c)


@row(RED, _red_operands, op="add", T="u32 s32 u64 f32 f64", needs=ATOMIC_NEEDS, **FIRST, **R)
@row(RED, _red_operands, op="inc dec", T="u32", needs=ATOMIC_NEEDS, **FIRST, **R)
@row(RED, _red_operands, op="min max", T="u32 s32 u64 s64", needs=EXTREME_NEEDS, **FIRST, **R)
@row(RED, _red_operands, op="and or xor", T="b32 b64", needs=BITWISE_NEEDS, **FIRST, **R)
@row(
    RED[: RED.index(".{op}")] + NOFTZ,
    _red_operands,
    op="add",
    T="f16 f16x2 bf16 bf16x2",
    ptx="6.2",
    target="sm_60",
    needs=HALF_NEEDS,
    **R,
)
@row(RED_VECTOR, _red_operands, **{**R, **WORDS})
@row(RED_HALVES, _red_operands, **{**R, **HALVES})
@row(RED_HALVES, _red_operands, **{**R, **PAIRS})
def red(
    m: Primitives, f: Form, a: Value, b: Value | tuple[Value, ...], policy: Value | None = None
) -> None:
    """Combine ``b`` into memory."""
    m.atomic(space_of(f), f.op, f.T, a, m.join(*b) if f.vec else b)
