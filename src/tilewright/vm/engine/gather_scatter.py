"""Gather and scatter: loads and stores at one address per lane.

The caller has checked that ``start + offset`` is in bounds for each lane of ``mask``. A load leaves
the other lanes undefined. Up to ``WINDOW`` bytes behind the end of a space may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import llvmlite.ir as ir

from ...native.llvm_types import I1, I32, I64, POINTER, declare
from ...native.native_language import Lanes8, Lanes16, Lanes32, Lanes64, Native, i64, native
from ..llvm.expressions import LANES, Expr, lanes_of, poison, slot, spill, splat
from ..llvm.vector_memory import (
    LINE,
    at,
    broadcast,
    broadcast_scalar,
    joined,
    load_vector,
    shuffled,
    stack_buffer,
    store_vector,
)
from ..state.records import WINDOW

HALF = LANES // 2
STORE_BYTES = 128  # bytes that lanes store in one phase
VECTOR_FORMS = ((2, 2), (2, 4), (4, 2), (4, 4), (8, 2))  # (bytes per element, elements per lane)


def _body(module: ir.Module, function: Native) -> tuple[ir.IRBuilder, list[ir.Value]]:
    llvm_function = declare(module, function)
    return ir.IRBuilder(llvm_function.append_basic_block()), list(llvm_function.args)


def _bits(b: ir.IRBuilder, mask: ir.Value) -> Expr:
    return Expr(b, b.bitcast(b.trunc(mask, I32), lanes_of(1)))


def _with_inactive(b: ir.IRBuilder, offsets: ir.Value, mask: ir.Value) -> tuple[Expr, Expr]:
    """The first active lane's offset; all offsets, with those of inactive lanes replaced by it."""
    lane = b.and_(b.trunc(b.cttz(mask, I1(0)), I32), I32(LANES - 1))
    first = Expr(b, b.extract_element(offsets, lane))
    return first, _bits(b, mask).pick(Expr(b, offsets), broadcast_scalar(first, LANES))


def _each_lane(offsets: Expr, buffer: ir.Value, load: Callable[[Expr], Expr]) -> list[Expr]:
    """What ``load`` returns for each lane's offset. The offsets go through memory."""
    store_vector(offsets, buffer, 0)
    size = offsets.width // 8
    element = ir.IntType(offsets.width)
    return [load(load_vector(offsets.b, buffer, lane * size, element)) for lane in range(LANES)]


def _emit_gather(size: int) -> Callable[[ir.Module, Native], None]:
    element = ir.IntType(8 * size)

    def emit(module: ir.Module, function: Native) -> None:
        b, (start, offsets_, mask) = _body(module, function)
        buffer, base = slot(b, offsets_.type), b.inttoptr(start, POINTER)
        with b.if_then(b.icmp_unsigned("==", mask, I64(0))):
            b.ret(splat(lanes_of(element), 0))
        first, offsets = _with_inactive(b, offsets_, mask)
        if size == 4 and "+avx512f" in getattr(module, "features", ""):  # else it is no faster
            window = first & -WINDOW
            inside = offsets - broadcast_scalar(window, LANES)
            with b.if_then(_all(inside < WINDOW)):
                b.ret(_permute(b, at(b, base, window.zext(64).v), inside >> 2).v)
        else:
            with b.if_then(_all(offsets.eq(broadcast_scalar(first, LANES)))):
                b.ret(broadcast(b, base, first.zext(64).v, element, LANES).v)
        result = poison(lanes_of(element))

        def load(offset: Expr) -> Expr:
            return load_vector(b, base, offset.zext(64).v, element)

        for lane, x in enumerate(_each_lane(offsets, buffer, load)):
            result = b.insert_element(result, x.v, I32(lane))
        b.ret(result)

    return emit


