"""Pictures by thread and value: each element names those who hold it, as the layouts say."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import compact_layouts
from pictures import HALF, LOAD, VOLTA, WGMMA, overlaps, texts, titles
from tilewright.errors import LayoutError
from tilewright.layout import Layout, composition, make_identity_layout, make_tensor
from tilewright.mma import (
    ROWS,
    CopyAtom,
    MmaAtom,
    MmaInstruction,
    TiledCopy,
    TiledMma,
    make_tiled_mma,
)
from tilewright.mma.tiles.atom import CpAsync, UniversalCopy
from tilewright.mma.tiles.tiled_copy import make_tiled_copy, make_tiled_copy_A
from tilewright.view import (
    draw,
    draw_copy_atom,
    draw_tiled_copy,
    draw_tiled_mma,
    draw_tv,
    latex,
    page,
)

TITLE = re.compile(r"row (\d+), column (\d+): (?:nobody|(?:thread|lane) .*)")
HOLDER = re.compile(r"(?:thread|lane) (\d+), value (\d+)")


def held(shown_titles: list[str]) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """Element → who hold it, as the cells of a picture of single elements say."""
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for title in shown_titles:
        row, column = map(int, TITLE.fullmatch(title).groups())
        assert (row, column) not in found
        found[row, column] = {(int(t), int(v)) for t, v in HOLDER.findall(title)}
    return found


def expected(
    layout: Layout, rows: int, columns: int
) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """The same from the layout, one (thread, value) at a time."""
    made: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for t in range(layout.size(0)):
        for v in range(layout.size(1)):
            column, row = divmod(layout(t, v), rows)
            made[row, column].add((t, v))
    return {(r, c): made[r, c] for r in range(rows) for c in range(columns)}


@given(compact_layouts(shape=((4, 2), (2, 3))))
def test_each_element_names_its_holder(layout: Layout) -> None:
    svg = draw_tv(layout, (6, 8), grain="element")
    assert held(titles(svg)) == expected(layout, 6, 8)
    assert not overlaps(svg)


@given(st.integers(0, 2), st.integers(0, 4), st.integers(0, 8))
def test_tiles_with_holes_and_copies(a: int, b: int, c: int) -> None:
    layout = Layout(((2, 2), 3), ((a, b), c))
    svg = draw_tv(layout, (5, 5), grain="element")
    assert held(titles(svg)) == expected(layout, 5, 5)
    assert not overlaps(svg)


def test_places_may_be_coordinates() -> None:
    order = Layout(((2, 4), (2, 2)), ((8, 1), (4, 16)))
    coordinates = composition(make_identity_layout((4, 8)), order)
    shown_titles = titles(draw_tv(coordinates, (4, 8)))
    assert shown_titles == titles(draw_tv(order, (4, 8)))
    assert "row 1, column 0: lane 2, value 0" in shown_titles


@pytest.mark.parametrize("tiled", [
    TiledMma(MmaAtom(HALF)),
    make_tiled_mma(HALF, (2, 2, 1), (32, 32, 16)),
    make_tiled_mma(VOLTA, (2, 2)),
    make_tiled_mma("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"),
    make_tiled_mma("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", (2, 1, 2)),
    make_tiled_mma(MmaAtom(WGMMA, "rmem"), (2, 1, 1)),
])  # fmt: skip
def test_products(tiled: TiledMma) -> None:
    """B stands above C and is K×N, A at the left; C's holders are those of its layout."""
    svg = draw_tiled_mma(tiled, grain="element")
    m, n, k = tiled.tile_size_mnk
    shown = texts(svg)
    assert {f"A {m}×{k}", f"B {k}×{n}", f"C {m}×{n}"} <= set(shown)
    shown_titles = [t for t in titles(svg) if TITLE.fullmatch(t)][-m * n :]
    assert held(shown_titles) == expected(tiled.layout_C_TV(), m, n)
    assert not overlaps(svg)


@pytest.mark.parametrize("i", ROWS[::193], ids=str)
def test_any_instruction(i: MmaInstruction) -> None:
    svg = draw(MmaAtom(i))
    assert not overlaps(svg)
    assert f"C {i.m}×{i.n}" in texts(svg)
    assert page(i) and latex(i)


@pytest.mark.slow
def test_operands_in_shared_memory_are_drawn_whole() -> None:
    svg = draw_tiled_mma(make_tiled_mma(MmaAtom(WGMMA)))
    assert sum("in shared memory" in text for text in texts(svg)) == 2
    assert {"T0–127", "V0–63", "V0–15"} <= set(texts(svg))
    assert not overlaps(svg)


@pytest.mark.parametrize("copy", [
    make_tiled_copy(CopyAtom(CpAsync(16), "f16"), Layout((16, 8), (8, 1)), Layout((1, 8))),
    make_tiled_copy(CopyAtom(UniversalCopy(32), "f32"), Layout((8, 4)), Layout((2, 1))),
    make_tiled_copy_A(LOAD, make_tiled_mma(HALF, (2, 1, 1))),
])  # fmt: skip
def test_copies(copy: TiledCopy) -> None:
    svg = draw_tiled_copy(copy, grain="element")
    rows, columns = copy.tiler_mn
    shown_titles = titles(svg)
    half = len(shown_titles) // 2
    assert held(shown_titles[:half]) == expected(copy.layout_S_TV(), rows, columns)
    assert held(shown_titles[half:]) == expected(copy.layout_D_TV(), rows, columns)
    assert not overlaps(svg) and not overlaps(draw_tiled_copy(copy))


def test_an_atom_of_ldmatrix() -> None:
    """Lane 5 reads line 5; of matrix 1, line 0 goes two by two to lanes 0 to 3."""
    shown_titles = titles(draw_copy_atom(LOAD))
    assert "row 5, column 7: lane 5, value 7" in shown_titles[:256]
    assert "row 8, column 3: lane 1, value 3" in shown_titles[256:]


def test_what_is_drawn() -> None:
    for atom in (MmaAtom(HALF), LOAD, make_tiled_mma(HALF), Layout((4, 8)), Layout((4, 8))[0]):
        assert atom._repr_svg_().startswith("<svg")
    assert make_tensor(np.arange(12).reshape(3, 4))._repr_svg_() == draw(Layout((3, 4), (4, 1)))
    assert MmaAtom(HALF)._repr_svg_() == make_tiled_mma(HALF)._repr_svg_()


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda: draw_tv(Layout((4, 8)), (4, 4)), "must stay in the tile 4×4, got index 31"),
        (lambda: draw_tv(Layout((4, 2), (-1, 4)), (4, 4)), "got index -3"),
        (lambda: draw_tv(Layout((2, 2, 2)), (4, 4)), r"must have two modes, got \(2,2,2\)"),
        (lambda: draw_tv(Layout(4), (4, 4)), "two modes"),
        (lambda: draw_tv(Layout((4, 4)), (4, 4), grain="run"), "grain must be one of"),
        (lambda: draw_tiled_mma(HALF), "expected a TiledMma"),
        (lambda: draw_tiled_copy(LOAD), "expected a TiledCopy"),
        (lambda: draw_copy_atom(HALF), "expected a CopyAtom"),
    ],
)
def test_misuse(draw: Any, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        draw()
