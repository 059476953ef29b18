"""``tilewright layout``: facts, worked operations, costs of accesses, wrong arguments."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.cli import main
from tilewright.layout import Layout, analyze, complement, composition, explain, logical_divide

pytestmark = pytest.mark.vm

TILE, SWIZZLED = "(128,64):(64,1)", "Sw<3,3,3> o (128,64):(64,1)"
LINES = ("--tv", "((8,2,2),8):((1,8,1024),128)")


def run_cli(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``tilewright layout …``."""
    code = main(["layout", *arguments])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("text", ["(8,6):(8,1)", "(_8,_6):(_8,_1)", "Sw<3,3,3> o (64,8):(8,1)"])
def test_the_facts_are_the_analysis(capsys: Any, text: str) -> None:
    code, out, err = run_cli(capsys, text, "--bits", "16")
    assert (code, out, err) == (0, f"{analyze(Layout.parse(text), 16)}\n", "")


def test_a_composition_is_worked_first(capsys: Any) -> None:
    a, b = Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))
    code, out, _ = run_cli(capsys, f"{a} o {b}")
    assert code == 0 and out == f"{explain(composition, a, b)}\n\n{analyze(composition(a, b))}\n"
    code, out, _ = run_cli(capsys, "(4,6):(1,5) o 4:3")
    assert code == 0 and "is not a layout: stride 3 does not divide size 4\n\nlayout " in out


def test_operations_are_worked(capsys: Any) -> None:
    layout = Layout((9, (4, 8)), (59, (13, 1)))
    _, out, _ = run_cli(capsys, str(layout), "--divide", "3:3", "(2,4):(1,8)")
    assert out == f"{explain(logical_divide, layout, (Layout(3, 3), Layout((2, 4), (1, 8))))}\n"
    _, out, _ = run_cli(capsys, "(2,2):(1,6)", "--complement", "24")
    assert out == f"{explain(complement, Layout((2, 2), (1, 6)), 24)}\n"
    assert run_cli(capsys, "(9,4):(4,1)", "--divide", "_", "2")[1].endswith(
        "= (9,(2,2)):(4,(1,2))\n"
    )
    assert run_cli(capsys, "(8,4):(4,1)", "--inverse", "right")[1].endswith("= (4,8):(8,1)\n")


def test_bank_conflicts_and_sectors(capsys: Any) -> None:
    words = ("--bits", "16", "--shared", "ldmatrix.x4", *LINES)
    _, out, _ = run_cli(capsys, TILE, *words)
    assert out.splitlines()[:4] == [
        "shared    ldmatrix.x4 of 16 bytes, 1 request: 32 wavefronts, 4 without conflicts",
        "worst     warp 0, instruction 0",
        "lanes  wavefronts  banks  lanes with different words",
        "0-7    8           0-3    0 | 1 | 2 | 3 | 4 | 5 | 6 | 7",
    ]
    _, out, _ = run_cli(capsys, SWIZZLED, *words)
    assert out == "shared    ldmatrix.x4 of 16 bytes, 1 request: 4 wavefronts, no conflicts\n"
    _, out, _ = run_cli(capsys, "(32,4):(4,1)", "--bits", "32", "--global", "--vector", "8")
    assert out.startswith("global    ld of 8 bytes, 2 requests: 32 sectors of 32 bytes, ideal 16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("(8,6):(8,",), "    (8,6):(8,\n             ^"),
        (("Sw<3,4,3>",), "Sw<3,4,3> has no domain"),
        (("(8,6):(8,1)", "--shared"), "hint: add --bits 16"),
        (("(8,6):(8,1)", "--bits", "24"), "elements must have 1, 2, 4, … or 128 bits, got 24"),
        (
            ("(32,4):(4,1)", "--bits", "32", "--global", "ldmatrix.x4"),
            "does not access global memory",
        ),
        (("(4,4):(1,2)", "--inverse", "left"), "the stride of 4:2 overlaps the modes below"),
        (("(4,4):(1,2)", "--complement", "16"), "its mode 4:2 overlaps the modes below"),
    ],
)
def test_a_wrong_question_is_a_typed_error(capsys: Any, arguments: Any, message: str) -> None:
    code, _, err = run_cli(capsys, *arguments)
    assert code == 2 and err.startswith("error: ") and message in err
