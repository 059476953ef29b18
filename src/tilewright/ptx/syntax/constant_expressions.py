"""Literals and constant expressions, folded while they are parsed: ``0x1FU``, ``1.5``,
``4*1024+8``, ``(1<<4)|3``.

PTX evaluates them in 64 bits, signed unless an operand has the ``U`` suffix or needs the 64th bit,
or in doubles if an operand is a decimal literal (PTX manual, "Constant Expressions"). A single
literal keeps its form.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

from ..special_registers import WARP_SIZE
from ..tree import FloatImm, Imm
from .lexer import Cursor

Constant = Imm | FloatImm

_MAX_DEPTH = 16  # of nested parentheses and signs
_RANKS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_RANK = {symbol: rank for rank, symbols in enumerate(_RANKS) for symbol in symbols}
_INTEGER: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)), "&&": lambda a, b: int(bool(a and b)),
    "|": operator.or_, "^": operator.xor, "&": operator.and_,
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63),
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}  # fmt: skip
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FLOAT: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


def constant(cursor: Cursor, depth: int = 0) -> Constant:
    """Parse a constant expression, ``a ? b : c`` included."""
    value = _binary(cursor, 0, depth)
    if not cursor.accept("?"):
        return value
    deeper = _deeper(cursor, depth)
    yes = constant(cursor, deeper)
    cursor.expect(":", "in a constant ?: expression")
    no = constant(cursor, deeper)
    return yes if _number(value) else no


def constant_integer(cursor: Cursor, describe: str = "an integer") -> int:
    """Parse a constant expression that must be an integer."""
    start = cursor.start
    value = constant(cursor)
    if not isinstance(value, Imm):
        cursor.fail(f"expected {describe}, got a floating-point number", start)
    return value.value


def _deeper(cursor: Cursor, depth: int) -> int:
    if depth >= _MAX_DEPTH:
        cursor.fail(f"a constant expression can be nested at most {_MAX_DEPTH} deep")
    return depth + 1


def _binary(cursor: Cursor, lowest: int, depth: int) -> Constant:
    left = _unary(cursor, depth)
    while cursor.kind == "punct" and _RANK.get(cursor.value, -1) >= lowest:
        at = cursor.start
        symbol = cursor.advance()
        right = _binary(cursor, _RANK[symbol] + 1, depth)
        try:
            left = _apply(symbol, left, right)
        except ZeroDivisionError:
            cursor.fail("division by zero in a constant expression", at)
        except (KeyError, OverflowError):
            cursor.fail(f"{symbol!r} can't be applied to these operands", at)
    return left


def _unary(cursor: Cursor, depth: int) -> Constant:
    if cursor.kind == "int":
        unsigned = cursor.value.endswith("U")
        return Imm(cursor.integer(), unsigned)
    if cursor.kind == "float":
        return float_literal(cursor.advance())
    if cursor.value == WARP_SIZE:
        cursor.advance()
        return Imm(32)
    start = cursor.start
    if cursor.accept("("):
        return _parenthesis(cursor, _deeper(cursor, depth))
    if cursor.kind == "punct" and cursor.value in "-+!~":
        sign = cursor.advance()
        value = _unary(cursor, _deeper(cursor, depth))
        if sign in "!~" and not isinstance(value, Imm):
            cursor.fail(f"{sign!r} needs an integer", start)
        return _signed(sign, value)
    cursor.fail(f"expected a number, got {cursor.describe()}")


def _parenthesis(cursor: Cursor, depth: int) -> Constant:
    if cursor.kind == "directive" and cursor.value in (".s64", ".u64"):
        unsigned = cursor.advance() == ".u64"
        cursor.expect(")")
        value = _unary(cursor, depth)
        return _wrap(int(_number(value)), unsigned)
    value = constant(cursor, depth)
    cursor.expect(")", "after a constant expression")
    return value


def _signed(sign: str, value: Constant) -> Constant:
    if isinstance(value, FloatImm):
        return FloatImm(value.bits ^ (1 << value.width - 1), value.width) if sign == "-" else value
    if sign == "-":
        return (
            Imm(-value.value, value.unsigned)
            if value.value <= 1 << 63
            else _wrap(-value.value, True)
        )
    return {"+": value, "!": Imm(int(not value.value)), "~": _wrap(~value.value, value.unsigned)}[
        sign
    ]


def _apply(symbol: str, left: Constant, right: Constant) -> Constant:
    a, b = _number(left), _number(right)
    if symbol in _COMPARE:
        return Imm(int(_COMPARE[symbol](a, b)))
    if isinstance(left, Imm) and isinstance(right, Imm):
        unsigned = any(x.unsigned or x.value >= 1 << 63 for x in (left, right))
        a, b = (_wrap(x.value, unsigned).value for x in (left, right))
        return _wrap(_INTEGER[symbol](a, b), unsigned)
    return double(_FLOAT[symbol](a, b))


def _wrap(value: int, unsigned: bool) -> Imm:
    value &= (1 << 64) - 1
    return Imm(value if unsigned or value < 1 << 63 else value - (1 << 64), unsigned)


def _number(value: Constant) -> int | float:
    if isinstance(value, Imm):
        return value.value
    code, whole = ("<f", 4) if value.width == 32 else ("<d", 8)
    number: float = struct.unpack(code, value.bits.to_bytes(whole, "little"))[0]
    return number


def double(value: float) -> FloatImm:
    """A double as an immediate."""
    return FloatImm(int.from_bytes(struct.pack("<d", value), "little"), 64)


def float_literal(literal: str) -> FloatImm:
    """``0f3F800000``, ``0d3FF0000000000000`` or a decimal literal, which is a double."""
    if literal[1:2] in "fF" and literal[0] == "0":
        return FloatImm(int(literal[2:], 16), 32)
    if literal[1:2] in "dD" and literal[0] == "0":
        return FloatImm(int(literal[2:], 16), 64)
    return double(float(literal))
