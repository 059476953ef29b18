"""Evaluators composed of parts: each primitive is forwarded to the part that implements it."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from ...ptx.isa.primitives import Primitives

PRIMITIVES = frozenset(name for name in vars(Primitives) if not name.startswith("_"))

T = TypeVar("T")


def composed_of(**parts: type) -> Callable[[type[T]], type[T]]:
    """Class decorator: forwards each primitive that the class of a part defines to the attribute of
    the part's name. A primitive that the decorated class defines itself is not forwarded.
    """

    def forward(cls: type[T]) -> type[T]:
        for attribute, part in parts.items():
            for name in PRIMITIVES & vars(part).keys() - vars(cls).keys():
                setattr(cls, name, property(attrgetter(f"{attribute}.{name}")))
        return cls

    return forward
