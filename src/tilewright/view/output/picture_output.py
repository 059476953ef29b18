"""What ``draw`` does with an SVG: a dark theme, a legend, and files of several formats."""

from __future__ import annotations

import colorsys
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...errors import LayoutError, MissingPackage
from ..svg import FAINT, Picture, number

THEMES = ("light", "dark")
SUFFIXES = (".svg", ".png", ".pdf")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)" viewBox="(-?\d+) (-?\d+) [\d.]+ [\d.]+"')
_DARKEST, _LIGHTEST = 0.09, 0.92  # lightness of a dark picture's paper and ink
_TEXT_LIMIT = 0.4  # of fills that were light: light text stays readable on them

Swatch = tuple[str, str]  # a colour, and what it means


@cache
def _dark_colour(colour: str) -> str:
    """The colour with its lightness inverted: paper is nearly black, ink nearly white, and tints
    are shades of the same hue.
    """
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(r, g, b)
    inverted = _DARKEST + (1 - light) * (_LIGHTEST - _DARKEST)
    if light > 0.5:
        inverted = _DARKEST + (1 - light) * _TEXT_LIMIT
    channels = colorsys.hls_to_rgb(hue, inverted, saturation * 0.8)
    return "#" + "".join(f"{round(255 * c):02x}" for c in channels)


def themed(svg: str, theme: str) -> str:
    """The picture in a theme. Raises LayoutError for another one than light and dark."""
    if theme not in THEMES:
        raise LayoutError(f"theme must be light or dark, got {theme!r:.40}")
    return svg if theme == "light" else _COLOUR.sub(lambda m: _dark_colour(m[0]), svg)


def with_legend(svg: str, title: str, swatches: Sequence[Swatch]) -> str:
    """The picture with a line for each colour below it."""
    found = _SIZE.search(svg)
    assert found is not None, "a picture has a size"
    width, height, left, top = (float(x) for x in found.groups())
    to, y = Picture(), height + top + 6
    to.text(0, y, title, 10, bold=True)
    for row, (colour, meaning) in enumerate(swatches):
        line = y + 8 + 18 * row
        to.rect(0, line, 22, 12, colour)
        to.text(30, line + 10, meaning, 10, ink=FAINT)
    wide, high = max(width, to.width - 2 * left), to.height - 2 * top
    size = f'width="{number(wide)}" height="{number(high)}"'
    box = f'viewBox="{number(left)} {number(top)} {number(wide)} {number(high)}"'
    body = svg.replace(found[0], f"{size} {box}", 1)
    return body.replace("</svg>", to.markup() + "\n</svg>")


def written(svg: str, file: str | os.PathLike[str]) -> None:
    """Write the picture to a file: SVG, PNG (at twice the size) or PDF, by its suffix.

    Raises LayoutError for another suffix, MissingPackage for PNG and PDF without cairosvg.
    """
    data = encoded(svg, os.fspath(file))
    with open(file, "wb") as stream:
        stream.write(data)


def encoded(svg: str, name: str) -> bytes:
    """The bytes of a file of this name. Errors as for ``written``."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in SUFFIXES:
        raise LayoutError(f"a picture's file must end in {', '.join(SUFFIXES)}, got {name!r:.80}")
    if suffix == ".svg":
        return svg.encode()
    try:
        import cairosvg
    except (ImportError, OSError) as error:  # OSError: the cairo library is missing
        raise MissingPackage(
            f"{suffix[1:].upper()} pictures need cairosvg: {error}",
            hint="pip install cairosvg, and the cairo library of the system; SVG needs neither",
        ) from error
    convert: Any = cairosvg.svg2png if suffix == ".png" else cairosvg.svg2pdf
    options = {"scale": 2} if suffix == ".png" else {}
    made: bytes = convert(bytestring=svg.encode(), **options)
    return made
