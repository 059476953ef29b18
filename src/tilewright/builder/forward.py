"""``forward``: a method of a part as a method of the builder.

    class Builder:
        add = forward(ArithmeticOperations.add)

The builder is composed of parts; kernels call ``k.add``. The descriptor keeps the signature and the
docstring of the part's method, for type checkers, completion and ``help``. An attribute look-up
returns the bound method of the part and stores it in the builder, so later calls cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")
Part = TypeVar("Part")


class Composed(Protocol):
    """An object with parts, by the names of their classes."""

    _parts: dict[str, Any]


class forward(Generic[Part, P, R]):
    """Descriptor that forwards to the part whose class defines ``method``."""

    def __init__(self, method: Callable[Concatenate[Part, P], R]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[Part, P], R]: ...
    @overload
    def __get__(self, instance: Composed, owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Composed | None, owner: type) -> Callable[..., R]:
        if instance is None:
            return self.method
        part = instance._parts[self.method.__qualname__.partition(".")[0]]
        bound: Callable[P, R] = getattr(part, self.method.__name__)
        vars(instance)[self._name] = bound
        return bound
