"""Common-subexpression elimination while a kernel is traced.

Partitioning tensors computes the same thread digits and the same offsets many times. Inside
``k.eliminate_common_subexpressions()``, an operation that was already emitted and still dominates
the current position is not emitted again: its register is returned. A result is valid until the end
of the block that contains it (a loop's body, a branch).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .values.registers import Reg, Var

_PURE = frozenset("add sub mul mad shl shr and or xor not min max cvt setp selp".split())
SubexpressionKey = tuple[object, ...]


class SubexpressionCache:
    """The results that are valid at the current position, one dictionary for each open block."""

    def __init__(self) -> None:
        self.enabled = False
        self._scopes: list[dict[SubexpressionKey, Any]] = [{}]

    def find(self, key: SubexpressionKey) -> Any:
        """The valid result of an operation, or None."""
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    def add(self, key: SubexpressionKey, result: Any) -> None:
        """Record a result of the innermost block."""
        self._scopes[-1][key] = result

    @contextmanager
    def enable(self, enabled: bool = True) -> Iterator[None]:
        """Enable or disable the elimination inside the block."""
        before, self.enabled = self.enabled, enabled
        try:
            yield
        finally:
            self.enabled = before

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block: results recorded inside are forgotten at its end."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()


def subexpression_key(opcode: str, args: tuple[Any, ...], dtype: object) -> SubexpressionKey | None:
    """The key of an operation; None if it must not be shared because it has side effects or reads
    variables.
    """
    words = opcode.split(".")
    if words[0] not in _PURE or "cc" in words:
        return None
    key: list[object] = [opcode, str(dtype)]
    for arg in args:
        if isinstance(arg, Reg) and not isinstance(arg, Var):
            key.append(arg.operand.name)
        elif arg.__class__ in (int, bool):
            key.append(arg)
        else:
            return None
    return tuple(key)
