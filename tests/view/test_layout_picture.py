"""Pictures of layouts: each coordinate once, with its offset and bank; text never overlaps."""

from __future__ import annotations

import re
from ast import literal_eval
from time import thread_time
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given

from examples import examples
from layout_strategies import layouts
from pictures import SVG, overlaps, texts, titles
from tilewright.errors import LayoutError
from tilewright.layout import Layout, Swizzle, idx2crd, make_identity_layout, make_tensor
from tilewright.layout.int_tuple import text
from tilewright.view import draw_layout
from tilewright.view.layout_picture import CELLS, corner
from tilewright.view.layout_planes import plane

SAID = re.compile(r"(\S+): offset (-?\d+)(?:, inside (-?\d+))?(?:, bytes? (\d+)\S*, bank (\d+))?")
RUN = re.compile(r"(\S+)(?: … (\S+))?: offset (-?\d+)(?:\.\.(-?\d+))?")


def titles_of(svg: str) -> dict[str, re.Match[str]]:
    """Coordinate → what the cell says."""
    found = [SAID.fullmatch(title) for title in titles(svg)]
    return {m.group(1): m for m in found}


small = layouts().filter(lambda layout: plane(layout).shape == corner(layout, CELLS))


@given(small)
def test_every_coordinate_once(layout: Layout) -> None:
    shown = titles_of(draw_layout(layout))
    one = len(layout) == 1  # a coordinate is that of its mode
    shape = layout[0].shape if one else layout.shape
    domain = [idx2crd(i, shape) for i in range(layout.size())]
    assert {crd: int(m.group(2)) for crd, m in shown.items()} == {
        text(c): layout[0](c) if one else layout(c) for c in domain
    }


@given(small)
def test_runs_are_the_same_elements(layout: Layout) -> None:
    shown: list[int] = []
    for title in titles(draw_layout(layout, grain="run")):
        low, high = RUN.fullmatch(title).groups()[2:]
        shown += range(int(low), int(high or low) + 1)
    assert sorted(shown) == sorted(layout.indices().tolist())


@examples(40)
@given(layouts())
def test_text_never_overlaps(layout: Layout) -> None:
    assert not overlaps(draw_layout(layout, bits=16))


@pytest.mark.parametrize("notation", [
    "(128,64):(64,1)", "((4,2,2),(2,(2,4))):((1,64,8),(4,(16,128)))", "100:3",
    "(4,8,(2,3)):(8,1,(64,9))", "1:0", "(3,4):(4,-1)", "(1,4096):(1,1)", "(4096,4096):(4096,1)",
    "(2,(128,128)):(1,(2,256))",
])  # fmt: skip
def test_no_overlap_in_shapes_of_all_kinds(notation: str) -> None:
    for grain in ("", "run"):
        assert not overlaps(draw_layout(Layout.parse(notation), grain=grain))


def test_short_runs_among_long_ones_have_room() -> None:
    layout = Layout(((8, 4), 16), ((1, 1000), 8))
    assert not overlaps(draw_layout(layout, grain="run"))
    assert not overlaps(draw_layout(Layout.parse("Sw<3,0,3> o (16,64):(64,1)"), grain="run"))


def test_a_swizzle_and_its_banks() -> None:
    """The 16-byte pieces of eight rows of 128 bytes, permuted: column j of row i is piece i ^ j."""
    layout = Layout.parse("Sw<3,3,3> o (8,64):(64,1)")
    shown = titles_of(draw_layout(layout, bits=16))
    assert len(shown) == 512
    for crd, m in shown.items():
        row, column = literal_eval(crd)
        offset, before, byte, bank = map(int, m.groups()[1:])
        assert (offset, before) == (layout(row, column), 64 * row + column)
        assert byte == 2 * offset and bank == byte // 4 % 32
        assert bank // 4 == row ^ column // 8


def test_a_swizzle_alone_shows_all_that_it_does() -> None:
    for swizzle in (Swizzle(3, 4, 3), Swizzle(2, 0, 5), Swizzle(2, 3, -3), Swizzle(0, 4, 3)):
        shown = titles_of(draw_layout(swizzle, grain="element"))
        moved = {swizzle(1 << i) ^ (1 << i) for i in range(12)} - {0}
        differ = [int(m.group(2)) ^ int(m.group(3) or m.group(2)) for m in shown.values()]
        assert moved <= set(differ) <= {sum(s) for s in subsets(moved)}


