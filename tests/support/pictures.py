"""What a picture contains, for tests: texts with their boxes, titles; and examples to draw."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from xml.etree import ElementTree

from tilewright.mma import CopyAtom
from tilewright.view.svg import text_width

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
VOLTA = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
LOAD = CopyAtom("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "f16")

SVG = "{http://www.w3.org/2000/svg}"

Box = tuple[float, float, float, float]  # left, top, right, bottom


def titles(svg: str) -> list[str]:
    """What the cells of a picture say in a browser."""
    return [t.text for p in ElementTree.fromstring(svg).iter(SVG + "path") for t in p]


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ElementTree.fromstring(svg).iter(SVG + "text")]


def boxes(svg: str) -> list[tuple[Box, str]]:
    """Each text's box, and the text."""
    return list(_boxes(ElementTree.fromstring(svg), 12.0, "start"))


def _boxes(node: ElementTree.Element, size: float, anchor: str) -> Iterator[tuple[Box, str]]:
    size = float(node.get("font-size", size))
    anchor = node.get("text-anchor", anchor)
    if node.tag == SVG + "text" and node.text:
        x, y = float(node.get("x")), float(node.get("y"))
        width = float(node.get("textLength") or text_width(node.text, size))
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        yield (left, y - 0.75 * size, left + width, y + 0.2 * size), node.text
    for child in node:
        yield from _boxes(child, size, anchor)


def overlaps(svg: str) -> list[tuple[str, str]]:
    """Texts that overlap, or leave the paper."""
    found = []
    by_line: dict[float, list[tuple[Box, str]]] = {}
    every = boxes(svg)
    for box, text in every:
        by_line.setdefault(round(box[3], 1), []).append((box, text))
    lines = sorted(by_line)
    for line in lines:
        row = sorted(by_line[line])
        found += [(a[1], b[1]) for a, b in pairwise(row) if b[0][0] < a[0][2] - 0.5]
    for above, below in pairwise(lines):
        for a, b in _meeting(by_line[above], by_line[below]):
            found.append((a, b))
    return found + _outside(svg, every)


def _meeting(above: list[tuple[Box, str]], below: list[tuple[Box, str]]) -> list[tuple[str, str]]:
    """Texts of neighbouring lines whose boxes meet."""
    found = []
    for b, text in below:
        found += [
            (other, text)
            for a, other in above
            if a[3] > b[1] + 0.5 and a[0] < b[2] - 0.5 and b[0] < a[2] - 0.5
        ]
    return found


def _outside(svg: str, every: list[tuple[Box, str]]) -> list[tuple[str, str]]:
    left, top, width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split())
    return [
        (text, "outside")
        for a, text in every
        if a[0] < left or a[1] < top or a[2] > left + width or a[3] > top + height
    ]
