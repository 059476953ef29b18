"""Gather and scatter: loads and stores at one address per lane.

Who calls has found them right: ``start + offset`` is in bounds for each lane of ``mask``. What a
load gives the other lanes is not defined. Up to ``WINDOW`` bytes beyond a space may be read.
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
STORE_BYTES = 128  # bytes that lanes store at a time
VECTOR_FORMS = ((2, 2), (2, 4), (4, 2), (4, 4), (8, 2))  # sizes and counts of elements


def _parts(module: ir.Module, function: Native) -> tuple[ir.IRBuilder, list[ir.Value]]:
    made = declare(module, function)
    return ir.IRBuilder(made.append_basic_block()), list(made.args)


def _bits(b: ir.IRBuilder, mask: ir.Value) -> Expr:
    return Expr(b, b.bitcast(b.trunc(mask, I32), lanes_of(1)))


def _with_inactive(b: ir.IRBuilder, given: ir.Value, mask: ir.Value) -> tuple[Expr, Expr]:
    """The first lane's place; the places, of lanes that are not there the first one's."""
    first = b.and_(b.trunc(b.cttz(mask, I1(0)), I32), I32(LANES - 1))
    known = Expr(b, b.extract_element(given, first))
    return known, _bits(b, mask).pick(Expr(b, given), broadcast_scalar(known, LANES))


def _each_lane(places: Expr, room_: ir.Value, at_: Callable[[Expr], Expr]) -> list[Expr]:
    """What ``at_`` finds at the places, lane by lane; they go through memory."""
    store_vector(places, room_, 0)
    size = places.width // 8
    element = ir.IntType(places.width)
    return [at_(load_vector(places.b, room_, lane * size, element)) for lane in range(LANES)]


def _emit_gather(size: int) -> Callable[[ir.Module, Native], None]:
    element = ir.IntType(8 * size)

    def emit(module: ir.Module, function: Native) -> None:
        b, (start, given, mask) = _parts(module, function)
        place, origin = slot(b, given.type), b.inttoptr(start, POINTER)
        with b.if_then(b.icmp_unsigned("==", mask, I64(0))):
            b.ret(splat(lanes_of(element), 0))
        known, offsets = _with_inactive(b, given, mask)
        if size == 4 and "+avx512f" in getattr(module, "features", ""):  # else it takes as long
            window = known & -WINDOW
            inside = offsets - broadcast_scalar(window, LANES)
            with b.if_then(_all(inside < WINDOW)):
                b.ret(_permuted(b, at(b, origin, window.zext(64).v), inside >> 2).v)
        else:
            with b.if_then(_all(offsets.eq(broadcast_scalar(known, LANES)))):
                b.ret(broadcast(b, origin, known.zext(64).v, element, LANES).v)
        found = poison(lanes_of(element))
        each = _each_lane(offsets, place, lambda x: load_vector(b, origin, x.zext(64).v, element))
        for lane, x in enumerate(each):
            found = b.insert_element(found, x.v, I32(lane))
        b.ret(found)

    return emit


def _emit_gather_vectors(module: ir.Module, function: Native) -> None:
    b, (addresses, base, mask, out, which) = _parts(module, function)
    given, target = b.inttoptr(addresses, POINTER), b.inttoptr(out, POINTER)
    place = slot(b, lanes_of(64))
    with b.if_then(b.icmp_unsigned("==", mask, I64(0))):
        b.ret(I64(1))
    _, hosts = _with_inactive(
        b, _host_addresses(b, base, load_vector(b, given, 0, lanes_of(64))).v, mask
    )
    for size, count in _switched(b, which):
        type_ = ir.VectorType(ir.IntType(8 * size), count)

        def at_host(x: Expr, type_: ir.Type = type_) -> Expr:
            return load_vector(b, b.inttoptr(x.v, POINTER), 0, type_)

        whole = joined(_each_lane(hosts, place, at_host))
        for e in range(count):
            store_vector(shuffled(whole, range(e, LANES * count, count)), target, e * LANES * size)
        b.ret(I64(1))


def _switched(b: ir.IRBuilder, which: ir.Value) -> Iterator[tuple[int, int]]:
    """Emit what follows for each size and count that ``which`` may name."""
    unknown = b.append_basic_block()
    ir.IRBuilder(unknown).ret(I64(0))
    switch = b.switch(which, unknown)
    for size, count in VECTOR_FORMS:
        case = b.append_basic_block()
        switch.add_case(I64(size * 16 + count), case)
        b.position_at_end(case)
        yield size, count


def _all(p: Expr) -> ir.Value:
    return p.b.icmp_signed("==", p.b.bitcast(p.v, I32), I32(-1))


def _permuted(b: ir.IRBuilder, start: ir.Value, index: Expr) -> Expr:
    """Of 32 words at ``start`` those with these numbers: two vectors of 16 to choose from."""
    words = ir.VectorType(I32, HALF)
    low, high = (load_vector(b, start, 64 * i, words) for i in range(2))
    halves = []
    for lanes in (range(HALF), range(HALF, LANES)):
        part = shuffled(index, lanes)
        near, far = _chosen(low, part & HALF - 1), _chosen(high, part & HALF - 1)
        halves.append((part < HALF).pick(near, far))
    return shuffled(halves[0], range(LANES), halves[1])


def _chosen(words: Expr, index: Expr) -> Expr:
    """One instruction, where the processor has it."""
    b, found = words.b, poison(words.type)
    for lane in range(HALF):
        word = b.extract_element(words.v, b.extract_element(index.v, I32(lane)))
        found = b.insert_element(found, word, I32(lane))
    return Expr(b, found)


def _host_addresses(b: ir.IRBuilder, base: ir.Value, places: Expr) -> Expr:
    return places.zext(64) + broadcast_scalar(Expr(b, base), LANES)


def _store_addresses(b: ir.IRBuilder, hosts: Expr, mask: ir.Value) -> ir.Value:
    """Room with where each lane stores; those that are not there where nobody looks."""
    nowhere = broadcast_scalar(Expr(b, b.ptrtoint(stack_buffer(b, LINE), I64)), LANES)
    return spill(_bits(b, mask).pick(hosts, nowhere))


def _store_phases(hosts: ir.Value, value_of: Callable[[int], Expr], size: int) -> None:
    """Turns of 128 bytes; of those of a turn in one place the lowest lane's stays."""
    turn = min(LANES, STORE_BYTES // size)
    for first in range(0, LANES, turn):
        for lane in reversed(range(first, first + turn)):
            value = value_of(lane)
            b = value.b
            store_vector(value, b.inttoptr(load_vector(b, hosts, 8 * lane, I64).v, POINTER), 0)


def _emit_scatter(size: int) -> Callable[[ir.Module, Native], None]:
    element = ir.IntType(8 * size)

    def emit(module: ir.Module, function: Native) -> None:
        b, (start, offsets, values, mask) = _parts(module, function)
        places = _store_addresses(b, _host_addresses(b, start, Expr(b, offsets)), mask)
        given = spill(Expr(b, values))
        _store_phases(places, lambda lane: load_vector(b, given, size * lane, element), size)
        b.ret(I64(0))

    return emit


def _emit_scatter_vectors(module: ir.Module, function: Native) -> None:
    b, (addresses, base, mask, given, which) = _parts(module, function)
    to, source = b.inttoptr(addresses, POINTER), b.inttoptr(given, POINTER)
    places = _store_addresses(
        b, _host_addresses(b, base, load_vector(b, to, 0, lanes_of(64))), mask
    )
    for size, count in _switched(b, which):
        lanes = lanes_of(8 * size)
        parts = joined([load_vector(b, source, e * LANES * size, lanes) for e in range(count)])
        each = [shuffled(parts, [e * LANES + lane for e in range(count)]) for lane in range(LANES)]
        _store_phases(places, each.__getitem__, size * count)
        b.ret(I64(1))


@native(emit=_emit_gather(1))
def gather_8(start: i64, offsets: Lanes32, mask: i64) -> Lanes8:
    """A byte for each lane."""
    raise NotImplementedError


@native(emit=_emit_gather(2))
def gather_16(start: i64, offsets: Lanes32, mask: i64) -> Lanes16:
    """Two."""
    raise NotImplementedError


@native(emit=_emit_gather(4))
def gather_32(start: i64, offsets: Lanes32, mask: i64) -> Lanes32:
    """Four; where all lie in one window of 128 bytes they only change places."""
    raise NotImplementedError


@native(emit=_emit_gather(8))
def gather_64(start: i64, offsets: Lanes32, mask: i64) -> Lanes64:
    """Eight."""
    raise NotImplementedError


@native(emit=_emit_scatter(1))
def scatter_8(start: i64, offsets: Lanes32, values: Lanes8, mask: i64) -> i64:
    """A byte of each lane, in turns of 128 bytes; of those of a turn in one place the lowest lane's
    stays (as on an H200: PTX does not say)."""
    raise NotImplementedError


@native(emit=_emit_scatter(2))
def scatter_16(start: i64, offsets: Lanes32, values: Lanes16, mask: i64) -> i64:
    """Two."""
    raise NotImplementedError


@native(emit=_emit_scatter(4))
def scatter_32(start: i64, offsets: Lanes32, values: Lanes32, mask: i64) -> i64:
    """Four."""
    raise NotImplementedError


@native(emit=_emit_scatter(8))
def scatter_64(start: i64, offsets: Lanes32, values: Lanes64, mask: i64) -> i64:
    """Eight."""
    raise NotImplementedError


@native(emit=_emit_gather_vectors, part="vectors")
def gather_vectors(addresses: i64, base: i64, mask: i64, out: i64, which: i64) -> i64:
    """``which % 16`` elements of ``which // 16`` bytes of each lane, to ``out`` as by ``unzip``.

    The lanes' addresses lie at ``addresses``, host addresses are ``base`` more. 0 where ``which``
    is not among ``ZIPPED``.
    """
    raise NotImplementedError


@native(emit=_emit_scatter_vectors, part="vectors")
def scatter_vectors(addresses: i64, base: i64, mask: i64, given: i64, which: i64) -> i64:
    """The reverse."""
    raise NotImplementedError


GATHERS = {8: gather_8, 16: gather_16, 32: gather_32, 64: gather_64}
SCATTERS = {8: scatter_8, 16: scatter_16, 32: scatter_32, 64: scatter_64}
