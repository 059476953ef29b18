"""Pictures are well-formed, show each element once and where it is, and stay small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest

from tilewright import mma, notebook_display
from tilewright.errors import LayoutError
from tilewright.mma import Fragment
from tilewright.view import draw_fragment, draw_instruction
from tilewright.view.fragment_cells import GRAINS, cells
from tilewright.view.palette import HUES, LANES
from tilewright.view.svg import Picture, escape

SVG = "{http://www.w3.org/2000/svg}"
HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FP4 = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)
WIDE = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
TITLE = re.compile(
    r"(?:product (\d+), )?rows? (\d+)(?:\.\.(\d+))?, columns? (\d+)(?:\.\.(\d+))?: (.*)"
)
HELD = re.compile(r"(?:lane|thread) (\d+), registers? (\d+)(?:\.\.\d+)?(?:, bits? (\d+))?")


@cache
def fragments() -> tuple[Fragment, ...]:
    """Every fragment of every form; of wgmma's widths the smallest."""
    found = {}
    for i in mma.ROWS:
        narrow = replace(i, n=8) if i.asynchronous else i
        for name in narrow.operands:
            if not (i.asynchronous and name == "b"):
                f = narrow.fragment(name)
                found.setdefault((f.shape, f.layout, f.tiles, f.bits, f.low, f.dtype.bits), f)
    return tuple(found.values())


def titles(svg: str) -> list[str]:
    """What the cells of a picture say."""
    return [t.text for p in ElementTree.fromstring(svg).iter(SVG + "path") for t in p]


def elements(title: str) -> Iterator[tuple[int, ...]]:
    """The elements that a cell says it is: (product, row, column)."""
    tile, row, last_row, column, last_column, _ = TITLE.fullmatch(title).groups()
    for r in range(int(row), int(last_row or row) + 1):
        for c in range(int(column), int(last_column or column) + 1):
            yield int(tile or 0), r, c


@pytest.mark.parametrize("grain", GRAINS)
def test_each_element_is_shown_once(grain: str) -> None:
    for f in fragments():
        shown = [e for title in titles(draw_fragment(f, grain=grain)) for e in elements(title)]
        assert len(set(shown)) == len(shown) == np.prod(f.shape), f


@pytest.mark.parametrize("grain", GRAINS)
def test_a_cell_says_who_holds_it(grain: str) -> None:
    for f in fragments():
        where = f.coordinates()
        for title in titles(draw_fragment(f, grain=grain))[::7]:
            first = next(elements(title))[3 - len(where) :]
            holders = HELD.findall(title)
            assert len(holders) == f.copies
            for thread, register, bit in holders:
                value = (int(register) * f.word + int(bit or f.low) - f.low) // f.bits
                assert tuple(int(x[int(thread), value]) for x in where) == first, title


def test_a_cell_as_the_manual_has_it() -> None:
    """PTX manual, fragments of m16n8k16: a2 and a3 are row g + 8, b2 and b3 rows 2q + 8 and on."""
    title = titles(draw_instruction(mma.find(HALF)))
    assert "row 11, column 3: lane 13, register 1, bits 16..31" in title
    assert "row 8, column 3: lane 12, register 1, bits 0..15" in title
    assert "row 11, column 2: lane 13, register 2, bits 0..31" in title


def test_neighbours_share_a_cell() -> None:
    a = mma.find("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc").fragment("a")
    assert "row 0, columns 32..63: lane 1, register 0, bits 0..31" in titles(draw_fragment(a))
    assert len(cells(a)) == 128 and len(cells(a, "element")) == 16 * 256


def test_copies_are_named() -> None:
    metadata = mma.find("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32").fragment("metadata")
    assert (
        "row 0, columns 0..7: lane 0, register 0, bits 0..15; lane 2, register 0, bits 0..15"
        in titles(draw_fragment(metadata, grain="register"))
    )


def test_bits_that_fp4_leaves_free() -> None:
    """PTX manual, kind::f8f6f4: e2m1 is in the middle four bits of a byte."""
    i = mma.find("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32")
    title = titles(draw_fragment(i.fragment("a"), grain="element"))
    assert "row 0, column 1: lane 0, register 0, bits 10..13" in title