def subsets(of: set[int]) -> list[list[int]]:
    made: list[list[int]] = [[]]
    for x in of:
        made += [[*s, x] for s in made]
    return made


def test_elements_wider_and_narrower_than_a_bank() -> None:
    assert "b0–1" in texts(draw_layout(Layout(4), bits=64))
    assert "b30–31" in texts(draw_layout(Layout(16), bits=64))
    assert [t for t in texts(draw_layout(Layout(16), bits=4)) if t.startswith("b")] == (
        ["b0"] * 8 + ["b1"] * 8
    )
    assert "3: offset 3, bits 12..15, bank 0" in titles(draw_layout(Layout(4), bits=4))


def test_axes_name_the_blocks_of_nested_modes() -> None:
    shown = texts(draw_layout(Layout(((2, 2), (4, (2, 3))))))
    assert {"(_,0)", "(_,1)", "(_,(0,0))", "(_,(1,2))"} <= set(shown)


def test_planes_of_a_third_mode() -> None:
    shown = texts(draw_layout(Layout((4, 8, (2, 3)))))
    assert {"(_,_,(0,0))", "(_,_,(1,2))"} <= set(shown)
    assert [t for t in texts(draw_layout(Layout((2, 2, 3)))) if "_" in t] == [
        "(_,_,0)", "(_,_,1)", "(_,_,2)",
    ]  # fmt: skip


def test_a_long_mode_is_drawn_in_lines() -> None:
    svg = draw_layout(Layout(100, 3))
    assert {c: int(m.group(2)) for c, m in titles_of(svg).items()} == {
        str(i): 3 * i for i in range(100)
    }
    assert "64" in texts(svg)


def test_coordinates_instead_of_offsets() -> None:
    svg = draw_layout(make_identity_layout((4, (2, 3))))
    assert "(3,(1,2)) is mapped to (3,(1,2))" in titles(svg)
    assert "(3,(1,2))" in texts(svg)


def test_of_a_layout_without_end_a_corner() -> None:
    svg = draw_layout(Layout((1 << 40, 1 << 30)))
    assert "the first 128×128 of 1099511627776×1073741824" in "".join(texts(svg))
    assert len(svg) < 3_000_000


def test_of_long_runs_more_is_drawn() -> None:
    svg = draw_layout(Layout.parse("Sw<3,4,3> o (256,128):(128,1)"), bits=8)
    assert len(titles(svg)) == 256 * 8
    assert "256×128, offsets 0 … 32767" in "".join(texts(svg))


def test_a_tensor_and_a_shape() -> None:
    tensor = make_tensor(np.arange(12).reshape(3, 4))
    assert draw_layout(tensor) == draw_layout(Layout((3, 4), (4, 1)))
    assert draw_layout((3, 4)) == draw_layout(Layout((3, 4)))
    assert titles(draw_layout(())) == ["(0,0): offset 0"]


@pytest.mark.parametrize(
    ("given", "how", "why"),
    [
        (5.0, {}, "expected a layout, got 5.0"),
        (Layout((4, object.__new__(type("N", (), {"__mul__": lambda a, b: a})))), {}, "dynamic"),
        (Layout(4), {"grain": "bank"}, "grain must be one of element, run"),
        (Layout(4), {"bits": -1}, "bits must be 1 to 1024"),
        (Layout(4), {"bits": 2.5}, "bits must be 1 to 1024"),
    ],
)
def test_misuse(given: Any, how: Any, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        draw_layout(given, **how)


def test_a_picture_is_soon_made() -> None:
    layout = Layout.parse("Sw<3,3,3> o (128,64):(64,1)")
    times = []
    for _ in range(8):
        start = thread_time()
        draw_layout(layout, bits=16)
        times.append(thread_time() - start)
    assert min(times) < 0.06  # seconds of CPU; 12 ms on a core of its own


def test_a_picture_is_well_formed_and_needs_nothing_else() -> None:
    svg = draw_layout(Layout.parse("Sw<2,3,3> o ((8,2),32):((32,256),1)"), "<&>", bits=16)
    tree = ElementTree.fromstring(svg)
    assert tree.find(SVG + "title").text == "<&>"
    assert not re.search(r"href|url\(|<script|<style", svg)
