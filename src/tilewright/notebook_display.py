"""What a value shows in a notebook: a picture (``_repr_svg_``), or a page that answers to the mouse
(``_repr_html_``). A higher floor draws them.

A class that can be drawn is a ``Shown``. ``view`` enters who draws it, with ``draws``; the package
says with ``load_with`` how to fetch ``view``, so that nothing is loaded before a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .errors import LayoutError

T = TypeVar("T")
Artist = Callable[[Any], str]

_ARTISTS: dict[tuple[str, type], Artist] = {}
_LOADERS: list[Callable[[], object]] = []


def draws(kind: type[T], form: str = "svg") -> Callable[[Callable[[T], str]], Callable[[T], str]]:
    """Enter the decorated function: it gives the SVG (or ``html``) of a ``kind``."""

    def enter(artist: Callable[[T], str]) -> Callable[[T], str]:
        _ARTISTS[form, kind] = artist
        return artist

    return enter


def load_with(load: Callable[[], object]) -> None:
    """``load`` is called once, before the first picture: it brings the artists."""
    _LOADERS.append(load)


def shown(value: object, form: str) -> str | None:
    """A value in a form; None where nobody draws it so, or where it has nothing to draw: a layout
    of numbers that are not known.
    """
    while _LOADERS:
        _LOADERS.pop()()
    artist = _ARTISTS.get((form, type(value)))
    try:
        return artist(value) if artist else None
    except LayoutError:
        return None


class Shown:
    """A value with a picture, where somebody draws it."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        return shown(self, "svg")

    def _repr_html_(self) -> str | None:
        return shown(self, "html")
