"""Hints to the caches: prefetches, priorities, policies. None of them changes a value."""

from __future__ import annotations

from .primitives import Primitives, Value
from .row import Form, Options, row

FERMI: Options = {"ptx": "2.0", "target": "sm_20", "effects": "memory reads"}
AMPERE: Options = {"ptx": "7.4", "target": "sm_80", "effects": "memory reads"}
HOPPER: Options = {"ptx": "8.0", "target": "sm_90", "effects": "memory reads"}


@row("prefetch[.{space}].{level}", "[a:space]", space="global local", level="L1 L2", **FERMI)
@row("prefetchu.L1", "[a:generic]", **FERMI)
@row(
    "prefetch[.{space}].{level}",
    "[a:space]",
    space="global",
    level="L2::evict_last L2::evict_normal",
    **AMPERE,
)
@row("prefetch[.{space}].tensormap", "[a:space]", space="const param", **HOPPER)
@row("applypriority[.{space}].L2::evict_normal", "[a:space], size:imm(128)", space="global",
     **AMPERE)  # fmt: skip
def prefetch(m: Primitives, f: Form, a: Value, size: int = 0) -> None:
    """A hint to the caches; no effect on values."""


@row("discard[.{space}].L2", "[a:space], size:imm(128)", space="global",
     **AMPERE | {"effects": "memory"})  # fmt: skip
def discard(m: Primitives, f: Form, a: Value, size: int) -> None:
    """The data may be dropped without being written back; the virtual machine keeps them."""


POLICY: Options = {"ptx": "7.4", "target": "sm_80", "leading": 1}
PRIMARY = "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged"
SECONDARY = "L2::evict_first L2::evict_unchanged"
POLICY_BITS = {"L2::evict_last": 0x14F0 << 48, "L2::evict_first": 0x12F0 << 48}


@row(
    "createpolicy.fractional.{FIRST}[.{SECOND}].b64",
    "d:u64 = fraction:f32?",
    FIRST=PRIMARY,
    SECOND=SECONDARY,
    **POLICY,
)
def createpolicy(m: Primitives, f: Form, fraction: Value | None = None) -> Value:
    """A cache policy for ``.L2::cache_hint``; opaque, and without effect on values."""
    return m.const(64, POLICY_BITS.get(f.FIRST, 0x10F0 << 48))


@row(
    "createpolicy.range[.{space}].{FIRST}[.{SECOND}].b64",
    "d:u64 = [a:space], primary:u32, total:u32",
    space="global",
    FIRST=PRIMARY,
    SECOND=SECONDARY,
    **POLICY,
)
def createpolicy_range(m: Primitives, f: Form, a: Value, primary: Value, total: Value) -> Value:
    """A cache policy for a range of addresses; opaque."""
    return createpolicy(m, f)


@row("createpolicy.cvt.L2.b64", "d:u64 = a:u64", **POLICY)
def createpolicy_cvt(m: Primitives, f: Form, a: Value) -> Value:
    """A cache policy from an access property of the CUDA API; opaque."""
    return a