def _emit_gather_vectors(module: ir.Module, function: Native) -> None:
    b, (addresses, base, mask, out, form) = _body(module, function)
    source, target = b.inttoptr(addresses, POINTER), b.inttoptr(out, POINTER)
    buffer = slot(b, lanes_of(64))
    with b.if_then(b.icmp_unsigned("==", mask, I64(0))):
        b.ret(I64(1))
    _, host = _with_inactive(
        b, _host_addresses(b, base, load_vector(b, source, 0, lanes_of(64))).v, mask
    )
    for size, count in _each_form(b, form):
        type_ = ir.VectorType(ir.IntType(8 * size), count)

        def at_host(x: Expr, type_: ir.Type = type_) -> Expr:
            return load_vector(b, b.inttoptr(x.v, POINTER), 0, type_)

        elements = joined(_each_lane(host, buffer, at_host))
        for e in range(count):
            store_vector(
                shuffled(elements, range(e, LANES * count, count)), target, e * LANES * size
            )
        b.ret(I64(1))


def _each_form(b: ir.IRBuilder, form: ir.Value) -> Iterator[tuple[int, int]]:
    """Emit the code that follows once for each form that ``form`` (a number) may be."""
    default = b.append_basic_block()
    ir.IRBuilder(default).ret(I64(0))
    switch = b.switch(form, default)
    for size, count in VECTOR_FORMS:
        case = b.append_basic_block()
        switch.add_case(I64(size * 16 + count), case)
        b.position_at_end(case)
        yield size, count


def _all(p: Expr) -> ir.Value:
    return p.b.icmp_signed("==", p.b.bitcast(p.v, I32), I32(-1))


def _permute(b: ir.IRBuilder, start: ir.Value, index: Expr) -> Expr:
    """The words of 32 at ``start`` with these indices, selected from two vectors of 16."""
    words = ir.VectorType(I32, HALF)
    low, high = (load_vector(b, start, 64 * i, words) for i in range(2))
    halves = []
    for lanes in (range(HALF), range(HALF, LANES)):
        part = shuffled(index, lanes)
        from_low, from_high = _select(low, part & HALF - 1), _select(high, part & HALF - 1)
        halves.append((part < HALF).pick(from_low, from_high))
    return shuffled(halves[0], range(LANES), halves[1])


def _select(words: Expr, index: Expr) -> Expr:
    """Select words by index; one instruction (``vpermd``) with AVX-512."""
    b, result = words.b, poison(words.type)
    for lane in range(HALF):
        word = b.extract_element(words.v, b.extract_element(index.v, I32(lane)))
        result = b.insert_element(result, word, I32(lane))
    return Expr(b, result)


def _host_addresses(b: ir.IRBuilder, base: ir.Value, offsets: Expr) -> Expr:
    return offsets.zext(64) + broadcast_scalar(Expr(b, base), LANES)


def _store_addresses(b: ir.IRBuilder, hosts: Expr, mask: ir.Value) -> ir.Value:
    """A buffer with the address that each lane stores to; inactive lanes store to a dummy."""
    dummy = broadcast_scalar(Expr(b, b.ptrtoint(stack_buffer(b, LINE), I64)), LANES)
    return spill(_bits(b, mask).pick(hosts, dummy))


