"""Values that are computed once: equal operations on equal registers, while a kernel shares them.

Cutting tensors up asks for the same digits of a thread's number and the same offsets over and over.
Inside ``k.sharing()`` an operation that was emitted before, where it still holds, is not emitted
again: its register is returned. It holds to the end of the block that it stands in (a loop's body,
a branch), so what was asked for before a loop is not computed in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..emitter import Emitter
from .registers import Reg, Var

_PURE = frozenset("add sub mul mad shl shr and or xor not min max cvt setp selp".split())
Key = tuple[Any, ...]


class Sharing(Emitter):
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
        if self._guard is None:
            self._scopes[-1][key] = result
        return result

    emit.__doc__ = Emitter.emit.__doc__

    @contextmanager
    def sharing(self, wanted: bool = True) -> Iterator[None]:
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
        with self.sharing(False), super().in_prologue():
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
        key: list[Any] = [opcode, str(options.get("like"))]
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
    return any(x is not None for x in given) or bool(options.get("pair") or options.get("parts"))
