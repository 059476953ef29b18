"""LaTeX as CuTe's ``print_latex`` arranges it: nodes at (row, column), A left of C, B above, a
copy's destination right of its source. What CuTe's C++ printed is kept as digests of its nodes.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import pytest

from pictures import HALF, LOAD, VOLTA
from tilewright.errors import LayoutError
from tilewright.layout import Layout, make_identity_layout
from tilewright.mma import MmaAtom, make_tiled_mma
from tilewright.mma.tiles.atom import CpAsync
from tilewright.mma.tiles.tiled_copy import CopyAtom, make_tiled_copy, make_tiled_copy_A
from tilewright.view import latex, print_latex, tv_latex

NODE = re.compile(r"\\node\[fill=c(\d)\] at \((-?\d+),(-?\d+)\) \{(.*)\};")
MARKUP = re.compile(r"[\\{} ]|shortstack|Large|texttt")
GRID = re.compile(r"\((-?\d+),(-?\d+)\) grid \((-?\d+),(-?\d+)\)")


def nodes(text: str) -> dict[tuple[int, int], tuple[int, str]]:
    """(row, column) → colour and what is written."""
    short = text.replace(r"\shortstack{", "").replace(r" \\ ", "").replace("}};", "};")
    return {(int(r), int(c)): (int(colour), label) for colour, r, c, label in NODE.findall(short)}


def grids(text: str) -> set[tuple[int, ...]]:
    return {tuple(map(int, grid)) for grid in GRID.findall(text)}


MMA4 = make_tiled_mma(HALF, (2, 2, 1), (32, 32, 16))
COPY = make_tiled_copy(CopyAtom(CpAsync(16), "f16"), Layout((16, 8), (8, 1)), Layout((1, 8)))


@pytest.mark.parametrize(
    ("given", "count", "digest"),
    [
        (Layout.parse("Sw<2,0,3> o (8,8):(8,1)"), 80, "80f7af10c9ad8d58"),
        (make_tiled_mma(HALF), 568, "70df9a00eee46c6f"),
        (MMA4, 2144, "54021269069af92c"),
        (make_tiled_mma(VOLTA), 152, "189357327ea7af55"),
        (COPY, 2208, "744e2456feb481a6"),
        (make_tiled_copy_A(LOAD, MMA4), 1120, "9658e9f12be0b8de"),
    ],
)
def test_nodes_are_those_of_cute(given: Any, count: int, digest: str) -> None:
    """Of all nodes (elements and numbers of rows and columns): place and text."""
    found = re.findall(r"at \((-?\d+),(-?\d+)\) \{(.*)\};", latex(given))
    plain = [(int(r), int(c), MARKUP.sub("", text)) for r, c, text in found]
    assert len(plain) == count
    assert sha256(repr(sorted(plain)).encode()).hexdigest().startswith(digest)


def test_a_layout() -> None:
    layout = Layout.parse("Sw<2,0,3> o (8,8):(8,1)")
    shown = nodes(latex(layout))
    assert shown == {
        (r, c): (layout(r, c) % 8, str(layout(r, c))) for r in range(8) for c in range(8)
    }
    assert grids(latex(layout)) == {(0, 0, 8, 8)}


def test_a_product() -> None:
    text = latex(make_tiled_mma(HALF))
    assert grids(text) == {(0, 0, 16, 8), (0, -17, 16, -1), (-17, 0, -1, 8)}
    shown = nodes(text)
    assert len(shown) == 16 * 8 + 16 * 16 + 16 * 8
    assert shown[11, 3] == (5, "T13V3")  # C: lane 4g + q has rows g, g + 8, columns 2q, 2q + 1
    assert shown[11, 3 - 17] == (5, "T13V3") and shown[3, 9 - 17] == (4, "T12V5")
    assert shown[1 - 17, 2] == (0, "T8V1")  # B: column 2, k = 1
    assert nodes(latex(MmaAtom(HALF))) == shown


def test_a_copy() -> None:
    text = latex(COPY)
    assert grids(text) == {(0, 0, 16, 64), (0, 67, 16, 131)}
    shown = nodes(text)
    assert len(shown) == 2 * 16 * 64
    assert shown[3, 9] == shown[3, 9 + 67] == (25 % 8, "T25V1")
    assert r"\node at (3,131) {\Large\texttt{3}};" in text


def test_an_atom_of_ldmatrix() -> None:
    shown = nodes(latex(LOAD))
    assert shown[5, 7] == (5, "T5V7") and shown[8, 11 + 3] == (1, "T1V3")


def test_threads_and_values_of_a_tile() -> None:
    shown = nodes(tv_latex(Layout((4, 2), (1, 16)), (8, 8)))
    assert shown == {
        (t, 2 * v): (t, f"T{t}V{v}") for t in range(4) for v in range(2)
    }  # other elements are held by nobody


def test_planes_and_coordinates() -> None:
    assert grids(latex(Layout((2, 3, 2)))) == {(0, 0, 2, 3), (0, 5, 2, 8)}
    assert nodes(latex(make_identity_layout((2, 3))))[1, 2] == (5, "(1,2)")


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    print_latex(Layout(4))
    assert capsys.readouterr().out == latex(Layout(4))


def test_a_document_is_whole() -> None:
    text = latex(make_tiled_mma(HALF))
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert text.count("{") == text.count("}")


def test_misuse() -> None:
    with pytest.raises(LayoutError, match="expected a layout, atom, TiledMma or TiledCopy, got"):
        latex(HALF)
