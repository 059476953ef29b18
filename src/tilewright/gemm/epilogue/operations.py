"""Operations of epilogue graphs: each is one PTX instruction with explicit rounding.

``OPERATIONS`` has a row for each: the opcode for every type of its operands, and the type of its
result. ``reference`` evaluates the same rows with NumPy. Loads, constants and roundings to a
storage type are nodes, too; they are described in ``graph`` and emitted by ``emission``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

FLOATS = ("f32", "f64")
NUMBERS = ("f32", "f64", "s32", "u32")
INTEGERS = ("s32", "u32")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True)
class Operation:
    """``opcodes``: the PTX opcode by the type of the last operand. ``result``: the result's type,
    if it differs from that. ``condition``: the first operand is a predicate.
    """

    name: str
    arity: int
    opcodes: dict[str, str] = field(hash=False)
    result: str = ""
    condition: bool = False

    def result_type(self, type_: str) -> str:
        """The type of the result for operands of this type."""
        return self.result or type_


def _same(name: str, arity: int, opcode: str, types: Iterable[str], result: str = "") -> Operation:
    """An operation whose opcode ends in its type, ``{}`` in ``opcode``."""
    return Operation(name, arity, {t: opcode.format(t) for t in types}, result)


def _arithmetic(name: str, arity: int, floats: str, integers: str) -> Operation:
    opcodes = {t: f"{floats}.rn.{t}" for t in FLOATS} | {t: f"{integers}.{t}" for t in INTEGERS}
    return Operation(name, arity, opcodes)


def _approximation(name: str, opcode: str) -> Operation:
    return Operation(name, 1, {"f32": opcode})


_ROWS = (
    _arithmetic("add", 2, "add", "add"),
    _arithmetic("sub", 2, "sub", "sub"),
    _arithmetic("mul", 2, "mul", "mul.lo"),
    _arithmetic("fma", 3, "fma", "mad.lo"),
    _same("div", 2, "div.rn.{}", FLOATS),
    _same("sqrt", 1, "sqrt.rn.{}", FLOATS),
    _same("rcp", 1, "rcp.rn.{}", FLOATS),
    _same("neg", 1, "neg.{}", (*FLOATS, "s32")),
    _same("abs", 1, "abs.{}", (*FLOATS, "s32")),
    _same("copysign", 2, "copysign.{}", FLOATS),  # the magnitude of the second operand
    Operation("min_nan", 2, {"f32": "min.NaN.f32"}),
    Operation("max_nan", 2, {"f32": "max.NaN.f32"}),
    _same("min", 2, "min.{}", NUMBERS),
    _same("max", 2, "max.{}", NUMBERS),
    _approximation("exp2_approx", "ex2.approx.ftz.f32"),
    _approximation("log2_approx", "lg2.approx.ftz.f32"),
    _approximation("tanh_approx", "tanh.approx.f32"),
    _approximation("rcp_approx", "rcp.approx.ftz.f32"),
    _approximation("rsqrt_approx", "rsqrt.approx.ftz.f32"),
    _approximation("sqrt_approx", "sqrt.approx.ftz.f32"),
    _same("mul_hi", 2, "mul.hi.{}", INTEGERS),
    Operation("and", 2, {"pred": "and.pred", "u32": "and.b32"}),
    Operation("or", 2, {"pred": "or.pred", "u32": "or.b32"}),
    Operation("xor", 2, {"pred": "xor.pred", "u32": "xor.b32"}),
    Operation("not", 1, {"pred": "not.pred", "u32": "not.b32"}),
    Operation("shl", 2, {"u32": "shl.b32"}),
    Operation("shr", 2, {"u32": "shr.u32"}),
    Operation("bits", 1, {"f32": "mov.b32", "s32": "mov.b32"}, "u32"),
    Operation("float_of_bits", 1, {"u32": "mov.b32"}, "f32"),
    Operation("to_f32", 1, {"s32": "cvt.rn.f32.s32", "u32": "cvt.rn.f32.u32"}, "f32"),
    Operation("to_f64", 1, {"f32": "cvt.f64.f32", "s32": "cvt.rn.f64.s32"}, "f64"),
    Operation("to_s32", 1, {"f32": "cvt.rni.s32.f32", "f64": "cvt.rni.s32.f64"}, "s32"),
    Operation("round_f32", 1, {"f64": "cvt.rn.f32.f64"}, "f32"),
    Operation(
        "select", 3, {t: f"selp.{t}" for t in NUMBERS}, condition=True
    ),  # condition, value where it holds, value elsewhere
)


def _comparison(name: str) -> Operation:
    # Of a NaN only ``ne`` holds.
    opcodes = {t: f"setp.{'neu' if name == 'ne' else name}.{t}" for t in FLOATS}
    return Operation(name, 2, opcodes | {t: f"setp.{name}.{t}" for t in INTEGERS}, "pred")


OPERATIONS: dict[str, Operation] = {
    row.name: row for row in chain(_ROWS, map(_comparison, COMPARISONS))
}
