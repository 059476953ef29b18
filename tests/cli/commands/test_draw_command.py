"""``tilewright draw``: the pictures of ``view``, files, and errors of wrong arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rows import every_row
from tilewright.cli import main
from tilewright.layout import Layout, Swizzle
from tilewright.mma import (
    CopyAtom,
    CpAsync,
    MmaAtom,
    UniversalCopy,
    fragment_move,
    instruction,
    make_tiled_copy,
    make_tiled_mma,
)
from tilewright.view import draw, draw_tv, latex, layout_text, page, tv_text

pytestmark = pytest.mark.vm

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
FRAGMENT = "wmma.load.a.sync.aligned.row.m16n16k16.f16"
TILED = make_tiled_mma(HALF, (2, 2, 1), (32, None, 16))
COPY = make_tiled_copy(CopyAtom(CpAsync(16), "f16"), Layout((16, 8), (8, 1)), Layout((1, 8)))

DRAWN = {
    ("(_4,_8):(_8,_1)",): Layout((4, 8), (8, 1)),
    ("(4,8)",): Layout((4, 8)),
    ("Sw<3,4,3>",): Swizzle(3, 4, 3),
    ("Sw<2,1,3> o 2 o (4,8):(8,1)",): Layout.parse("Sw<2,1,3> o 2 o (4,8):(8,1)"),
    (HALF,): instruction(HALF),
    (LOAD,): CopyAtom(fragment_move(LOAD), "b16"),
    (FRAGMENT,): fragment_move(FRAGMENT).fragment,
    ("--mma", HALF, "--atoms", "2,2,1", "--permutation", "32", "_", "16"): TILED,
    ("--mma", HALF, "--atoms", "(2,2,1):(2,1,0)"): make_tiled_mma(
        HALF, Layout((2, 2, 1), (2, 1, 0))
    ),
    ("--mma", WGMMA, "--a-from", "rmem"): make_tiled_mma(MmaAtom(WGMMA, "rmem")),
    ("--copy", "cp.async.16", "--threads", "(16,8):(8,1)", "--values", "(1,8)", "--type", "f16"): (
        COPY
    ),
    ("--copy", "128", "--type", "f32"): CopyAtom(UniversalCopy(128), "f32"),
    ("--copy", LOAD): CopyAtom(LOAD, "b16"),
}


def run_cli(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``tilewright draw …``."""
    code = main(["draw", *arguments])
    return code, *capsys.readouterr()


@every_row("words", DRAWN, ids=" ".join)
@every_row(("ending", "form"), [("svg", draw), ("html", page), ("tex", latex)])
def test_files(capsys: Any, tmp_path: Path, words: tuple[str, ...], ending: str, form: Any) -> None:
    file = tmp_path / f"picture.{ending}"
    code, out, err = run_cli(capsys, *words, "-o", str(file))
    assert (code, err) == (0, "") and out.startswith("drawn")
    assert file.read_text(encoding="utf-8") == form(DRAWN[words])


def test_bits_and_title(capsys: Any) -> None:
    layout = Layout.parse("Sw<3,3,3> o (8,64):(64,1)")
    code, out, _ = run_cli(capsys, str(layout), "--bits", "16", "--title", "A", "-o", "-")
    assert (code, out) == (0, draw(layout, "A", bits=16))


def test_text_on_the_terminal(capsys: Any) -> None:
    assert run_cli(capsys, "(4,8):(8,1)") == (0, layout_text(Layout((4, 8), (8, 1))), "")
    assert run_cli(capsys, "--mma", HALF)[1] == f"{make_tiled_mma(HALF)}\n"
    assert run_cli(capsys, HALF)[1] == f"{MmaAtom(HALF)}\n"
    fragment = fragment_move(FRAGMENT).fragment
    assert run_cli(capsys, FRAGMENT)[1] == tv_text(fragment.layout, (16, 16))


def test_threads_and_values(capsys: Any, tmp_path: Path) -> None:
    layout = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    assert run_cli(capsys, str(layout), "--tv", "16,8")[1] == tv_text(layout, (16, 8))
    file = tmp_path / "tv.svg"
    assert run_cli(capsys, str(layout), "--tv", "16,8", "-o", str(file))[0] == 0
    assert file.read_text(encoding="utf-8") == draw_tv(layout, (16, 8))
    for ending in ("html", "tex"):
        file = tmp_path / f"tv.{ending}"
        assert run_cli(capsys, str(layout), "--tv", "16,8", "-o", str(file))[0] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "draw needs exactly one of a layout or opcode, --mma, --copy"),
        (("(4,8)", "--mma", HALF), "needs exactly one of"),
        (("(4,8):(8",), "expected ',' or ')', got the end"),
        (("mma.sync.m16n8k16.nothing",), "no"),
        (("(4,8)", "--atoms", "2,2,1"), "--atoms requires --mma"),
        (("--mma", HALF, "--tv", "4,4"), "--tv requires a layout"),
        (("--copy", "128", "--values", "2"), "--values requires --threads"),
        (("--copy", "100"), "power of two"),
        (("(4,8)", "-o", "x.jpg"), "'x.jpg' has no known suffix"),
        (("(4,8)", "-o", "x.tex", "--legend"), "--legend and --theme require .svg"),
        (
            ("(4,8)", "--bits", "-1", "-o", "x.svg"),
            "bits must be 1 to 1024, or 0 to show no banks, got -1",
        ),
        (("(4,8)", "--tv", "4,4"), "must stay in the tile 4×4, got index 31"),
        (("(4096,4096)", "-o", "x.html"), "at most 16384 elements, got 16777216"),
        (("(4096,4096)",), "at most 4194304 elements to show, got 16777216"),
        (("--mma", HALF, "--permutation", "24", "_", "_"), "permutation of M"),
    ],
)
def test_misuse(
    capsys: Any, monkeypatch: Any, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_cli(capsys, *words)
    assert code == 2 and out == "" and err.startswith("error: ") and why in err
    assert not list(tmp_path.iterdir())
