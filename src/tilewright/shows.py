"""What a value shows in a notebook, ``_repr_svg_``: a picture that a higher floor draws.

A class that can be drawn is a ``Shown``. ``view`` enters who draws it, with ``draws``; the package
says with ``load_with`` how to fetch ``view``, so that nothing is loaded before a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Artist = Callable[[Any], str]

_ARTISTS: dict[type, Artist] = {}
_LOADERS: list[Callable[[], object]] = []


def draws(kind: type[T]) -> Callable[[Callable[[T], str]], Callable[[T], str]]:
    """Enter the decorated function: it gives the SVG of a ``kind``."""

    def enter(artist: Callable[[T], str]) -> Callable[[T], str]:
        _ARTISTS[kind] = artist
        return artist

    return enter


def load_with(load: Callable[[], object]) -> None:
    """``load`` is called once, before the first picture: it brings the artists."""
    _LOADERS.append(load)


class Shown:
    """A value with a picture, where somebody draws it."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        while _LOADERS:
            _LOADERS.pop()()
        artist = _ARTISTS.get(type(self))
        return artist(self) if artist else None
