"""Loads and stores of all lanes, in native code.

Most accesses have a fast path with vectors: they are contiguous, or all lanes read one address, or
they gather or scatter with all addresses in bounds. Otherwise each lane's address goes through
``resolve``, which also reports faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import llvmlite.ir as ir

from ...native.intrinsics import address, at, copy, highest, lowest
from ...native.llvm_types import I32, I64, POINTER, declare
from ...native.native_language import Native, Ptr, i64, native, u8, u32, u64
from ..llvm.expressions import LANES, Expr
from ..llvm.vector_memory import joined, load_vector, shuffled, store_vector
from ..state.records import FULL_MASK, WRITES, WarpRecord
from .gather_scatter import VECTOR_FORMS, gather_vectors, scatter_vectors
from .memory_access import check_access, copy_element, fast_base, lane_stride, resolve, window_kind

# --- permutations of vectors ----------------------------------------------------------------------


CaseEmitter: TypeAlias = Callable[[ir.IRBuilder, ir.Value, ir.Value], None]  # (b, target, source)


def emit_cases(cases: Sequence[tuple[int, CaseEmitter]]) -> Callable[[ir.Module, Native], None]:
    """Emits a function of (target, source, number) with one case for each number. It returns 0 for
    any other number.
    """

    def emit(module: ir.Module, native_: Native) -> None:
        function = declare(module, native_)
        b, default = ir.IRBuilder(function.append_basic_block()), function.append_basic_block()
        ir.IRBuilder(default).ret(I64(0))
        target, source = (b.inttoptr(a, POINTER) for a in function.args[:2])
        switch = b.switch(function.args[2], default)
        for number, emit_case in cases:
            case = function.append_basic_block()
            switch.add_case(I64(number), case)
            b.position_at_end(case)
            emit_case(b, target, source)
            b.ret(I64(1))

    return emit


def _unzip(size: int, count: int) -> CaseEmitter:
    def emit(b: ir.IRBuilder, target: ir.Value, source: ir.Value) -> None:
        whole = load_vector(b, source, 0, ir.VectorType(ir.IntType(8 * size), LANES * count))
        for e in range(count):
            part = shuffled(whole, range(e, LANES * count, count))
            store_vector(part, target, e * LANES * size)

    return emit


def _zip(size: int, count: int) -> CaseEmitter:
    def emit(b: ir.IRBuilder, target: ir.Value, source: ir.Value) -> None:
        lanes = ir.VectorType(ir.IntType(8 * size), LANES)
        parts = joined([load_vector(b, source, e * LANES * size, lanes) for e in range(count)])
        order = [i % count * LANES + i // count for i in range(LANES * count)]
        store_vector(shuffled(parts, order), target, 0)

    return emit


def _gather(size: int) -> CaseEmitter:
    def emit(b: ir.IRBuilder, target: ir.Value, source: ir.Value) -> None:
        element = ir.IntType(8 * size)
        result = ir.Constant(ir.VectorType(element, LANES), ir.Undefined)
        for lane in range(LANES):
            pointer = b.inttoptr(load_vector(b, source, lane * 8, I64).v, POINTER)
            result = b.insert_element(result, load_vector(b, pointer, 0, element).v, I32(lane))
        store_vector(Expr(b, result), target, 0)

    return emit


_UNZIPS = [(s * 16 + c, _unzip(s, c)) for s, c in VECTOR_FORMS]
_ZIPS = [(s * 16 + c, _zip(s, c)) for s, c in VECTOR_FORMS]
_GATHERS = [(size, _gather(size)) for size in (1, 2, 4, 8)]


@native(emit=emit_cases(_UNZIPS), part="vectors")
def unzip(target: i64, source: i64, form: i64) -> i64:
    """Deinterleave vectors of ``form % 16`` elements of ``form // 16`` bytes of 32 lanes: first all
    lanes' first elements, then all lanes' second … Returns 0 if ``form`` is not one of
    ``VECTOR_FORMS``.
    """
    raise NotImplementedError


@native(emit=emit_cases(_ZIPS), part="vectors")
def zip_(target: i64, source: i64, form: i64) -> i64:
    """The reverse of ``unzip``."""
    raise NotImplementedError


@native(emit=emit_cases(_GATHERS), part="gather_scatter")
def gather(target: i64, source: i64, size: i64) -> i64:
    """Load the elements at the host addresses of 32 lanes, which are at ``source``. Returns 0 if
    ``size`` is not 1, 2, 4 or 8. The result is stored as one vector, so that a vector load of it
    does not wait for 32 small stores.
    """
    raise NotImplementedError


# --- patterns of addresses ------------------------------------------------------------------------


@native(inline=True)
def is_contiguous(w: WarpRecord, mask: i64, size: i64) -> i64:
    """Whether all 32 lanes are active and their addresses are contiguous."""
    if mask != FULL_MASK:
        return 0
    a = w.addresses[0]
    differences = 0
    for lane in range(32):
        differences = differences | ((a + lane * size) ^ w.addresses[lane])
    return differences == 0


@native(inline=True)
def is_uniform(w: WarpRecord, mask: i64) -> i64:
    """Whether all lanes of ``mask`` have the same address."""
    a = w.addresses[lowest(mask)]
    differences = 0
    for lane in range(32):
        differences = differences | ((a ^ w.addresses[lane]) & -((mask >> lane) & 1))
    return differences == 0


@native(inline=True)
def broadcast_element(out: i64, host: i64, size: i64) -> i64:
    """Copy an element to each of 32 lanes."""
    if size == 4:
        word = at(u32, host)[0]
        for lane in range(32):
            at(u32, out)[lane] = word
    elif size == 8:
        wide = at(u64, host)[0]
        for lane in range(32):
            at(u64, out)[lane] = wide
    else:
        for lane in range(32):
            copy_element(out + lane * size, host, size)
    return 0


# --- loads and stores -----------------------------------------------------------------------------


@native(inline=True)
def load_elements(
    w: WarpRecord, mask: i64, space: i64, out: Ptr[u8], size: i64, count: i64, pc: i64
) -> i64:
    """Load ``count`` elements of ``size`` bytes for each lane; element e of lane l becomes element
    32·e + l of ``out``. Lanes not in ``mask`` are undefined afterwards. Returns 1 after a fault.
    """
    if w.launch.checked != 0 and check_access(w, mask, space, size, count, 0, pc) != 0:
        return 1
    kind = window_kind(w, mask, space)
    base = fast_base(w, mask, space, kind, size * count, pc)
    stride = lane_stride(w, kind)
    if base != 0 and stride == 0 and mask != 0:
        first = base + w.addresses[lowest(mask)]
        if is_contiguous(w, mask, size * count) != 0:
            if count == 1:
                copy(out, at(u8, first), size * 32)
                return 0
            if unzip(address(out), first, size * 16 + count) != 0:
                return 0
        elif is_uniform(w, mask) != 0:
            for e in range(count):
                broadcast_element(address(out) + e * 32 * size, first + e * size, size)
            return 0
    m = mask
    if base != 0 and mask == FULL_MASK and count == 1 and size <= 8:
        for lane in range(32):
            w.addresses[lane] = base + w.addresses[lane] + lane * stride
        gather(address(out), address(w.addresses), size)
        return 0
    form = size * 16 + count
    if base != 0 and stride == 0 and count > 1:
        if gather_vectors(address(w.addresses), base, mask, address(out), form) != 0:
            return 0
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        host = base + w.addresses[lane] + lane * stride
        if base == 0:
            host = resolve(w, space, w.addresses[lane], size * count, lane, pc)
            if host == 0:
                return 1
        for e in range(count):
            copy_element(address(out) + (e * 32 + lane) * size, host + e * size, size)
    return 0


@native(inline=True)
def store_elements(
    w: WarpRecord, mask: i64, space: i64, values: Ptr[u8], size: i64, count: i64, pc: i64
) -> i64:
    """Store elements, arranged as for ``load_elements``. Lanes store in phases of 128 bytes, in
    order; of the lanes of a phase that write to one address the lowest wins (as on an H200; PTX
    leaves it undefined). Returns 1 after a fault.
    """
    write_space = space + WRITES
    if (
        w.launch.checked != 0
        and check_access(w, mask, write_space, size, count, address(values), pc) != 0
    ):
        return 1
    kind = window_kind(w, mask, space)
    base = fast_base(w, mask, write_space, kind, size * count, pc)
    stride = lane_stride(w, kind)
    if base != 0 and stride == 0 and is_contiguous(w, mask, size * count) != 0:
        first = base + w.addresses[0]
        if count == 1:
            copy(at(u8, first), values, size * 32)
            return 0
        if zip_(first, address(values), size * 16 + count) != 0:
            return 0
    form = size * 16 + count
    if base != 0 and stride == 0 and count > 1:
        if scatter_vectors(address(w.addresses), base, mask, address(values), form) != 0:
            return 0
    m = mask
    while base == 0 and m != 0:  # the lowest lane with a fault is reported, and nothing is stored
        if resolve(w, write_space, w.addresses[lowest(m)], size * count, lowest(m), pc) == 0:
            return 1
        m = m & (m - 1)
    m = mask
    while m != 0:
        phase = m & store_phase(lowest(m), size * count)
        m = m & ~phase
        while phase != 0:
            lane = highest(phase)
            phase = phase & ~(1 << lane)
            host = base + w.addresses[lane] + lane * stride
            if base == 0:
                host = resolve(w, write_space, w.addresses[lane], size * count, lane, pc)
            for e in range(count):
                copy_element(host + e * size, address(values) + (e * 32 + lane) * size, size)
    return 0


@native(inline=True)
def store_phase(lane: i64, size: i64) -> i64:
    """The lanes that store ``size`` bytes in the same phase as ``lane``."""
    if size <= 4:
        return FULL_MASK
    lanes = 128 // size
    return ((1 << lanes) - 1) << (lane - lane % lanes)


# Each size is a part of its own, compiled when first needed, because the code is large.


@native
def load_32(w: WarpRecord, mask: i64, space: i64, out: Ptr[u8], pc: i64) -> i64:
    """Load one element of 32 bits."""
    return load_elements(w, mask, space, out, 4, 1, pc)


@native
def store_32(w: WarpRecord, mask: i64, space: i64, values: Ptr[u8], pc: i64) -> i64:
    return store_elements(w, mask, space, values, 4, 1, pc)


@native(part="loads_32s")
def load_32s(w: WarpRecord, mask: i64, space: i64, out: Ptr[u8], count: i64, pc: i64) -> i64:
    """Load several elements of 32 bits."""
    return load_elements(w, mask, space, out, 4, count, pc)


@native(part="loads_32s")
def store_32s(w: WarpRecord, mask: i64, space: i64, values: Ptr[u8], count: i64, pc: i64) -> i64:
    return store_elements(w, mask, space, values, 4, count, pc)


@native(part="loads_n")
def load_n(
    w: WarpRecord, mask: i64, space: i64, out: Ptr[u8], size: i64, count: i64, pc: i64
) -> i64:
    """Load elements of any size."""
    if size == 8:
        return load_elements(w, mask, space, out, 8, count, pc)
    if size == 2:
        return load_elements(w, mask, space, out, 2, count, pc)
    return load_elements(w, mask, space, out, size, count, pc)


@native(part="loads_n")
def store_n(
    w: WarpRecord, mask: i64, space: i64, values: Ptr[u8], size: i64, count: i64, pc: i64
) -> i64:
    if size == 8:
        return store_elements(w, mask, space, values, 8, count, pc)
    if size == 2:
        return store_elements(w, mask, space, values, 2, count, pc)
    return store_elements(w, mask, space, values, size, count, pc)


# --- atomics; ``w.addresses`` holds host addresses ------------------------------------------------


@native(part="atomics")
def distinct_addresses(w: WarpRecord, lanes: i64) -> i64:
    """A subset of ``lanes`` with distinct addresses: each lane takes one of 64 hash slots, unless
    an earlier lane has taken it.
    """
    used_slots = 0
    chosen = 0
    m = lanes
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        slot = 1 << ((w.addresses[lane] >> 1) & 63)
        if (used_slots & slot) == 0:
            used_slots = used_slots | slot
            chosen = chosen | 1 << lane
    return chosen


@native(part="atomics")
def read_memory(w: WarpRecord, lanes: i64, size: i64) -> i64:
    """Load the old values of these lanes to ``results``."""
    m = lanes
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        copy_element(address(w.results) + lane * size, w.addresses[lane], size)
    return 0


@native(part="atomics")
def write_memory(w: WarpRecord, lanes: i64, size: i64) -> i64:
    """Store the new values of these lanes from ``operands``."""
    m = lanes
    while m != 0:
        lane = lowest(m)
        m = m & (m - 1)
        copy_element(w.addresses[lane], address(w.operands) + lane * size, size)
    return 0
