"""Tables of offsets, to the letter as CuTe's C++ ``print_layout`` prints them.

``tests/data/cute_print_layout.txt`` is what it printed (CUTLASS 4.2, nvcc 13.0), a blank line
between layouts; the first line of each is the layout.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import LayoutError
from tilewright.layout import Layout, make_identity_layout
from tilewright.view import layout_text, print_layout

GOLDEN = Path(__file__).parents[1] / "data" / "cute_print_layout.txt"
PRINTED = GOLDEN.read_text().split("\n\n")


@pytest.mark.parametrize("printed", PRINTED, ids=lambda p: p.partition("\n")[0])
def test_as_cute_prints_it(printed: str) -> None:
    layout = Layout.parse(printed.partition("\n")[0])
    assert layout_text(layout) == printed.rstrip("\n") + "\n"


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    print_layout(Layout((2, 3)))
    assert capsys.readouterr().out == layout_text(Layout((2, 3)))


def test_one_mode_is_a_column() -> None:
    assert layout_text(Layout(2, 5)).splitlines() == [
        "_2:_5", "      0 ", "    +---+", " 0  | 0 |", "    +---+", " 1  | 5 |", "    +---+",
    ]  # fmt: skip


def test_a_table_for_each_coordinate_of_further_modes() -> None:
    lines = layout_text(Layout((2, 2, (2, 1)))).splitlines()
    assert [line for line in lines if line.startswith("(_,")] == ["(_,_,(0,0))", "(_,_,(1,0))"]
    assert " 1  | 5 | 7 |" in lines


def test_coordinates() -> None:
    assert " 1  | (1,0) | (1,1) |" in layout_text(make_identity_layout((2, 2)))


def test_dynamic_numbers_are_refused() -> None:
    class Number:
        def __mul__(self, other: object) -> Number:
            return self

    with pytest.raises(LayoutError, match="dynamic"):
        layout_text(Layout((2, 2), (1, Number())))
