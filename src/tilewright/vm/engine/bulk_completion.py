"""Completion of bulk copies, in native code: the queue of a CTA's copies in flight.

A copy reads its source when it completes. With seed 0 it completes as late as possible: in the wait
for its group, when no warp of the worker can run, or when warps have polled for long
(``scheduler.complete_old_copies``). With another seed it may complete at any turn of its CTA. A
copy to shared memory subtracts its bytes from the transaction count of its mbarrier.
"""

from __future__ import annotations

from ...native.intrinsics import address, at, copy, lowest, umod
from ...native.native_language import i64, native, u8, u64
from ..check.async_checks import extent
from ..check.vector_clocks import record_completion
from ..state.lane_groups import draw, fault_at
from ..state.records import (
    EXITED_CTA,
    IN_FLIGHT,
    MAX_BULK_COPIES,
    RUNNING,
    BulkCopy,
    Cta,
)
from .async_reductions import reduce_bytes
from .mbarrier_model import update_phase
from .memory_access import CTA_BYTES
from .tensor_copies import move_box
from .wgmma_groups import wgmma_reader

PART = "bulk_copies"  # compiled together with the functions that issue copies
BULK_COPY_BYTES = BulkCopy.size
UNIT = 16  # sizes and addresses of bulk copies are multiples of it, in bytes
COMPLETED, TO_SHARED, TO_GLOBAL = range(3)  # kinds of a copy in the queue


@native(inline=True)
def bulk_copy(cta: Cta, n: i64) -> BulkCopy:
    """The CTA's ``n``-th copy since the CTA started."""
    return at(BulkCopy, address(cta.bulk_copies) + n % MAX_BULK_COPIES * BULK_COPY_BYTES)


# --- completion -----------------------------------------------------------------------------------


@native(part=PART)
def fault_bulk(cta: Cta, c: BulkCopy, kind: i64, where: i64, value: i64) -> i64:
    """Record a fault of the instruction that issued a copy. Returns 1."""
    c.kind = COMPLETED
    if cta.worker.fault == 0:
        cta.worker.fault_value = value
    fault_at(cta, c.warp, kind, c.pc, c.lane, where)
    return 1


@native(part=PART)
def complete_to_shared(cta: Cta, c: BulkCopy, to: Cta, target: i64, barrier: i64) -> i64:
    """Complete a copy to offset ``target`` of the shared memory of CTA ``to``. Returns 1 after a
    fault.
    """
    if to.state != RUNNING:
        return fault_bulk(cta, c, EXITED_CTA, target, 0)
    reader = wgmma_reader(to, target, target + extent(c))
    if reader != 0:
        return fault_bulk(cta, c, IN_FLIGHT, target, reader - 1)
    if c.tensor != 0:
        move_box(c, cta.launch.host, to.shared, target, 0)
    elif c.reduce != 0:
        reduce_bytes(c.reduce, to.shared + target, c.source, c.bytes)
    else:
        copy(at(u8, to.shared + target), at(u8, c.source), c.bytes)
    if cta.launch.checked != 0:
        record_completion(to, barrier, c.step)
    error = update_phase(to, to.shared + barrier, 0, 0, -c.bytes)
    if error != 0:
        return fault_bulk(cta, c, error, barrier, at(u64, to.shared + barrier)[0])
    return 0


@native(part=PART)
def complete_to_global(c: BulkCopy, hosts: i64) -> i64:
    """Copy to global memory: of each 16 bytes those in the byte mask, which is in ``c.ctas``."""
    if c.tensor != 0:
        return move_box(c, hosts, c.source, c.target, 1)
    if c.reduce != 0:
        return reduce_bytes(c.reduce, c.target, c.source, c.bytes)
    if c.ctas == 0xFFFF:
        copy(at(u8, c.target), at(u8, c.source), c.bytes)
        return 0
    for i in range(c.bytes):
        if (c.ctas >> (i & (UNIT - 1)) & 1) != 0:
            at(u8, c.target)[i] = at(u8, c.source)[i]
    return 0


@native(part=PART)
def complete_bulk(cta: Cta, c: BulkCopy) -> i64:
    """Complete a copy. Returns 1 after a fault."""
    kind = c.kind
    c.kind = COMPLETED
    cta.worker.events += 1
    if kind == TO_GLOBAL:
        return complete_to_global(c, cta.launch.host)
    ranks = c.ctas
    while kind == TO_SHARED and ranks != 0:
        rank = lowest(ranks)
        ranks = ranks & (ranks - 1)
        to = at(Cta, cta.first + rank * CTA_BYTES)
        if complete_to_shared(cta, c, to, c.target, c.barrier) != 0:
            return 1
    return 0


@native(part=PART)
def pop_completed_bulk(cta: Cta) -> i64:
    """Remove completed copies from the queue's head."""
    while cta.bulk_head < cta.bulk_tail:
        if bulk_copy(cta, cta.bulk_head).kind != COMPLETED:
            return 0
        cta.bulk_head += 1
    return 0


@native(part=PART, deferred=True)
def complete_next_bulk(cta: Cta) -> i64:
    """Complete the oldest copy of the CTA, or with a seed a random one. Returns 1 after a fault."""
    in_flight = cta.bulk_tail - cta.bulk_head
    if in_flight == 0:
        return 0
    n = cta.bulk_head
    if cta.launch.seed != 0:
        n = n + umod(draw(cta), in_flight)
        while bulk_copy(cta, n).kind == COMPLETED:
            n = cta.bulk_head + umod(n + 1 - cta.bulk_head, in_flight)
    failed = complete_bulk(cta, bulk_copy(cta, n))
    pop_completed_bulk(cta)
    return failed


@native(part=PART, deferred=True)
def complete_random_bulk(cta: Cta) -> i64:
    """With a seed, complete a copy now and then. Returns 1 after a fault."""
    if cta.bulk_head == cta.bulk_tail or (draw(cta) & 3) != 0:
        return 0
    return complete_next_bulk(cta)


@native(part=PART, deferred=True)
def complete_all_bulk(cta: Cta) -> i64:
    """Complete all copies of a CTA that has ended. Returns 1 after a fault."""
    while cta.bulk_head < cta.bulk_tail:
        if complete_next_bulk(cta) != 0:
            return 1
    return 0
