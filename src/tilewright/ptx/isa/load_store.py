"""Loads and stores, addresses and moves.

An address has 64 bits; ``shared::cluster`` is ``shared``, possibly of another CTA. Cache operators,
eviction priorities and policies change no value, so the meanings ignore them. The evaluators
implement ordering and scope. A register wider than the type may be loaded or stored (``relaxed``).
"""

from __future__ import annotations

from .compose import width_of
from .primitives import Primitives, Value
from .row import Form, Options, row

TYPES = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
SCOPES = "cta cluster gpu sys"
EVICT = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
EVICT_L2 = "L2::evict_normal L2::evict_first L2::evict_last"
PREFETCH = "L2::64B L2::128B L2::256B"
SHARED = "shared shared::cta"
CLUSTER = f"{SHARED} shared::cluster"
READABLE = f"global {CLUSTER} local const param param::entry param::func"
WRITABLE = f"global {CLUSTER} local param param::func"
STRONG = ("volatile", "relaxed", "acquire", "release")

NEEDS = {
    **dict.fromkeys(("ca", "cg", "cs", "lu", "cv", "wb", "wt"), ("2.0", "sm_20")),
    **dict.fromkeys(("relaxed", "acquire", "release", "acq_rel"), ("6.0", "sm_70")),
    "weak": ("6.0", "sm_20"),
    "nc": ("3.1", "sm_32"),
    "scope=cluster": ("7.8", "sm_90"),
    "mmio": ("8.2", "sm_70"),
    **dict.fromkeys(EVICT.split(), ("7.4", "sm_70")),
    "L2::cache_hint": ("7.4", "sm_80"),
    "L2::64B": ("7.4", "sm_75"),
    "L2::128B": ("7.4", "sm_75"),
    "L2::256B": ("7.4", "sm_80"),
    "shared::cta": ("7.8", "sm_30"),
    "shared::cluster": ("7.8", "sm_90"),
    "param::entry": ("8.3", "sm_20"),
    "param::func": ("8.3", "sm_20"),
    "T=b128": ("8.3", "sm_70"),
    "T=f64": ("1.0", "sm_13"),
}


def space_of(f: Form) -> str:
    """The state space as the primitives name it: ``shared::cta`` is ``shared``."""
    return f.space.partition("::")[0]


def scoped(f: Form) -> str:
    """Why the form's ordering and scope can't be combined."""
    ordered = f.sem in ("relaxed", "acquire", "release", "acq_rel")
    if ordered and not f.scope:
        return f".{f.sem} needs a scope"
    if f.scope and not ordered:
        return "a scope needs .relaxed, .acquire or .release"
    return ""


def _strength(f: Form) -> str:
    """Why the form's ordering can't be combined with its scope, space or cache operator."""
    if wrong := scoped(f):
        return wrong
    if f.sem in STRONG and f.cop:
        return f".{f.sem} and .{f.cop} exclude each other"
    if f.sem in STRONG and f.space.startswith(("const", "param", "local")):
        return f".{f.sem} does not apply to .{f.space}"
    if f.mmio and (f.sem, f.scope) != ("relaxed", "sys"):
        return ".mmio needs .relaxed.sys"
    if f.mmio and f.space not in ("", "global"):
        return f".mmio does not apply to .{f.space}"
    if f.mmio and (f.evict or f.evict2 or f.hint or f.prefetch or f.vec):
        return ".mmio takes neither cache hints nor vectors"
    return _caching(f)


def _caching(f: Form) -> str:
    if f.nc and f.space != "global":
        return ".nc needs .global"
    if f.nc and f.cop in ("lu", "cv"):
        return f".nc and .{f.cop} exclude each other"
    if f.nc and f.sem:
        return f".nc and .{f.sem} exclude each other"
    if f.sem == "volatile" and (f.evict or f.evict2 or f.hint):
        return "cache hints and .volatile exclude each other"
    if f.cop and f.evict:
        return f".{f.cop} and .{f.evict} exclude each other"
    if (f.evict or f.hint or f.prefetch) and f.space not in ("", "global"):
        return f"cache hints don't apply to .{f.space}"
    return ""


def _length(f: Form) -> int:
    return int(f.vec[1:]) if f.vec else 1


def _plain(f: Form) -> str:
    if _length(f) * width_of(f.T) > 128:
        return "more than 128 bits"
    return _strength(f)


def _wide(f: Form) -> str:
    if _length(f) * width_of(f.T) != 256:
        return "not 256 bits"
    return _strength(f)


# --- ld, st -----------------------------------------------------------------------------------


def _ld_operands(f: Form) -> str:
    return "d:T*vec = [a:space]" + (", policy:u64" if f.hint else "")


def _st_operands(f: Form) -> str:
    return "[a:space], b:T*vec" + (", policy:u64" if f.hint else "")


LD = (
    "ld[.mmio][.{sem}][.{scope}][.{space}][.nc][.{cop}][.{evict}][.{evict2}][.{hint}][.{prefetch}]"
    "[.{vec}].{T}"
)
ST = "st[.mmio][.{sem}][.{scope}][.{space}][.{cop}][.{evict}][.{evict2}][.{hint}][.{vec}].{T}"
COMMON: Options = {
    "scope": SCOPES,
    "evict": EVICT,
    "hint": "L2::cache_hint",
    "effects": "memory relaxed",
}
LOADS: Options = {
    **COMMON,
    "effects": "memory reads relaxed",
    "sem": "weak volatile relaxed acquire",
    "cop": "ca cg cs lu cv",
    "prefetch": PREFETCH,
}
STORES: Options = {**COMMON, "sem": "weak volatile relaxed release", "cop": "wb cg cs wt"}
WIDE: Options = {
    "vec": "v8 v4",
    "T": "b32 u32 s32 f32 b64 u64 s64 f64",
    "space": "global",
    "evict2": EVICT_L2,
    "ptx": "8.8",
    "target": "sm_100",
    "needs": NEEDS,
    "constraint": _wide,
}


