"""Arithmetic: Python's operators on registers in PTX.

Integers wrap, ``*`` is ``mul.lo``; float instructions always have a rounding modifier (``.rn``).
There are no implicit conversions: both operands have the same type, and a Python number takes the
register's. Identities (``x + 0``, ``x * 1``, ``x // 1``) emit nothing; powers of two become shifts
and masks.
"""

from __future__ import annotations

import operator
from functools import lru_cache

from ...dtypes import DTYPES
from ..emitter import Emitter
from ..operations.variables import Variables
from ..source_location import kernel_error
from ..values.registers import Reg, Scalar, Var, is_integer
from .bitwise import BitwiseOperations
from .variables import (
    INTEGER_KINDS,
    check_number,
    compatible,
    fold_constants,
    move_type,
    power_of_two,
    require_register,
    type_mismatch,
    unsupported_operator,
)

_INTEGER_OPS = {"mul": "mul.lo", "fma": "mad.lo"}


@lru_cache(maxsize=None)
def _opcode(op: str, type_: str) -> str | None:
    """The opcode of an arithmetic operation on a type, or None if PTX has none."""
    t = DTYPES[type_]
    if t.kind in INTEGER_KINDS and t.bits >= 16:
        return f"{_INTEGER_OPS.get(op, op)}.{t.name}"
    if t.kind not in ("float", "packed") or t.bits < 16 or t.name == "tf32":
        return None
    if op in ("min", "max"):
        return f"{op}.{t.name}"
    rounded = op in ("add", "sub", "mul", "fma") or (op == "div" and t.name in ("f32", "f64"))
    return f"{op}.rn.{t.name}" if rounded else None


