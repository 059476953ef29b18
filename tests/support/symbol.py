"""A stand-in for a kernel's register: it records the operations asked of it and can be evaluated.

Like the builder's registers it has no truth value, and takes part from the left of an operator
only.
"""

from __future__ import annotations

import operator
from typing import Any

OPERATORS = {
    "+": operator.add, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "^": operator.xor, ">>": operator.rshift, "<<": operator.lshift, "&": operator.and_,
    "<": operator.lt,
}  # fmt: skip


class Symbol:
    def __init__(self, text: str, op: str = "", left: Any = None, right: Any = None) -> None:
        self.text, self.op, self.left, self.right = text, op, left, right

    def _do(self, op: str, other: Any) -> Symbol:
        return Symbol(f"({self} {op} {other})", op, self, other)

    def __bool__(self) -> bool:
        raise TypeError("a symbol has no truth value")

    def __eq__(self, other: object) -> Any:
        raise TypeError("a symbol can't be compared now")

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.text


for _op, _name in {
    "+": "add", "*": "mul", "//": "floordiv", "%": "mod", "^": "xor", ">>": "rshift",
    "<<": "lshift", "&": "and", "<": "lt",
}.items():  # fmt: skip
    setattr(Symbol, f"__{_name}__", lambda self, other, op=_op: self._do(op, other))


def evaluate(x: Any, /, **names: int) -> int:
    """The number that an expression has for these values of its names."""
    if not isinstance(x, Symbol):
        return x
    if not x.op:
        return names[x.text]
    return OPERATORS[x.op](evaluate(x.left, **names), evaluate(x.right, **names))


def count(x: Any) -> int:
    """The operations of an expression."""
    return 1 + count(x.left) + count(x.right) if isinstance(x, Symbol) and x.op else 0
