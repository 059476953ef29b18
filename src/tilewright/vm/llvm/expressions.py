"""Expressions over LLVM values, and functions that a module holds once.

``Expr`` gives Python's operators to an ``ir.Value`` (an integer or float, scalar or vector), so
that bit-level algorithms read as in a textbook. A Python number as the other operand becomes a
constant of the same type. Longer code is emitted by ``shared`` as an internal function, once in a
module; each use is one call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

import llvmlite.ir as ir

LANES = 32
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
_FLOATS: dict[int, ir.Type] = {32: FLOAT, 64: DOUBLE}
_FLOAT_WIDTHS = {"float": 32, "double": 64}
_LETTERS = {"float": "f32", "double": "f64"}
_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

Operand = Union["Expr", int, float]


def int_type(width: int) -> ir.Type:
    return ir.IntType(width)


def lanes_of(element: ir.Type | int) -> ir.Type:
    """A vector type of 32 elements (an int: an integer of that width)."""
    return ir.VectorType(ir.IntType(element) if isinstance(element, int) else element, LANES)


def element_of(type_: ir.Type) -> ir.Type:
    return type_.element if isinstance(type_, ir.VectorType) else type_


def width_of(type_: ir.Type) -> int:
    """Bits of one lane."""
    element = element_of(type_)
    return element.width if isinstance(element, ir.IntType) else _FLOAT_WIDTHS[str(element)]


class TextConstant(ir.Constant):  # type: ignore[misc]  # llvmlite has no types
    """A constant of any type, as LLVM writes it; ``integer`` is its value if it is an integer."""

    def __init__(self, type_: ir.Type, text: str, integer: int | None) -> None:
        self.type, self.text, self.integer = type_, text, integer
        self.constant = ()  # llvmlite's field for elements, which this class does not have

    def _to_string(self) -> str:
        return f"{self.type} {self.text}"

    def get_reference(self) -> str:
        return self.text


def poison(type_: ir.Type) -> TextConstant:
    """A poison value of a type."""
    return TextConstant(type_, "poison", None)


def first_only(lanes: int) -> TextConstant:
    """The shuffle mask that broadcasts lane 0."""
    return TextConstant(ir.VectorType(ir.IntType(32), lanes), "zeroinitializer", 0)


def splat(type_: ir.Type, value: int | float) -> ir.Constant:
    """The constant ``value`` of a scalar type, or in every lane of a vector type."""
    element, bits = element_of(type_), None
    if isinstance(element, ir.IntType):
        bits = int(value) & ((1 << element.width) - 1)
        text = ("false", "true")[bits] if element.width == 1 else str(bits)
    else:
        text = "0x" + struct.pack(">d", value).hex()  # LLVM writes a float as the double it equals
    if isinstance(type_, ir.VectorType):
        text = f"splat ({element} {text})"
    return TextConstant(type_, text, bits)


def float_splat(type_: ir.Type, bits: int) -> TextConstant:
    """The float with these bits in every lane of a vector type; no signaling NaN of 32 bits."""
    element = element_of(type_)
    if width_of(type_) == 32:  # LLVM writes a float as the double it equals
        (value,) = struct.unpack(">f", bits.to_bytes(4, "big"))
        nan = (bits >> 31 << 63) | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
        bits = nan if value != value else int.from_bytes(struct.pack(">d", value), "big")
    text = f"0x{bits:016x}"
    return TextConstant(
        type_, f"splat ({element} {text})" if isinstance(type_, ir.VectorType) else text, None
    )


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A value and the builder that emits operations on it. Integers compare unsigned by default."""

    b: ir.IRBuilder
    v: ir.Value

    # --- types ---

    @property
    def type(self) -> ir.Type:
        return self.v.type

    @property
    def width(self) -> int:
        return width_of(self.type)

    @property
    def is_float(self) -> bool:
        return not isinstance(element_of(self.type), ir.IntType)

    @property
    def lanes(self) -> int:
        """The number of lanes; 0 for a scalar."""
        return self.type.count if isinstance(self.type, ir.VectorType) else 0

    def like(self, element: ir.Type) -> ir.Type:
        """The type with this value's number of lanes and another element type."""
        return ir.VectorType(element, self.lanes) if self.lanes else element

    def ints(self, width: int) -> ir.Type:
        return self.like(ir.IntType(width))

    def const(self, value: int | float) -> Expr:
        return Expr(self.b, splat(self.type, value))

    def lift(self, other: Operand) -> ir.Value:
        return other.v if isinstance(other, Expr) else splat(self.type, other)

    def _to(self, cast: str, element: ir.Type) -> Expr:
        type_ = self.like(element)
        return self if type_ == self.type else Expr(self.b, getattr(self.b, cast)(self.v, type_))

    def zext(self, width: int) -> Expr:
        return self._to("zext", ir.IntType(width))

    def sext(self, width: int) -> Expr:
        return self._to("sext", ir.IntType(width))

    def trunc(self, width: int) -> Expr:
        return self._to("trunc", ir.IntType(width))

    def resize(self, width: int, signed: bool = False) -> Expr:
        """Truncated or extended to ``width`` bits."""
        if width <= self.width:
            return self.trunc(width)
        return self.sext(width) if signed else self.zext(width)

    @property
    def bits(self) -> Expr:
        """A float's bits as an integer."""
        return self._to("bitcast", ir.IntType(self.width))

    @property
    def float(self) -> Expr:
        """An integer's bits as a float of the same width."""
        return self._to("bitcast", _FLOATS[self.width])

    def to_double(self) -> Expr:
        return self._to("fpext", DOUBLE)

    def to_float(self) -> Expr:
        return self._to("fptrunc", FLOAT)

    def from_int(self, signed: bool, width: int) -> Expr:
        """The integer's value as a float of ``width`` bits, to nearest even."""
        return self._to("sitofp" if signed else "uitofp", _FLOATS[width])

    def to_int(self, signed: bool, width: int) -> Expr:
        """Toward zero; the value must fit."""
        return self._to("fptosi" if signed else "fptoui", ir.IntType(width))

    # --- arithmetic ---

    def _op(self, name: str, other: Operand) -> Expr:
        name = "f" + name if self.is_float else name
        return Expr(self.b, getattr(self.b, name)(self.v, self.lift(other)))

    def __add__(self, other: Operand) -> Expr:
        return self._op("add", other)

    def __sub__(self, other: Operand) -> Expr:
        return self._op("sub", other)

    def __rsub__(self, other: Operand) -> Expr:
        return Expr(self.b, self.lift(other)) - self

    def __mul__(self, other: Operand) -> Expr:
        return self._op("mul", other)

    def __truediv__(self, other: Operand) -> Expr:
        return self._op("div", other)

    def __and__(self, other: Operand) -> Expr:
        return self._op("and_", other)

    def __or__(self, other: Operand) -> Expr:
        return self._op("or_", other)

    def __xor__(self, other: Operand) -> Expr:
        return self._op("xor", other)

    def __invert__(self) -> Expr:
        return self ^ -1

    def __lshift__(self, other: Operand) -> Expr:
        return self._op("shl", other)

    def __rlshift__(self, other: Operand) -> Expr:
        return Expr(self.b, self.lift(other)) << self

    def __rshift__(self, other: Operand) -> Expr:
        return self._op("lshr", other)

    def sar(self, other: Operand) -> Expr:
        return self._op("ashr", other)

    def op(self, name: str, other: Operand) -> Expr:
        """A binary instruction of LLVM by its name."""
        return Expr(self.b, getattr(self.b, name)(self.v, self.lift(other)))

    # --- comparison and choice ---

    def cmp(self, op: str, other: Operand, signed: bool = False) -> Expr:
        """``op``: eq ne lt le gt ge; for floats, false if an operand is a NaN."""
        kind = "fcmp_ordered" if self.is_float else "icmp_signed" if signed else "icmp_unsigned"
        return Expr(self.b, getattr(self.b, kind)(_PREDICATES[op], self.v, self.lift(other)))

    def eq(self, other: Operand) -> Expr:
        return self.cmp("eq", other)

    def ne(self, other: Operand) -> Expr:
        return self.cmp("ne", other)

    def __lt__(self, other: Operand) -> Expr:
        return self.cmp("lt", other)

    def __le__(self, other: Operand) -> Expr:
        return self.cmp("le", other)

    def __gt__(self, other: Operand) -> Expr:
        return self.cmp("gt", other)

    def __ge__(self, other: Operand) -> Expr:
        return self.cmp("ge", other)

    def slt(self, other: Operand) -> Expr:
        return self.cmp("lt", other, signed=True)

    @property
    def negative(self) -> Expr:
        """Whether the sign bit is set (of an integer, or of a float's bits)."""
        return self.bits.slt(0)

    def unordered(self, op: str, other: Operand) -> Expr:
        """A comparison of floats that is true if an operand is a NaN. ``ord`` and ``uno``: whether
        no operand, or any operand, is a NaN.
        """
        op = _PREDICATES.get(op, op)
        return Expr(self.b, self.b.fcmp_unordered(op, self.v, self.lift(other)))

    @property
    def is_nan(self) -> Expr:
        return self.unordered("uno", self)

    def pick(self, yes: Operand, no: Operand) -> Expr:
        """``yes`` where this predicate holds, else ``no``; at least one must be an expression."""
        typed = yes if isinstance(yes, Expr) else no
        assert isinstance(typed, Expr)
        return Expr(self.b, self.b.select(self.v, typed.lift(yes), typed.lift(no)))

    # --- LLVM's intrinsics ---

    def intrinsic(self, name: str, *others: Operand, flag: int | None = None) -> Expr:
        """``llvm.<name>`` of values of one type; ``flag`` is a constant i1 as the last operand."""
        operands = [self.v, *(self.lift(o) for o in others)]
        types = [self.type] * len(operands)
        if flag is not None:
            operands.append(ir.Constant(ir.IntType(1), flag))
            types.append(ir.IntType(1))
        full = f"llvm.{name}.{_suffix(self.type)}"
        function = declare(self.b.module, full, self.type, types)
        return Expr(self.b, self.b.call(function, operands))

    def clz(self) -> Expr:
        """Leading zeros; the width for 0."""
        return self.intrinsic("ctlz", flag=0)

    def less(self, other: Operand) -> Expr:
        """``max(self − other, 0)``, unsigned."""
        return self.intrinsic("usub.sat", other)

    def umin(self, other: Operand) -> Expr:
        return self.intrinsic("umin", other)

    def umax(self, other: Operand) -> Expr:
        return self.intrinsic("umax", other)

    def sqrt(self) -> Expr:
        return self.intrinsic("sqrt")


