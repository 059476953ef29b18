"""Bitwise operations: ``& | ^ ~ << >>`` on integers and untyped bits, and logic on predicates."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.registers import Reg, Scalar, Var, is_integer
from .variables import (
    Variables,
    check_number,
    compatible,
    fold_constants,
    type_mismatch,
    unsupported_operator,
)

_BITS = ("int", "uint", "bits")
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}


class BitwiseOperations:
    """Bitwise operators. Identities (``x & -1``, ``x | 0``, ``x << 0``) emit nothing."""

    def __init__(self, emitter: Emitter, variables: Variables) -> None:
        self._emitter = emitter
        self._variables = variables

    def and_(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a & b`` of integers, bits or predicates."""
        return self._bitwise("and", "&", a, b, into)

    def or_(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a | b`` of integers, bits or predicates."""
        return self._bitwise("or", "|", a, b, into)

    def xor(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg:
        """``a ^ b`` of integers, bits or predicates."""
        return self._bitwise("xor", "^", a, b, into)

    def _bitwise(self, op: str, symbol: str, a: Scalar, b: Scalar, into: Var | None) -> Reg:
        if not isinstance(a, Reg):
            if not isinstance(b, Reg):
                return fold_constants(symbol, _PYTHON[op], a, b)
            a, b = b, a
        t = a.dtype
        if isinstance(b, Reg):
            if not compatible(t, b.dtype):
                raise type_mismatch(symbol, t, b.dtype)
            t = b.dtype if t.kind == "bits" else t
        else:
            check_number(symbol, t, b)
            folded = self._fold_bits(op, a, int(b), into)
            if folded is not None:
                return folded
        if t.kind not in (*_BITS, "pred"):
            raise unsupported_operator(symbol, t)
        return self._emitter.compute(
            f"{op}.{'pred' if t.name == 'pred' else f'b{t.bits}'}", a, b, into=into, dtype=t
        )

    def _fold_bits(self, op: str, a: Reg, b: int, into: Var | None) -> Reg | None:
        """The result if ``b`` is all zeros or all ones, else None."""
        ones = (1 << a.dtype.bits) - 1
        b &= ones
        if b == 0:
            zero = False if a.dtype.name == "pred" else 0
            return self._variables.as_result(zero if op == "and" else a, into)
        if b != ones:
            return None
        if op == "and":
            return self._variables.as_result(a, into)
        if op == "xor":
            return self._variables.as_result(self.not_(a), into)
        return self._variables.as_result(True, into) if a.dtype.name == "pred" else None

    def not_(self, a: Reg | bool) -> Reg:
        """``~a`` of an integer, bits, a predicate or a Python bool."""
        if not isinstance(a, Reg):
            return fold_constants("~", operator.ne, self._emitter.static_condition(a), True)
        if a.dtype.kind not in (*_BITS, "pred"):
            raise unsupported_operator("~", a.dtype)
        return self._emitter.compute(
            "not.pred" if a.dtype.name == "pred" else f"not.b{a.dtype.bits}", a, dtype=a.dtype
        )

    def shl(self, a: Scalar, n: Scalar, *, into: Var | None = None) -> Reg:
        """``a << n``: 0 for n of at least the register's bits."""
        return self._shift("shl", "<<", a, n, into)

    def shr(self, a: Scalar, n: Scalar, *, into: Var | None = None) -> Reg:
        """``a >> n``: copies of the sign for signed integers, zeros otherwise."""
        return self._shift("shr", ">>", a, n, into)

    def _shift(self, op: str, symbol: str, a: Scalar, n: Scalar, into: Var | None) -> Reg:
        if not isinstance(n, Reg):
            if not isinstance(a, Reg):
                return fold_constants(symbol, _PYTHON[op], a, n)
            if not is_integer(n):
                raise kernel_error(
                    f"the shift count must be an integer or a register, got {n!r:.60}"
                )
            if n == 0:
                return self._variables.as_result(a, into)
            if not 0 < n < a.dtype.bits:
                raise kernel_error(
                    f"a shift of {a.dtype.name} must be by 0 to {a.dtype.bits - 1}, got {n}"
                )
        t = next(value.dtype for value in (a, n) if isinstance(value, Reg))
        if t.kind not in _BITS or t.bits < 16:
            raise unsupported_operator(symbol, t)
        kind = t.name if op == "shr" else f"b{t.bits}"
        return self._emitter.compute(f"{op}.{kind}", a, n, into=into, dtype=t)