@row(
    LD.replace("[.{evict2}]", ""),
    _ld_operands,
    space=READABLE,
    vec="v2 v4 v8",
    T=TYPES,
    needs=NEEDS,
    constraint=_plain,
    **LOADS,
)
@row(LD, _ld_operands, **WIDE, **LOADS)
def ld(m: Primitives, f: Form, a: Value, policy: Value | None = None) -> Value | tuple[Value, ...]:
    """Load one element, or a vector of ``.vec`` consecutive elements."""
    loaded = m.load(space_of(f), a, width_of(f.T), _length(f))
    return loaded if f.vec else loaded[0]


@row(
    "ldu[.{space}][.{vec}].{T}",
    "d:T*vec = [a:space]",
    space="global",
    vec="v2 v4",
    T=TYPES,
    ptx="2.0",
    target="sm_20",
    effects="memory reads relaxed",
    needs=NEEDS,
    constraint=_plain,
)
def ldu(m: Primitives, f: Form, a: Value) -> Value | tuple[Value, ...]:
    """Load from an address that is the same in all lanes, read-only."""
    return ld(m, f, a)


@row(
    ST.replace("[.{evict2}]", ""),
    _st_operands,
    space=WRITABLE,
    vec="v2 v4 v8",
    T=TYPES,
    needs=NEEDS,
    constraint=_plain,
    **STORES,
)
@row(ST, _st_operands, **WIDE, **STORES)
def st(
    m: Primitives, f: Form, a: Value, b: Value | tuple[Value, ...], policy: Value | None = None
) -> None:
    """Store one element, or a vector of ``.vec`` consecutive elements."""
    m.store(space_of(f), a, tuple(b) if f.vec else (b,))


@row("st.bulk[.weak][.{space}]", "[a:space], size:u64(0..:8), value:imm(0)", space="shared::cta",
     ptx="8.6", target="sm_100", effects="memory", leading=1)  # fmt: skip
def st_bulk(m: Primitives, f: Form, a: Value, size: Value, value: int) -> None:
    """Fill shared memory with zeros."""
    m.store_zeros(space_of(f), a, size)


# --- addresses --------------------------------------------------------------------------------

SPACES = f"global {CLUSTER} local const param param::entry"
ADDRESS_NEEDS = {
    "const": ("3.1", "sm_20"),
    "param": ("7.7", "sm_70"),
    "shared::cta": ("7.8", "sm_30"),
    "shared::cluster": ("7.8", "sm_90"),
    "param::entry": ("8.3", "sm_70"),
}
CVTA: Options = {
    "space": SPACES,
    "T": "u32 u64",
    "ptx": "2.0",
    "target": "sm_20",
    "needs": ADDRESS_NEEDS,
}


@row("cvta.{space}.{T}", "d:T = a:T", **CVTA)
@row("cvta.to.{space}.{T}", "d:T = a:T", leading=1, **CVTA)
def cvta(m: Primitives, f: Form, a: Value) -> Value:
    """Convert an address of a state space to a generic address, or with ``.to`` back."""
    convert = m.from_generic if f.to else m.to_generic
    return m.trunc(convert(space_of(f), m.zext(a, 64)), width_of(f.T))


@row(
    "isspacep.{space}",
    "p:pred = a:u64",
    space=SPACES,
    ptx="2.0",
    target="sm_20",
    effects="relaxed",
    needs=ADDRESS_NEEDS,
)
def isspacep(m: Primitives, f: Form, a: Value) -> Value:
    """Whether the generic address is in the state space's window."""
    return m.in_space(f.space if f.space == "shared::cluster" else space_of(f), a)


PARTS = {
    "b16": ("b8*2",),
    "b32": ("b16*2", "b8*4"),
    "b64": ("b32*2", "b16*4"),
    "b128": ("b64*2", "b32*4"),
}


def _mov_operands(f: Form) -> str:
    vectors = (f"d:T = a:{p} / d:{p} = a:T" for p in PARTS[f.T])
    return " / ".join(("d:T = a:T", *vectors))


def _in_128_bits(f: Form) -> str:
    return ".v4 has parts of at most 32 bits" if f.vec == "v4" and "64" in f.T else ""


@row(
    "mov.{T}",
    "d:T = a:T",
    T="pred u16 u32 u64 s16 s32 s64 f32 f64",
    needs={"f64": ("1.0", "sm_13")},
)
@row(
    "mov.{T}", _mov_operands, T="b16 b32 b64 b128", effects="pack", needs={"b128": ("8.3", "sm_70")}
)
@row(
    "mov.{vec}.{T}",
    "d:T*vec = a:T*vec",
    vec="v2 v4",
    T="b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64",
    constraint=_in_128_bits,
)
def mov(m: Primitives, f: Form, a: Value | tuple[Value, ...]) -> Value:
    """A copy of a register, a special register, an immediate, or the address of a name.

    Either operand of a bit type may be a vector, whose elements, the lowest first, form the value.
    ``.v2`` and ``.v4`` copy a vector, for example ``%tid``.
    """
    return m.join(*a) if isinstance(a, tuple) and not f.vec else a