def _store_phases(hosts: ir.Value, value_of: Callable[[int], Expr], size: int) -> None:
    """Store in phases of 128 bytes. Of the lanes of a phase with one address the lowest wins."""
    lanes = min(LANES, STORE_BYTES // size)
    for first in range(0, LANES, lanes):
        for lane in reversed(range(first, first + lanes)):
            value = value_of(lane)
            b = value.b
            store_vector(value, b.inttoptr(load_vector(b, hosts, 8 * lane, I64).v, POINTER), 0)


def _emit_scatter(size: int) -> Callable[[ir.Module, Native], None]:
    element = ir.IntType(8 * size)

    def emit(module: ir.Module, function: Native) -> None:
        b, (start, offsets, values, mask) = _body(module, function)
        targets = _store_addresses(b, _host_addresses(b, start, Expr(b, offsets)), mask)
        buffer = spill(Expr(b, values))
        _store_phases(targets, lambda lane: load_vector(b, buffer, size * lane, element), size)
        b.ret(I64(0))

    return emit


def _emit_scatter_vectors(module: ir.Module, function: Native) -> None:
    b, (addresses, base, mask, values, form) = _body(module, function)
    offsets, source = b.inttoptr(addresses, POINTER), b.inttoptr(values, POINTER)
    targets = _store_addresses(
        b, _host_addresses(b, base, load_vector(b, offsets, 0, lanes_of(64))), mask
    )
    for size, count in _each_form(b, form):
        lanes = lanes_of(8 * size)
        elements = joined([load_vector(b, source, e * LANES * size, lanes) for e in range(count)])
        vectors = [
            shuffled(elements, [e * LANES + lane for e in range(count)]) for lane in range(LANES)
        ]
        _store_phases(targets, vectors.__getitem__, size * count)
        b.ret(I64(1))


@native(emit=_emit_gather(1))
def gather_8(start: i64, offsets: Lanes32, mask: i64) -> Lanes8:
    """Load a byte for each lane."""
    raise NotImplementedError


@native(emit=_emit_gather(2))
def gather_16(start: i64, offsets: Lanes32, mask: i64) -> Lanes16:
    """Load two bytes for each lane."""
    raise NotImplementedError


@native(emit=_emit_gather(4))
def gather_32(start: i64, offsets: Lanes32, mask: i64) -> Lanes32:
    """Load four bytes for each lane; if all are in one window of 128 bytes, by a permutation."""
    raise NotImplementedError


@native(emit=_emit_gather(8))
def gather_64(start: i64, offsets: Lanes32, mask: i64) -> Lanes64:
    """Load eight bytes for each lane."""
    raise NotImplementedError


@native(emit=_emit_scatter(1))
def scatter_8(start: i64, offsets: Lanes32, values: Lanes8, mask: i64) -> i64:
    """Store a byte of each lane, in phases of 128 bytes. Of the lanes of a phase with one address
    the lowest wins (as on an H200; PTX leaves it undefined).
    """
    raise NotImplementedError


@native(emit=_emit_scatter(2))
def scatter_16(start: i64, offsets: Lanes32, values: Lanes16, mask: i64) -> i64:
    """Store two bytes of each lane."""
    raise NotImplementedError


@native(emit=_emit_scatter(4))
def scatter_32(start: i64, offsets: Lanes32, values: Lanes32, mask: i64) -> i64:
    """Store four bytes of each lane."""
    raise NotImplementedError


@native(emit=_emit_scatter(8))
def scatter_64(start: i64, offsets: Lanes32, values: Lanes64, mask: i64) -> i64:
    """Store eight bytes of each lane."""
    raise NotImplementedError


@native(emit=_emit_gather_vectors, part="vectors")
def gather_vectors(addresses: i64, base: i64, mask: i64, out: i64, form: i64) -> i64:
    """Load ``form % 16`` elements of ``form // 16`` bytes for each lane, arranged as by ``unzip``.

    The lanes' addresses are at ``addresses``; ``base`` is added to them. Returns 0 if ``form`` is
    not one of ``VECTOR_FORMS``.
    """
    raise NotImplementedError


@native(emit=_emit_scatter_vectors, part="vectors")
def scatter_vectors(addresses: i64, base: i64, mask: i64, values: i64, form: i64) -> i64:
    """Store vectors: the reverse of ``gather_vectors``."""
    raise NotImplementedError


GATHERS: dict[int, Native] = {8: gather_8, 16: gather_16, 32: gather_32, 64: gather_64}
SCATTERS: dict[int, Native] = {8: scatter_8, 16: scatter_16, 32: scatter_32, 64: scatter_64}
