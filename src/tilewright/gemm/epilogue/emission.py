"""Emits an epilogue graph into a kernel: the operations of an element, and stored words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...builder import Builder, Pointer
from ...dtypes import dtype
from .graph import ACCUMULATOR, CONSTANT, INDEX, LOAD, ROUND, EpilogueGraph, Node, constant_value
from .operations import COMPARISONS, OPERATIONS

Value = Any  # a register, or a Python number that is an immediate
SMALLEST_POWER, CANONICAL_NAN = 1 << 22, 0x7FFFFFFF  # of f32: the bits of 2⁻¹²⁷, and of NaN


def element_values(
    k: Builder,
    graph: EpilogueGraph,
    accumulators: Sequence[Value],
    loaded: Mapping[str, Value],
    indices: Mapping[str, Value],
) -> list[Value]:
    """Emit all nodes for one element of D: the values of the graph's outputs.

    ``accumulators``: of one product, or of two with the same A.
    ``loaded``: the element of each input, of its compute type; ``indices``: ``row``, ``column`` and
    ``batch``.
    """
    values: list[Value] = []
    for node in graph.nodes:
        if node.op == ACCUMULATOR:
            values.append(accumulators[node.attributes[0] if node.attributes else 0])
        elif node.op == CONSTANT:
            values.append(constant_value(node))
        elif node.op == LOAD:
            values.append(loaded[node.attributes[0]])
        elif node.op == INDEX:
            values.append(indices[node.attributes[0]])
        else:
            values.append(_emit(k, node, [values[i] for i in node.args], graph))
    return [_register(k, values[o.node], graph.nodes[o.node].type) for o in graph.outputs]


def _register(k: Builder, value: Value, type_: str) -> Value:
    """A value in a register, also a constant's."""
    return value if hasattr(value, "dtype") or type_ == "pred" else k.const(type_, value)


def _emit(k: Builder, node: Node, operands: list[Value], graph: EpilogueGraph) -> Value:
    if node.op == ROUND:
        value = _register(k, operands[0], graph.nodes[node.args[0]].type)
        return widened(k, rounded(k, value, node.attributes[0]), node.attributes[0])
    row = OPERATIONS[node.op]
    type_ = graph.nodes[node.args[-1]].type
    if node.op == "select":
        return k.emit(row.opcodes[type_], operands[1], operands[2], operands[0])
    if node.op in COMPARISONS and not hasattr(operands[0], "dtype"):
        operands[0] = k.const(type_, operands[0])
    opcode = row.opcodes[type_]
    if opcode.endswith(".b32"):  # the register's type is the node's
        return k.emit(opcode, *operands, dtype=node.type)
    return k.emit(opcode, *operands)


# --- storage types ------------------------------------------------------------------------------


def widened(k: Builder, value: Value, type_: str) -> Value:
    """An element of a storage type as its compute type. It is in a register of its type; 8-bit
    floats and ue8m0 are the low byte of b16, 8-bit integers s32.
    """
    if type_ in ("f32", "f64", "s32", "u32"):
        return value
    if type_ in ("s8", "u8"):
        return value.to("f32")
    if type_ in ("e4m3", "e5m2"):
        return k.unpack(k.emit(f"cvt.rn.f16x2.{type_}x2", value), "f16")[0].to("f32")
    if type_ == "ue8m0":
        return _power_of_two(k, value.view("u16").to("u32") & 255)
    return value.to("f32")


def _power_of_two(k: Builder, exponent: Value) -> Value:
    """The f32 of a ue8m0's bits: 2⁻¹²⁷, of exponent 0, is subnormal; 255 is NaN."""
    bits = k.max(exponent << 23, SMALLEST_POWER)
    return k.select(exponent == 255, CANONICAL_NAN, bits).view("f32")


def rounded(k: Builder, value: Value, type_: str) -> Value:
    """A value rounded to a storage type, in a register of its own: 8-bit floats in the low byte of
    b16, 8-bit integers saturated in s32.
    """
    t = dtype(type_)
    if t.bits >= 32:
        return _wide(k, value, type_)
    if value.dtype.name == type_:
        return value
    if t.bits == 16:
        return value.to(type_)
    if t.kind == "float":
        return k.emit(f"cvt.rn.satfinite.{type_}x2.f32", k.const("f32", 0.0), value)
    low, high = (-128, 127) if type_ == "s8" else (0, 255)
    if value.dtype.name == "f32":
        value = k.emit("cvt.rni.s32.f32", value)
    return k.max(k.min(value, high), low)


def stored_words(k: Builder, values: Sequence[Value], type_: str) -> list[Value]:
    """Neighbouring elements rounded to a storage type and packed into words of 32 bits (f64: of
    64), the first in the lowest bits. A rest that does not fill a word is one of 16 or 8 bits.
    """
    bits = dtype(type_).bits
    if bits >= 32:
        return [_wide(k, x, type_) for x in values]
    if len(values) == 1:
        return [_single(k, values[0], type_)]
    pairs = [
        _pair(k, low, high, type_) for low, high in zip(values[::2], values[1::2], strict=True)
    ]
    if bits == 16:
        return pairs
    if len(pairs) == 1:
        return pairs
    return [
        k.emit("mov.b32", [low, high], dtype="b32")
        for low, high in zip(pairs[::2], pairs[1::2], strict=True)
    ]


def _wide(k: Builder, value: Value, type_: str) -> Value:
    """An element in a storage type of 32 or 64 bits: f32 as s32 is rounded, and saturates."""
    if value.dtype.name == type_:
        return value
    if value.dtype.name == "f32" and type_ == "s32":
        return k.emit("cvt.rni.s32.f32", value)
    return value.view(type_)  # u32 as s32


def _pair(k: Builder, low: Value, high: Value, type_: str) -> Value:
    """Two elements in a word of twice their size."""
    t = dtype(type_)
    if t.bits == 16:
        return k.pack(f"{type_}x2", low, high).view("b32")
    if t.kind == "float":
        return k.emit(f"cvt.rn.satfinite.{type_}x2.f32", high, low).view("b16")
    if low.dtype.name == "f32":
        low, high = (k.emit("cvt.rni.s32.f32", x) for x in (low, high))
    packed = k.emit(f"cvt.pack.sat.{type_}.s32.b32", high, low, 0)
    return packed.to("u16").view("b16")


def _single(k: Builder, value: Value, type_: str) -> Value:
    one = rounded(k, value, type_)
    if dtype(type_).bits == 16:
        return one.view("b16")
    return one if dtype(type_).kind == "float" else one.view("u32").to("u16").view("b16")


def store_vector(k: Builder, pointer: Pointer, values: Sequence[Value], type_: str) -> None:
    """Store neighbouring elements, rounded to a storage type, by one access. ``pointer`` must be
    aligned to all of them.
    """
    words = stored_words(k, values, type_)
    size = len(values) * dtype(type_).bits // 8
    if size == 1:
        pointer.cast("u8").store(words[0].view("u16").to("u8"))
        return
    word = type_ if dtype(type_).bits >= 32 else words[0].dtype
    pointer.cast(word).aligned(size).store(words)
