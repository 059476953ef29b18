"""An HTML page in one file, on which an element of a tile is traced through several steps with the
mouse or the keys. Each step describes where the marked element is.

The pictures are SVG and work without the script. The script reads the positions of elements from
packed numbers. The page has no external resources, and its content security policy allows only its
own script and style.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape as quoted
from importlib.resources import files
from typing import Any
from zlib import compress

import numpy as np

from ...errors import LayoutError
from ..compact_grid import element_of, paint_brief, shortened
from ..layout_planes import Array
from ..offset_grid import check_bits
from ..svg import Picture, escape
from .page_content import Followed, followed
from .page_steps import PageStep

KEYS = (
    "← → steps; shift with an arrow: the next element; a click pins the element under the mouse, "
    "escape lets it go."
)
FRAME = 720  # height of a page in a notebook, in pixels
EXACT = 1 << 52  # differences of numbers up to this are exact in JavaScript
START = (3, 5)  # the coordinates that are pinned initially, if the tile is large enough


def page(given: Any, title: str = "", *, bits: int = 0) -> str:
    """The HTML page that traces the elements of a layout (composed, of a tensor), a swizzle, an
    instruction, an atom, a TiledMma, a TiledCopy or a Stage of a GEMM.

    ``bits`` is the size of a layout's elements, from which banks are computed. Raises LayoutError
    for anything else, and for tiles of more than 16384 elements.
    """
    check_bits(bits)
    found = followed(given, bits)
    pack = Pack()
    steps = [_facts(step, pack) for step in found.steps]
    data = {"start": _start(found), "steps": steps, **pack.packed()}
    return _document(title or found.title, found, json.dumps(data, separators=(",", ":")))


def frame(given: Any) -> str:
    """The page as an iframe, for notebooks."""
    height = f"width:100%;height:{FRAME}px;border:0"
    return f'<iframe srcdoc="{quoted(page(given))}" style="{height}"></iframe>'


class Pack:
    """Integer arrays packed as text. Numbers are stored as differences, which compress well."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []
        self._count = 0

    def add(self, array: Array) -> int:
        """Add an array; returns its start."""
        start, self._count = self._count, self._count + array.size
        self._arrays.append(array.ravel())
        return start

    def packed(self) -> dict[str, Any]:
        """The numbers, and whether they are ``wide``: 64-bit floats instead of 32-bit integers."""
        numbers = np.concatenate(self._arrays)
        largest = int(np.abs(numbers).max())
        if largest > EXACT:
            raise LayoutError(f"numbers on a page must be at most {EXACT}, got {largest}")
        wide = largest >= 1 << 30
        more = np.diff(numbers, prepend=0).astype("<f8" if wide else "<i4")
        return {"numbers": b64encode(compress(more.tobytes(), 9)).decode(), "wide": wide}


def _facts(step: PageStep, pack: Pack) -> dict[str, Any]:
    """The data of a step for the script."""
    shown = shortened(step.grid)
    used = set(re.findall(r"{(\w+)}", step.says))
    return {
        "names": step.tile.names,
        "sizes": step.tile.sizes,
        "box": [*shown.corner, *element_of(shown)],
        "rows": step.grid.rows.count,
        "columns": step.grid.columns.count,
        "copies": step.places.shape[1],
        "places": pack.add(step.places),
        "says": step.says,
        "facts": {name: pack.add(fact) for name, fact in step.facts.items() if name in used},
    }


def _start(found: Followed) -> dict[str, int]:
    tile = found.steps[0].tile
    return {n: min(at, s - 1) for n, s, at in zip(tile.names, tile.sizes, START, strict=False)}


def _picture(step: PageStep) -> str:
    to = Picture()
    shown = shortened(step.grid)
    paint_brief(to, shown, element_of(shown))
    return to.render()


# --- the document --------------------------------------------------------------------------------


@cache
def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _document(title: str, found: Followed, data: str) -> str:
    style, script = _own("page.css"), _own("page.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    numbered = list(enumerate(found.steps, 1))
    sections = "\n".join(_section(n, step) for n, step in numbered)
    entries = "\n".join(_entry(n, step) for n, step in numbered)
    data = data.replace("<", "\\u003c")  # no text ends the element that holds it
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{quoted(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><p>{escape(found.about)}</p></header>
<main>
<aside>
<nav hidden><button id="previous" type="button">‹ previous</button>
<button id="next" type="button">next ›</button><output id="element"></output></nav>
<ol>
{entries}
</ol>
<p class="keys" hidden>{KEYS}</p>
</aside>
<div id="steps">
{sections}
</div>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _section(number: int, step: PageStep) -> str:
    head = f"<h2>{number}. {escape(step.heading)}</h2><p>{escape(step.about)}</p>"
    picture = f'<div class="picture">{_picture(step)}</div>'
    return f'<section id="step-{number}">{head}{picture}</section>'


def _entry(number: int, step: PageStep) -> str:
    name = f"{number}. {escape(step.heading)}"
    return f'<li><a href="#step-{number}">{name}</a><p></p></li>'