@pytest.mark.parametrize(
    ("opcode", "words"),
    [
        (HALF, ("A 16×16 f16", "B 16×8 f16", "C and D 16×8 f32", "bits on sm_90a: verified")),
        (FP4, ("scales of A 16×4 ue4m3", "scales of B 4×8 ue4m3", "published, not verified")),
        (WIDE, ("B 16×256", "in shared memory, by its descriptor", "C and D 64×256 f32")),
        ("wmma.mma.sync.aligned.row.row.m16n16k16.f16.f32", ("C 16×16 f32", "D 16×16 f16")),
        (
            "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
            ("metadata 16×16 b2", "1 register a lane, each element 2 times"),
        ),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", ("A 4 of 8×4 f16",)),
    ],
)
def test_an_instruction_names_its_operands(opcode: str, words: tuple[str, ...]) -> None:
    tree = ElementTree.fromstring(draw_instruction(mma.find(opcode)))
    texts = [text.text for text in tree.iter(SVG + "text")]
    assert opcode in texts
    for word in words:
        assert any(word in text for text in texts), word


def test_nothing_leaves_the_paper() -> None:
    for i in (mma.find(HALF), mma.find(FP4)):
        tree = ElementTree.fromstring(draw_instruction(i))
        left, top, width, height = map(float, tree.get("viewBox").split())
        for text in tree.iter(SVG + "text"):
            assert left <= float(text.get("x")) <= left + width
            assert top <= float(text.get("y")) <= top + height


def test_two_lines_of_text_fit_into_every_cell() -> None:
    for opcode in (HALF, FP4, "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"):
        cells_of = re.findall(r'd="M\d+ \d+h(\d+)v(\d+)', draw_instruction(mma.find(opcode)))
        assert all(int(wide) >= 17 and int(high) >= 24 for wide, high in cells_of)


def test_large_pictures_stay_small() -> None:
    assert len(draw_instruction(mma.find(WIDE))) < 2_000_000
    wide = mma.find(WIDE).fragment("d")
    assert len(cells(wide)) == 64 * 256 // 2
    assert len(draw_fragment(wide, hover=False)) < len(draw_fragment(wide)) / 2


def test_an_unknown_grain() -> None:
    for draw in (lambda: draw_instruction(mma.find(HALF), grain="byte"),
                 lambda: draw_fragment(mma.find(HALF).fragment("a"), grain="byte")):  # fmt: skip
        with pytest.raises(
            LayoutError, match="grain must be one of element, register, thread, got"
        ):
            draw()


def test_text_is_escaped() -> None:
    to = Picture('<"&')
    to.text(0, 10, "a < b & \x00c")
    tree = ElementTree.fromstring(to.render())
    assert [t.text for t in tree.iter(SVG + "text")] == ["a < b & c"]
    assert tree.find(SVG + "title").text == '<"&'
    assert escape("'\"<>&") == "&#x27;&quot;&lt;&gt;&amp;"


def luminance(colour: str) -> float:
    """Of WCAG 2: 0 black, 1 white."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_lane_has_its_colour_and_text_on_it_is_read() -> None:
    assert len(set(LANES)) == 32
    for quad in range(len(HUES)):
        tints = [luminance(c) for c in LANES[4 * quad : 4 * quad + 4]]
        assert tints == sorted(tints, reverse=True)
    assert min((luminance(c) + 0.05) / 0.06 for c in LANES) >= 7  # contrast with #1a1a1a


def test_a_notebook_shows_instructions_and_fragments() -> None:
    i = mma.find(HALF)
    assert i._repr_svg_() == draw_instruction(i)
    assert i.fragment("a")._repr_svg_() == draw_fragment(i.fragment("a"))


def test_what_nobody_draws_has_no_picture() -> None:
    class Plain(notebook_display.Drawable):
        pass

    assert Plain()._repr_svg_() is None
    notebook_display.register_renderer(Plain)(lambda _: "<svg/>")
    assert Plain()._repr_svg_() == "<svg/>"