def _suffix(type_: ir.Type) -> str:
    name = str(element_of(type_))
    name = _LETTERS.get(name, name)
    return f"v{type_.count}{name}" if isinstance(type_, ir.VectorType) else name


def declare(module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    """The function ``name`` of the module, declared if it is not yet."""
    function = module.globals.get(name)
    return function or ir.Function(module, ir.FunctionType(result, arguments), name)


def shared(name: str, body: Callable[..., Expr], result: ir.Type, *arguments: Expr) -> Expr:
    """``body(*arguments)`` as a call of an internal function ``name``, emitted once per module."""
    b, count = arguments[0].b, arguments[0].lanes
    name = name if count in (0, LANES) else f"{name}.v{count}"
    function = b.module.globals.get(name)
    if function is None:
        function = declare(b.module, name, result, [a.type for a in arguments])
        function.linkage = "internal"
        for attribute in ("noinline", "nounwind", "readnone"):
            function.attributes.add(attribute)
        inside = ir.IRBuilder(function.append_basic_block())
        value = body(*(Expr(inside, a) for a in function.args))
        inside.ret(value.v)
    return Expr(b, b.call(function, [a.v for a in arguments]))


def lanewise(name: str, body: Callable[..., Expr], result: int, *arguments: Expr) -> Expr:
    """``shared`` with a ``body`` over scalars, in a loop over the lanes."""

    vector = arguments[0].ints(result)

    def loop(*vectors: Expr) -> Expr:
        b = vectors[0].b
        i64, entry = ir.IntType(64), b.block
        spilled = [spill(v) for v in vectors]
        out = slot(b, vector)
        head, done = b.append_basic_block(), b.append_basic_block()
        b.branch(head)
        b.position_at_end(head)
        lane = b.phi(i64)
        kinds = [element_of(v.type) for v in vectors]
        scalars = [
            Expr(b, b.load(b.gep(buffer, [lane], source_etype=kind), typ=kind))
            for buffer, kind in zip(spilled, kinds, strict=True)
        ]
        value = body(*scalars)
        b.store(value.v, b.gep(out, [lane], source_etype=value.type))
        following = b.add(lane, i64(1))
        lane.add_incoming(i64(0), entry)
        lane.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, i64(vector.count)), head, done)
        b.position_at_end(done)
        return Expr(b, b.load(out, typ=vector))

    return shared(name, loop, vector, *arguments)


def slot(b: ir.IRBuilder, type_: ir.Type) -> ir.Value:
    """A stack slot for one value, as an opaque pointer."""
    pointer = b.alloca(type_)
    pointer.type = ir.PointerType()  # llvmlite gives it a typed pointer
    return pointer


def spill(value: Expr) -> ir.Value:
    """Store a value to a stack slot, lanes in order; the address."""
    pointer = slot(value.b, value.type)
    value.b.store(value.v, pointer)
    return pointer
