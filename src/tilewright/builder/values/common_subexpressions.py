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

from ..emitter import Emitter
from .registers import Reg, Var

_PURE = frozenset("add sub mul mad shl shr and or xor not min max cvt setp selp".split())
Key = tuple[Any, ...]


class CommonSubexpressions(Emitter):
    """The operations that hold where the kernel stands."""

    def __init__(self, *, lines: bool = True) -> None:
        super().__init__(lines=lines)
        self._shares = False
        self._scopes: list[dict[Key, Any]] = [{}]

    def emit(self, opcode: str, *args: Any, **options: Any) -> Any:
        key = self._key(opcode, args, options) if self._shares else None
        if key is None:
            return super().emit(opcode, *args, **options)
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        result = super().emit(opcode, *args, **options)
        if self.guard is None:
            self._scopes[-1][key] = result
        return result

    emit.__doc__ = Emitter.emit.__doc__

    @contextmanager
    def eliminate_common_subexpressions(self, wanted: bool = True) -> Iterator[None]:
        """Emit equal operations once inside."""
        before, self._shares = self._shares, wanted
        try:
            yield
        finally:
            self._shares = before

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is emitted inside holds inside only."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def in_prologue(self) -> Iterator[None]:
        """Emit before the body, unguarded and without line marks."""
        with self.eliminate_common_subexpressions(False), super().in_prologue():
            yield

    @contextmanager
    def _static(self, condition: Any) -> Iterator[None]:
        with self.scope(), super()._static(condition):
            yield

    def _key(self, opcode: str, args: tuple[Any, ...], options: dict[str, Any]) -> Key | None:
        """What an operation is known by; None where it is not shared: it does more than compute, or
        reads what changes.
        """
        words = opcode.split(".")
        if words[0] not in _PURE or "cc" in words or _own(options):
            return None
        key: list[Any] = [opcode, str(options.get("dtype"))]
        for arg in args:
            if isinstance(arg, Reg) and not isinstance(arg, Var):
                key.append(arg.operand.name)
            elif arg.__class__ in (int, bool):
                key.append(arg)
            else:
                return None
        return tuple(key)


def _own(options: dict[str, Any]) -> bool:
    """Whether an instruction writes somewhere of its own, under a condition, or more than one
    result.
    """
    given = options.get("into"), options.get("guard")
    return any(x is not None for x in given) or bool(options.get("pair") or options.get("vector"))
