"""The stack of a thread: local memory that is allocated dynamically.

Sizes and addresses have the instruction's type; a primitive's are 64 bits wide.
"""

from __future__ import annotations

from typing import Any

from .primitives import Primitives, Value
from .row import Form, Options, row

NEW: Options = {"T": "u32 u64", "ptx": "7.3", "target": "sm_52", "effects": "memory"}
LEAST_ALIGN = 8
ALIGNS = " ".join(str(1 << n) for n in range(24))


def _narrow(m: Primitives, f: Form, address: Value) -> Value:
    return address if f.T == "u64" else m.trunc(address, 32)


@row("alloca.{T}", f"d:T = size:T, align:imm({ALIGNS})?", **NEW)
def alloca(m: Primitives, f: Form, size: Value, align: Any = None) -> Value:
    """The address, in local memory, of ``size`` bytes more; 8 is the least alignment."""
    return _narrow(m, f, m.allocate(m.zext(size, 64), max(align or 0, LEAST_ALIGN)))


@row("stacksave.{T}", "d:T =", **NEW)
def stacksave(m: Primitives, f: Form) -> Value:
    """The current end of the stack."""
    return _narrow(m, f, m.stack_end())


@row("stackrestore.{T}", "a:T", **NEW)
def stackrestore(m: Primitives, f: Form, a: Value) -> None:
    """Free the memory allocated since ``stacksave``."""
    m.set_stack_end(m.zext(a, 64))
