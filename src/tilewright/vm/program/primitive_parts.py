"""Evaluators composed of parts: each primitive is forwarded to the part that implements it."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from ...ptx.isa.primitives import Primitives

PRIMITIVES = frozenset(name for name in vars(Primitives) if not name.startswith("_"))

T = TypeVar("T")


def composed_of(**parts: type) -> Callable[[type[T]], type[T]]:
    """Class decorator: the primitives that a part's class defines are forwarded to the attribute of
    that name. What the decorated class defines itself stays.
    """

    def forward(cls: type[T]) -> type[T]:
        for attribute, part in parts.items():
            for name in PRIMITIVES & vars(part).keys() - vars(cls).keys():
                setattr(cls, name, property(attrgetter(f"{attribute}.{name}")))
        return cls

    return forward
