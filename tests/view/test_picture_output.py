"""Themes, legends and files of pictures, colours in terminals, notebook views."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright
from error_messages import raises_message
from rows import every_row
from tilewright import mma, view
from tilewright.builder import f32, kernel, ptr
from tilewright.errors import LayoutError, MissingPackage
from tilewright.layout import Layout, Swizzle
from tilewright.view.output.picture_output import _dark_colour
from tilewright.view.palette import EIGHT, LANES
from tilewright.view.svg import FAINT, INK, PAPER

LAYOUT = Layout((8, 8), (8, 1))
WGMMA = mma.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@every_row("fill", [PAPER, *LANES, *EIGHT])
def test_dark_text_is_readable(fill: str) -> None:
    assert contrast(_dark_colour(INK), _dark_colour(fill)) > 4.5
    if fill == PAPER:
        assert contrast(_dark_colour(FAINT), _dark_colour(fill)) > 4.5


def test_a_theme_changes_colours_only() -> None:
    light, dark = view.draw(LAYOUT, bits=16), view.draw(LAYOUT, bits=16, theme="dark")
    colour = re.compile(r"#[0-9a-f]{6}")
    assert colour.sub("", light) == colour.sub("", dark)
    fills = {c: _dark_colour(c) for c in set(colour.findall(light))}
    assert set(colour.findall(dark)) == set(fills.values()) and len(set(fills.values())) == len(
        fills
    )
    with raises_message(LayoutError, "theme must be light or dark"):
        view.draw(LAYOUT, theme="sepia")


@every_row(
    ("given", "how", "says"),
    [
        (LAYOUT, {"bits": 16}, "banks 28–31"),
        (LAYOUT, {}, "offsets 7, 15, 23, …"),
        (Swizzle(3, 4, 3), {}, "offsets 0, 8"),
        (mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), {}, "T28–T31"),
        (WGMMA, {}, "B: row 7 of each core matrix"),
    ],
)
def test_legends(given: Any, how: dict[str, Any], says: str) -> None:
    plain, drawn = view.draw(given, **how), view.draw(given, legend=True, **how)
    assert says in drawn and says not in plain
    heights = [float(re.findall(r'height="([\d.]+)"', svg)[0]) for svg in (plain, drawn)]
    last = max(float(y) for y in re.findall(r'<text x="30" y="([\d.]+)"', drawn))
    assert heights[0] < last < heights[1]


def test_wgmma_operands_have_colours() -> None:
    """A row of a core matrix of B is 16 bytes along K: 8 elements of bf16."""
    svg = view.draw(WGMMA)
    assert "core matrix (0, 1), row 5: column 5, rows 8..15" in svg
    assert all(svg.count(f'fill="{c}"') for c in EIGHT)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svg = view.draw(LAYOUT, file=tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == svg
    with raises_message(LayoutError, r"must end in \.svg, \.png, \.pdf"):
        view.draw(LAYOUT, file=tmp_path / "x.jpg")
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with raises_message(MissingPackage, "pip install cairosvg"):
        view.draw(LAYOUT, file=tmp_path / "x.png")
    assert [p.name for p in tmp_path.iterdir()] == ["x.svg"]


def test_png_and_pdf(tmp_path: Path) -> None:
    pytest.importorskip("cairosvg")
    for suffix, head in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        view.draw(LAYOUT, file=tmp_path / f"x{suffix}", theme="dark", legend=True)
        assert (tmp_path / f"x{suffix}").read_bytes().startswith(head)


def test_colour_in_terminals(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    plain, coloured = (view.layout_text(LAYOUT, colour=c) for c in (False, True))
    assert coloured.count("\x1b[0m") == 64
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    fragment = WGMMA.fragment("d")
    for colour in (False, True):
        text = view.tv_text(fragment.layout, (fragment.rows, fragment.columns), colour=colour)
        assert ("\x1b[" in text) == colour
    for terminal, no_colour, expected in (
        (True, "", coloured),
        (True, "1", plain),
        (False, "", plain),
    ):
        monkeypatch.setenv("NO_COLOR", no_colour)
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        view.print_layout(LAYOUT)
        assert capsys.readouterr().out == expected


@pytest.mark.vm
def test_notebook_views() -> None:
    @kernel(block=32)
    def ones(k, x: ptr(f32)):
        x[k.tid.x] = 1.0

    traced, machine = ones.trace(), tilewright.vm.Machine(checked=True)
    machine.load(traced.module)
    plan = tilewright.plan(64, 64, 64, device="vm")
    for value, says in (
        (traced, "kernel ones"), (traced.module, "PTX version"), (machine, "ones"),
        (plan, "64×64×64"),
    ):  # fmt: skip
        html = value._repr_html_()
        assert says in html and html.startswith("<div>") and html.endswith("</div>")
        assert (".visible .entry" in html or ".entry" in html) == (value is not machine)