class ArithmeticOperations:
    """Operators on registers and Python numbers. ``into`` is a variable to write instead."""

    def __init__(self, emitter: Emitter, variables: Variables, bitwise: BitwiseOperations) -> None:
        self._emitter = emitter
        self._variables = variables
        self._bitwise = bitwise

    def _compute(self, op: str, symbol: str, a: Scalar, b: Scalar, into: Var | None) -> Reg:
        t = self._variables.common_type(symbol, a, b)
        opcode = _opcode(op, t.name)
        if opcode is None:
            raise unsupported_operator(symbol, t)
        return self._emitter.compute(opcode, a, b, into=into, dtype=t)

    # --- + - * / // % ---
    def add(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a + b``: integers wrap, floats are rounded to nearest (``add.rn``)."""
        if not isinstance(a, Reg):
            if not isinstance(b, Reg):
                return fold_constants("k.add", operator.add, a, b)
            a, b = b, a
        if not isinstance(b, Reg) and is_integer(b) and a.dtype.kind in INTEGER_KINDS:
            if b == 0:
                return self._variables.as_result(a, into)
            if b < 0:
                return self._compute("sub", "-", a, -b, into)
        return self._compute("add", "+", a, b, into)

    def sub(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a - b``: integers wrap, floats are rounded to nearest (``sub.rn``)."""
        if not isinstance(b, Reg):
            if not isinstance(a, Reg):
                return fold_constants("k.sub", operator.sub, a, b)
            if is_integer(b) and a.dtype.kind in INTEGER_KINDS:
                return self.add(a, -b, into=into)
        return self._compute("sub", "-", a, b, into)

    def mul(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a * b``: the low half for integers (``mul.lo``), floats rounded to nearest."""
        if not isinstance(a, Reg):
            if not isinstance(b, Reg):
                return fold_constants("k.mul", operator.mul, a, b)
            a, b = b, a
        if not isinstance(b, Reg) and is_integer(b) and a.dtype.kind in INTEGER_KINDS:
            if b == 0:
                return self._variables.as_result(0, into)
            if b == 1:
                return self._variables.as_result(a, into)
            if power_of_two(b):
                return self._bitwise.shl(a, int(b).bit_length() - 1, into=into)
        return self._compute("mul", "*", a, b, into)

    def truediv(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a / b`` of f32 or f64, correctly rounded."""
        if not isinstance(a, Reg) and not isinstance(b, Reg):
            return fold_constants("k.truediv", operator.truediv, a, b)
        t = self._variables.common_type("/", a, b)
        if t.kind in INTEGER_KINDS:
            raise kernel_error(
                f"the operands of / must be floats, got {t.name}",
                "use // and % for unsigned integers, k.div and k.rem for signed",
            )
        return self._compute("div", "/", a, b, into)

    def floordiv(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a // b`` of unsigned integers; use ``k.div`` for signed ones."""
        return self._divide("//", "div", a, b, into)

    def mod(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a % b`` of unsigned integers; use ``k.rem`` for signed ones."""
        return self._divide("%", "rem", a, b, into)

    def _divide(self, symbol: str, op: str, a: Scalar, b: Scalar, into: Var | None) -> Reg:
        if not isinstance(a, Reg) and not isinstance(b, Reg):
            return fold_constants(symbol, operator.floordiv if op == "div" else operator.mod, a, b)
        t = self._variables.common_type(symbol, a, b)
        if t.kind != "uint":
            raise kernel_error(
                f"the operands of {symbol} must be unsigned, got {t.name}",
                f"k.{op}(a, b) rounds toward zero; .view('u{t.bits}') if it is not negative",
            )
        if not isinstance(b, Reg):
            if b <= 0:
                raise kernel_error(f"the divisor of {symbol} must be positive, got {b}")
            if power_of_two(int(b)) and op == "div":
                return self._bitwise.shr(a, int(b).bit_length() - 1, into=into)
            if power_of_two(int(b)):
                return self._bitwise.and_(a, b - 1, into=into)
        return self._compute(op, symbol, a, b, into)

    def div(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """Integer quotient toward zero, signed or unsigned."""
        return self._toward_zero("div", a, b, into)

    def rem(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """The remainder of ``div``: it has the sign of ``a``."""
        return self._toward_zero("rem", a, b, into)

    def _toward_zero(self, op: str, a: Scalar, b: Scalar, into: Var | None) -> Reg:
        t = self._variables.common_type(op, a, b)
        if t.kind not in INTEGER_KINDS:
            raise kernel_error(f"the operands of k.{op} must be integers, got {t.name}")
        return (
            self._divide("//", op, a, b, into)
            if t.kind == "uint"
            else self._compute(op, op, a, b, into)
        )

    def mad(self, a: Scalar, b: Scalar, c: Scalar, *, into: Var | None = None) -> Reg:
        """``a * b + c`` in one instruction: ``mad.lo``, or ``fma.rn`` (rounded once)."""
        t = self._variables.common_type("mad", a, b, c)
        opcode = _opcode("fma", t.name)
        if opcode is None:
            raise unsupported_operator("mad", t)
        return self._emitter.compute(opcode, a, b, c, into=into, dtype=t)

    fma = mad

    def min(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """The smaller of two; of a NaN and a number, the number."""
        return self._extreme("min", a, b, into)

    def max(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """The larger of two; of a NaN and a number, the number."""
        return self._extreme("max", a, b, into)

    def _extreme(self, op: str, a: Scalar, b: Scalar, into: Var | None) -> Reg:
        if not isinstance(a, Reg) and not isinstance(b, Reg):
            return fold_constants(f"k.{op}", min if op == "min" else max, a, b)
        return self._compute(op, op, a, b, into)

    def neg(self, a: Reg) -> Reg:
        """``-a``: of an unsigned integer, 2^bits - a."""
        require_register("k.neg", a)
        if a.dtype.kind == "uint":
            return self._emitter.compute(f"sub.{a.dtype.name}", 0, a, dtype=a.dtype)
        if a.dtype.kind not in ("int", "float", "packed"):
            raise unsupported_operator("-", a.dtype)
        return self._emitter.compute(f"neg.{a.dtype.name}", a, dtype=a.dtype)

    def abs(self, a: Reg) -> Reg:
        """``|a|``: the smallest signed integer stays as it is."""
        require_register("k.abs", a)
        if a.dtype.kind == "uint":
            return a
        if a.dtype.kind not in ("int", "float", "packed"):
            raise unsupported_operator("abs", a.dtype)
        return self._emitter.compute(f"abs.{a.dtype.name}", a, dtype=a.dtype)

    # --- comparison and selection ---
    def compare(self, op: str, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """A predicate. ``op``: eq ne lt le gt ge; for a NaN only ``ne`` is true."""
        if not isinstance(a, Reg):
            require_register("k.compare", b)
            swapped = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(op, op)
            return self.compare(swapped, b, a, into=into)
        if isinstance(b, Reg) and not compatible(a.dtype, b.dtype, ordered=op not in ("eq", "ne")):
            raise type_mismatch(op, a.dtype, b.dtype)
        t = a.dtype
        if not isinstance(b, Reg):
            check_number(op, t, b)
            if t.kind == "uint" and b < 0:
                raise kernel_error(
                    f"a {t.name} register must be compared with a number of at least 0, got {b}"
                )
        if t.kind == "bits" and op not in ("eq", "ne"):
            raise kernel_error(
                f"{t.name} registers have no order", "use .view('u32') or .view('s32')"
            )
        if t.name == "pred":
            both = self._bitwise.xor(a, b)
            return both if op == "ne" else self._bitwise.not_(both)
        op = "neu" if op == "ne" and t.kind == "float" else op
        return self._emitter.compute(f"setp.{op}.{t.name}", a, b, into=into)

    def select(self, p: Reg | bool, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a`` if the predicate is true, else ``b``; two numbers have ``into``'s type, or u32."""
        if not isinstance(p, Reg):
            return self._variables.as_result(a if self._emitter.static_condition(p) else b, into)
        self._emitter.check_predicate(p)
        t = (
            self._variables.common_type("select", a, b)
            if isinstance(a, Reg) or isinstance(b, Reg)
            else None
        )
        t = t or (into.dtype if into is not None else DTYPES["u32"])
        if t.name == "pred":
            return self._bitwise.or_(
                self._bitwise.and_(p, a), self._bitwise.and_(self._bitwise.not_(p), b), into=into
            )
        pair = [v if isinstance(v, Reg) else self._emitter.immediate(t, v) for v in (a, b)]
        return self._emitter.compute(f"selp.{move_type(t)}", *pair, p, into=into, dtype=t)
