"""The stack of each thread, in native code.

It grows upward behind the kernel's variables in local memory, up to the end of the thread's local
memory. ``alloca`` and calls (``vm/program/activation_records.py``) allocate from it.
"""

from __future__ import annotations

from ...native.intrinsics import at, lowest
from ...native.native_language import i64, native, u8
from ..program.evaluator import Evaluator, Value
from ..state.lane_groups import fault
from ..state.records import LOCAL, STACK_OVERFLOW, WarpRecord
from .memory_access import window

UNINITIALIZED = 0xFF  # each byte of new memory, as in the rest of local memory


@native
def allocate(w: WarpRecord, mask: i64, align: i64, pc: i64) -> i64:
    """Replace the sizes of these lanes in ``w.addresses`` by addresses. Returns 1 after a fault."""
    static = w.launch.static_bytes
    limit = w.launch.local_bytes - static
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        size = w.addresses[lane]
        start = (static + w.stack[lane] + align - 1) & -align
        if size < 0 or size > limit or start - static > limit - size:
            fault(w, STACK_OVERFLOW, pc, lane, size)
            return 1
        host = at(u8, window(w, LOCAL, lane) + start)
        for i in range(size):
            host[i] = UNINITIALIZED
        w.addresses[lane] = start
        w.stack[lane] = start - static + size
    return 0


@native
def stack_end(w: WarpRecord) -> i64:
    """Set ``w.addresses`` to the ends of all lanes' stacks."""
    for lane in range(32):
        w.addresses[lane] = w.launch.static_bytes + w.stack[lane]
    return 0


@native
def set_stack_end(w: WarpRecord, mask: i64, pc: i64) -> i64:
    """Shrink the stacks of these lanes to the ends in ``w.addresses``. Returns 1 after a fault: an
    end outside of the stack.
    """
    static = w.launch.static_bytes
    m = mask
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        end = w.addresses[lane] - static
        if end < 0 or end > w.stack[lane]:
            fault(w, STACK_OVERFLOW, pc, lane, end)
            return 1
        w.stack[lane] = end
    return 0


class StackEvaluator:
    """The primitives of ``alloca``, for both evaluators."""

    def __init__(self, m: Evaluator) -> None:
        self.m = m

    def allocate(self, size: Value, align: int) -> Value:
        self.m.store_area("addresses", size)
        self.m.call_checked(allocate, self.m.mask, align, self.m.pc)
        return self.m.load_area("addresses", 64)

    def stack_end(self) -> Value:
        self.m.call_native(stack_end)
        return self.m.load_area("addresses", 64)

    def set_stack_end(self, address: Value) -> None:
        self.m.store_area("addresses", address)
        self.m.call_checked(set_stack_end, self.m.mask, self.m.pc)
