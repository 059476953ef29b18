"""Calls of host functions, such as ``vprintf``.

The lanes' arguments are in the area ``operands``, 64 bits each; the host
(``vm/launch/host_functions.py``) writes its results to ``results``.
"""

from __future__ import annotations

from ...native.intrinsics import at, indirect
from ...native.native_language import i64, native, u8
from ..program.evaluator import Evaluator, Value
from ..state.records import GENERIC, WarpRecord
from .memory_access import resolve


@native
def call_host(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """Call the host function of operation ``pc`` for these lanes. Returns 1 after a fault."""
    if mask == 0:
        return 0
    w.calling = mask
    w.called = pc
    return indirect(w.launch.outside, w)


@native
def string_length(w: WarpRecord, start: i64, most: i64, lane: i64, pc: i64) -> i64:
    """The length of a zero-terminated string at a generic address, at most ``most``; −1 after a
    fault.
    """
    n = 0
    while n != most:
        host = resolve(w, GENERIC, start + n, 1, lane, pc)
        if host == 0:
            return -1
        if at(u8, host)[0] == 0:
            break
        n += 1
    return n


class HostCallEvaluator:
    """The primitive ``call``, for both evaluators."""

    def __init__(self, m: Evaluator) -> None:
        self.m = m

    def call(self, callee: str, *arguments: Value) -> Value:
        for i, value in enumerate(arguments):
            self.m.store_area("operands", self.m.fit(value, 64), i)
        self.m.call_checked(call_host, self.m.mask, self.m.pc)
        return self.m.load_area("results", 64)
