"""Vectors in memory, shuffles and counted loops, for matrix code.

An address is a pointer and a byte offset. A loop is written as ``with counted_loop(b, n) as i``:
its body is what the ``with`` statement emits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import llvmlite.ir as ir

from ...native.llvm_types import I8, I32, I64, POINTER
from .expressions import DOUBLE, FLOAT, Expr, first_only, poison

LINE = 64  # alignment of buffers in bytes, so that vectors do not cross cache lines

Offset: TypeAlias = "int | ir.Value"


def vector(element: ir.Type | int, lanes: int) -> ir.VectorType:
    """A vector type of ``lanes`` elements (an int: an integer of that width)."""
    return ir.VectorType(ir.IntType(element) if isinstance(element, int) else element, lanes)


def bytes_of(element: ir.Type) -> int:
    """The size of a number in memory."""
    if isinstance(element, ir.IntType):
        return int(element.width) // 8
    return {FLOAT: 4, DOUBLE: 8}[element]


def at(b: ir.IRBuilder, base: ir.Value, offset: Offset) -> ir.Value:
    """The address ``offset`` bytes after ``base``."""
    index = I64(offset) if isinstance(offset, int) else offset
    return b.gep(base, [index], source_etype=I8, inbounds=True)


def load_vector(b: ir.IRBuilder, base: ir.Value, offset: Offset, type_: ir.Type) -> Expr:
    """Load a scalar or vector; the address is aligned to one element only."""
    element = type_.element if isinstance(type_, ir.VectorType) else type_
    return Expr(b, b.load(at(b, base, offset), typ=type_, align=bytes_of(element)))


def store_vector(value: Expr, base: ir.Value, offset: Offset) -> None:
    """Store a scalar or vector."""
    element = value.type.element if value.lanes else value.type
    value.b.store(value.v, at(value.b, base, offset), align=bytes_of(element))


def broadcast(
    b: ir.IRBuilder, base: ir.Value, offset: Offset, element: ir.Type, lanes: int
) -> Expr:
    """Load a scalar and broadcast it to all lanes."""
    return broadcast_scalar(load_vector(b, base, offset, element), lanes)


def broadcast_scalar(scalar: Expr, lanes: int) -> Expr:
    """Broadcast a scalar to all lanes."""
    b, type_ = scalar.b, vector(scalar.type, lanes)
    first = b.insert_element(poison(type_), scalar.v, I32(0))
    return Expr(b, b.shuffle_vector(first, poison(type_), first_only(lanes)))


def shuffled(x: Expr, lanes: Sequence[int], y: Expr | None = None) -> Expr:
    """The lanes with these indices; the lanes of ``y`` follow those of ``x``."""
    mask = ir.Constant(vector(32, len(lanes)), [int(lane) for lane in lanes])
    other = y.v if y is not None else poison(x.type)
    return Expr(x.b, x.b.shuffle_vector(x.v, other, mask))


def joined(parts: Sequence[Expr]) -> Expr:
    """Concatenate vectors of equal length; their number is a power of two."""
    parts = list(parts)
    while len(parts) > 1:
        count = 2 * parts[0].lanes
        parts = [shuffled(x, range(count), y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def stack_buffer(b: ir.IRBuilder, size: int) -> ir.Value:
    """A buffer of ``size`` bytes on the stack; allocate it before any loop."""
    buffer = b.alloca(ir.ArrayType(I8, size))
    buffer.align = LINE
    buffer.type = POINTER
    return buffer


@contextmanager
def counted_loop(b: ir.IRBuilder, count: int) -> Iterator[ir.Value]:
    """A loop over 0 … count − 1; if ``count`` is 1, the body without a loop."""
    if count == 1:
        yield I64(0)
        return
    before, head, done = b.block, b.append_basic_block(), b.append_basic_block()
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(I64(0), before)
    yield index
    following = b.add(index, I64(1))
    index.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, I64(count)), head, done)
    b.position_at_end(done)


def scaled(b: ir.IRBuilder, index: ir.Value, by: int) -> ir.Value:
    """``index * by``."""
    return b.mul(index, I64(by))


def any_of(p: Expr) -> ir.Value:
    """Whether a predicate holds in any lane."""
    word = ir.IntType(p.lanes)
    return p.b.icmp_unsigned("!=", p.b.bitcast(p.v, word), word(0))
