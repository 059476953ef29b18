"""A small SVG writer: shapes and text in painting order, and text widths.

Lengths are pixels. A picture sets its own background, font and sizes, so that it looks the same in
a browser, a notebook and print, with light and dark themes. It has no style sheet, no script and no
external resources.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as _escape

INK, FAINT, LINE, SHADE, PAPER = "#1a1a1a", "#5f5f5f", "#8a8a8a", "#eeeeee", "#ffffff"
FONT = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
ADVANCE = 0.62  # width of a monospaced character, as a share of its size


def escape(text: object) -> str:
    """Escape text for content or attributes; control characters, invalid in XML, are dropped."""
    plain = "".join(c for c in str(text) if c >= " " or c in "\t\n")
    return _escape(plain)


def text_width(text: str, size: float) -> int:
    """The width of a line of text."""
    return -int(-len(text) * size * ADVANCE // 1)


def number(value: float) -> str:
    """A number as text, as short as possible: ``12``, ``12.5``."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


class Picture:
    """An SVG document that grows with its contents; ``render`` returns its text."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.width = self.height = 0.0
        self._parts: list[str] = []

    def paint(self, parts: Iterable[str]) -> None:
        """Append markup unchanged."""
        self._parts.extend(parts)

    def reach(self, x: float, y: float) -> None:
        """Extend the picture to at least (x, y)."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        *,
        ink: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """A line of text whose baseline is at y."""
        more = f' text-anchor="{anchor}"' * (anchor != "start") + ' font-weight="bold"' * bold
        more += f' fill="{ink}"' * (ink != INK)
        place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
        self._parts.append(f"<text {place}{more}>{escape(text)}</text>")
        share = {"start": 1.0, "middle": 0.5, "end": 0.0}[anchor]
        self.reach(x + share * text_width(text, size), y + size / 3)

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str = "none", line: str = LINE
    ) -> None:
        """A rectangle with its outline."""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self._parts.append(f'<rect {place} fill="{fill}" stroke="{line}"/>')
        self.reach(x + width, y + height)

    def markup(self) -> str:
        """The shapes and texts, without a document around them."""
        return "\n".join(self._parts)

    def render(self, margin: int = 12) -> str:
        """The document, with a margin on all sides."""
        width, height = (number(-int(-x // 1) + 2 * margin) for x in (self.width, self.height))
        box = f"{-margin} {-margin} {width} {height}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="{box}" font-family="{escape(FONT)}" fill="{INK}">'
        )
        title = f"<title>{escape(self.title)}</title>" if self.title else ""
        paper = f'<rect x="{-margin}" y="{-margin}" width="100%" height="100%" fill="{PAPER}"/>'
        return "\n".join([head + title, paper, *self._parts, "</svg>\n"])
