"""wgmmas under way, in native code. A product is computed when it is issued; until its group has
been waited for, its registers belong to it, and so does the shared memory that it reads: hardware
would read both at any time until then. It is done for all four warps of the warpgroup at once.
"""

from __future__ import annotations

from .groups import fault
from .mbarrier import wake
from .native import Ptr, i64, native
from .state import IN_FLIGHT, JUMP, PRODUCTS, WAIT, WARPS, Cta, Product, Warp
from .warpgroup import FROM_SHARED, PIECE, ROWS, TRANS_A, TRANS_B, piece_k, piece_mn


@native(inline=True)
def product(w: Ptr(Warp), n: i64) -> Ptr(Product):
    """The warp's ``n``-th product, counted from its start."""
    return w.products[n % PRODUCTS]


@native
def issue(w: Ptr(Warp), mask: i64, registers: i64, how: i64, shape: i64, pc: i64) -> i64:
    """A product is under way. Its descriptors are in ``w.addresses`` and ``w.addresses2``;
    ``shape`` is bits << 48 | n << 32 | k << 16 | stored k, ``registers`` the sets that it uses.
    """
    if mask == 0:
        return 0
    if w.product_tail - w.product_head == PRODUCTS:
        retire(w, w.product_head + 1)
    p = product(w, w.product_tail)
    p.group = w.product_group
    p.registers = registers
    p.pc = pc
    p.how = how
    p.a = w.addresses[0]
    p.b = w.addresses2[0]
    p.bits = lshr(shape, 48)
    p.n = lshr(shape, 32) & 0xFFFF
    p.k = lshr(shape, 16) & 0xFFFF
    p.stored_k = shape & 0xFFFF
    w.product_tail += 1
    w.in_flight = w.in_flight | registers
    w.cta.products += 1
    return 0


@native
def retire(w: Ptr(Warp), end: i64) -> i64:
    """Products before the ``end``-th are done."""
    w.cta.products -= end - w.product_head
    w.product_head = end
    w.in_flight = 0
    for n in range(end, w.product_tail):
        w.in_flight = w.in_flight | product(w, n).registers
    return 0


@native
def commit(w: Ptr(Warp), mask: i64) -> i64:
    """The products since the last commit become a group, for which others of the warpgroup may
    wait.
    """
    if mask != 0:
        w.product_group += 1
        wake(w.cta)
    return 0


@native
def await_(w: Ptr(Warp), mask: i64, pending: i64) -> i64:
    """All groups but the ``pending`` newest are done: JUMP, or WAIT while another warp of the
    warpgroup has not committed them.
    """
    first = w.index & -WARPS
    for i in range(first, first + WARPS if mask != 0 else first):
        other = at(Warp, w.cta.frames + i * w.launch.frame_bytes)
        if i < w.launch.warps and other.product_group < w.product_group - pending:
            w.expired = w.expired & ~mask
            w.awaited = 0
            return WAIT
    end = w.product_head
    while end < w.product_tail and product(w, end).group < w.product_group - pending:
        end += 1
    if mask != 0 and end > w.product_head:
        retire(w, end)
    if mask != 0 and w.product_done < w.product_group - pending:
        w.product_done = w.product_group - pending
    return JUMP


@native
def touched(w: Ptr(Warp), mask: i64, registers: i64, pc: i64) -> i64:
    """A fault (1) where an instruction uses registers of a product that is under way."""
    if mask == 0:
        return 0
    for n in range(w.product_head, w.product_tail):
        if (product(w, n).registers & registers) != 0:
            w.worker.fault_value = product(w, n).pc
            fault(w, IN_FLIGHT, pc, lowest(mask), 0)
            return 1
    return 0


# --- shared memory --------------------------------------------------------------------------------


@native
def reads(
    d: i64, across: i64, bits: i64, first: i64, rows: i64, k: i64, low: i64, high: i64
) -> i64:
    """Whether an operand has a piece in the bytes ``low`` to ``high`` of shared memory."""
    if across != 0:
        for i in range(k):
            for p in range(rows >> 3):
                a = piece_mn(d, first, i, p)
                if a < high and a + PIECE > low:
                    return 1
        return 0
    for r in range(rows):
        for p in range(k * bits // 128):
            a = piece_k(d, first + r, p)
            if a < high and a + PIECE > low:
                return 1
    return 0


@native
def done(cta: Ptr(Cta), index: i64) -> i64:
    """How many groups of a warp's products some warp of its warpgroup has waited for."""
    most = 0
    first = index & -WARPS
    for i in range(first, first + WARPS):
        w = at(Warp, cta.frames + i * cta.launch.frame_bytes)
        if i < cta.launch.warps and w.product_done > most:
            most = w.product_done
    return most


@native
def overwritten(cta: Ptr(Cta), low: i64, high: i64) -> i64:
    """1 + the instruction of a product under way that reads what is to be written; 0: none."""
    if cta.products == 0:
        return 0
    for i in range(cta.launch.warps):
        w = at(Warp, cta.frames + i * cta.launch.frame_bytes)
        groups = done(cta, i) if w.product_tail > w.product_head else 0
        for n in range(w.product_head, w.product_tail):
            p = product(w, n)
            if p.group < groups:
                continue
            if reads(p.b, p.how & TRANS_B, p.bits, 0, p.n, p.k, low, high) != 0:
                return p.pc + 1
            first = (w.index & 3) * ROWS
            if (p.how & FROM_SHARED) != 0 and reads(
                p.a, p.how & TRANS_A, p.bits, first, ROWS, p.stored_k, low, high
            ) != 0:
                return p.pc + 1
    return 0
