"""Notebook display: a picture (``_repr_svg_``) or an interactive page (``_repr_html_``) of a value.

A class that can be drawn derives from ``Drawable``. A higher layer, ``view``, registers the
functions that draw with ``register_renderer``. The package passes the import of ``view`` to
``register_loader``, so that it is imported only when the first picture is displayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any, TypeVar

from .errors import LayoutError

T = TypeVar("T")
Renderer = Callable[[Any], str]

_RENDERERS: dict[tuple[str, type], Renderer] = {}
_LOADERS: list[Callable[[], object]] = []


def register_renderer(
    kind: type[T], form: str = "svg"
) -> Callable[[Callable[[T], str]], Callable[[T], str]]:
    """Decorator: the function returns the SVG (or ``html``) text of a value of type ``kind``."""

    def register(renderer: Callable[[T], str]) -> Callable[[T], str]:
        _RENDERERS[form, kind] = renderer
        return renderer

    return register


def register_loader(load: Callable[[], object]) -> None:
    """``load`` is called once, before the first picture; it imports the modules that register
    renderers.
    """
    _LOADERS.append(load)


def render(value: object, form: str) -> str | None:
    """The text of a value in ``form``. None if no renderer is registered, or if the renderer raises
    LayoutError, as for a layout with dynamic integers.
    """
    while _LOADERS:
        _LOADERS.pop()()
    renderer = _RENDERERS.get((form, type(value)))
    try:
        return renderer(value) if renderer else None
    except LayoutError:
        return None


class Drawable:
    """Base of the classes that notebooks display as a picture, if a renderer is registered."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        return render(self, "svg")

    def _repr_html_(self) -> str | None:
        return render(self, "html")


def facts_html(title: str, facts: Iterable[tuple[str, object]], **texts: str) -> str:
    """HTML for notebooks: a title, a table of facts, and ``texts``, each folded under its name.

    It takes its colours from the notebook, so it is light or dark as that is.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts
    )
    folded = "".join(
        f"<details><summary>{escape(name)}</summary>"
        f'<pre style="max-height:30em;overflow:auto">{escape(text)}</pre></details>'
        for name, text in texts.items()
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table>{folded}</div>"
