"""Bits: ``& | ^ ~ << >>`` on integers and untyped bits, and logic on predicates."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..source_location import kernel_error
from .registers import Reg, is_integer
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


class BitwiseOperations(Variables):
    """Bitwise operators. Identities (``x & -1``, ``x | 0``, ``x << 0``) cost nothing."""

    def and_(self, a: Any, b: Any, *, into: Any = None) -> Any:
        return self._bitwise("and", "&", a, b, into)

    def or_(self, a: Any, b: Any, *, into: Any = None) -> Any:
        return self._bitwise("or", "|", a, b, into)

    def xor(self, a: Any, b: Any, *, into: Any = None) -> Any:
        return self._bitwise("xor", "^", a, b, into)

    def _bitwise(self, op: str, symbol: str, a: Any, b: Any, into: Any) -> Any:
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
        return self.emit(
            f"{op}.{'pred' if t.name == 'pred' else f'b{t.bits}'}", a, b, into=into, dtype=t
        )

    def _fold_bits(self, op: str, a: Reg, b: int, into: Any) -> Any:
        """The result where ``b`` is all zeros or all ones, else None."""
        ones = (1 << a.dtype.bits) - 1
        b &= ones
        if b == 0:
            zero = False if a.dtype.name == "pred" else 0
            return self.as_result(zero if op == "and" else a, into)
        if b != ones:
            return None
        if op == "and":
            return self.as_result(a, into)
        if op == "xor":
            return self.as_result(self.not_(a), into)
        return self.as_result(True, into) if a.dtype.name == "pred" else None

    def not_(self, a: Any) -> Any:
        if not isinstance(a, Reg):
            return not self.static_condition(a)
        if a.dtype.kind not in (*_BITS, "pred"):
            raise unsupported_operator("~", a.dtype)
        return self.emit(
            "not.pred" if a.dtype.name == "pred" else f"not.b{a.dtype.bits}", a, dtype=a.dtype
        )

    def shl(self, a: Any, n: Any, *, into: Any = None) -> Any:
        return self._shift("shl", "<<", a, n, into)

    def shr(self, a: Any, n: Any, *, into: Any = None) -> Any:
        """Signed registers keep their sign."""
        return self._shift("shr", ">>", a, n, into)

    def _shift(self, op: str, symbol: str, a: Any, n: Any, into: Any) -> Any:
        if not isinstance(n, Reg):
            if not isinstance(a, Reg):
                return fold_constants(symbol, _PYTHON[op], a, n)
            if not is_integer(n):
                said = f"a shift must be by a whole number or a register, got {n!r:.60}"
                raise kernel_error(said)
            if n == 0:
                return self.as_result(a, into)
            if not 0 < n < a.dtype.bits:
                raise kernel_error(f"a shift of {a.dtype.name} by {n}", f"0 … {a.dtype.bits - 1}")
        t = a.dtype if isinstance(a, Reg) else n.dtype
        if t.kind not in _BITS or t.bits < 16:
            raise unsupported_operator(symbol, t)
        kind = t.name if op == "shr" else f"b{t.bits}"
        return self.emit(f"{op}.{kind}", a, n, into=into, dtype=t)
