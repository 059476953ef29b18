"""Pages: each step knows where every element of its tile is; the file is whole in itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any
from zlib import decompress

import numpy as np
import pytest
from hypothesis import given

from layout_strategies import layouts
from pictures import HALF, LOAD, VOLTA, WGMMA, overlaps
from tilewright.errors import LayoutError
from tilewright.layout import Layout, Swizzle, make_identity_layout, make_tensor
from tilewright.mma import CopyAtom, MmaAtom, TiledMma, make_tiled_mma
from tilewright.mma.tiles.atom import CpAsync
from tilewright.mma.tiles.smem_layout import make_smem_layout
from tilewright.mma.tiles.tiled_copy import make_tiled_copy, make_tiled_copy_A, make_tiled_copy_B
from tilewright.mma.tiles.tiled_mma import SIDES
from tilewright.view import OperandPath, Stage, page
from tilewright.view.pages.page_content import followed, held, mma_fragment, sizes_of
from tilewright.view.pages.page_steps import PageStep

SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SWIZZLED = Layout.parse("Sw<3,3,3> o (64,64):(64,1)")
MMA = make_tiled_mma(HALF, (2, 2, 1), (32, 32, 16))
COPY = make_tiled_copy(CopyAtom(CpAsync(16), "f16"), Layout((32, 4), (4, 1)), Layout((1, 8)))


def operand_path(smem: Any, load: Any) -> OperandPath:
    return OperandPath(Layout((128, 32), (4096, 1)), COPY, smem, load(LOAD, MMA))


def stage(smem: Any = None) -> Stage:
    smem = smem or make_smem_layout("f16", "K", (128, 32))
    return Stage(MMA, operand_path(smem, make_tiled_copy_A), operand_path(smem, make_tiled_copy_B))


def cells(step: PageStep) -> dict[int, tuple[str, ...]]:
    """Place → the texts of the cell there."""
    r, columns, found = step.grid.runs, step.grid.columns.count, {}
    for i, (row, column, n) in enumerate(zip(r.row, r.column, r.length, strict=True)):
        for k in range(n):
            place = (row + k) * columns + column if r.down else row * columns + column + k
            found[int(place)] = tuple(line[i] for line in step.grid.lines)
    return found


def within(text: str, coordinates: list[int]) -> bool:
    """Whether ``3,8–15`` names the coordinates."""
    spans = [part.split("–") for part in text.split(",")]
    return all(int(s[0]) <= c <= int(s[-1]) for s, c in zip(spans, coordinates, strict=True))


def coordinates(step: PageStep) -> list[list[int]]:
    return np.array(step.tile.coordinates()).T.tolist()


# --- layouts -------------------------------------------------------------------------------------

followable = layouts().filter(lambda layout: layout.size() <= 2048)


@given(followable)
def test_offsets_and_memory(layout: Layout) -> None:
    offsets, memory = followed(layout, 16).steps
    assert offsets.facts["offset"].tolist() == layout.indices().tolist()
    named = cells(memory)
    for crd, place, offset in zip(
        coordinates(memory), memory.places[:, 0].tolist(), layout.indices().tolist(), strict=True
    ):
        row, column = divmod(place, 64)
        assert 2 * (offset - column) == int(memory.grid.rows.label(row))  # the line's address
        if len(set(layout.indices().tolist())) == layout.size():
            assert within(named[place][0], crd)


def test_a_swizzle_in_words() -> None:
    before, after, _ = followed(SWIZZLED, 16).steps
    element = 3 + 64 * 5
    assert before.facts["before"][element] == 197
    assert [int(after.facts[name][element]) for name in ("read", "was", "becomes", "offset")] == [
        3, 0, 3, 221,
    ]  # fmt: skip
    assert "in the bits 8–6" in after.says and "in 5–3" in after.says


@pytest.mark.parametrize("given", [
    Layout(100, 3), Layout((4, 8, (2, 3))), Layout((4, 4), (-4, -1)), Layout((8, 8), (0, 0)),
    Layout((64, 64), (1 << 20, 1 << 10)), make_identity_layout((4, (2, 3))), Swizzle(3, 4, 3),
    Swizzle(2, 0, -3), Layout.parse("Sw<2,1,3> o 6 o (4,4):(8,1)"),
    Layout.parse("(4,8):(8,1) o 2 o (2,2):(1,16)"), Layout(1, 0),
    MmaAtom(VOLTA), MmaAtom(WGMMA), MmaAtom(WGMMA, "rmem"), make_tiled_mma(SPARSE), LOAD, COPY,
    make_tiled_copy_B(LOAD, MMA), MmaAtom(HALF).instruction,
])  # fmt: skip
def test_a_page_of_everything(given: Any) -> None:
    for bits in (0, 4, 16):
        html = page(given, bits=bits)
        assert len(html) < 300_000
        for svg in re.findall(r"<svg.*?</svg>", html, re.S):
            assert not overlaps(svg)
        for step in unpacked(html):
            assert np.prod(step["sizes"]) * step["copies"] == step["places"].size
            assert step["places"].max() < step["rows"] * step["columns"]
            assert set(re.findall(r"{(\w+)}", step["says"])) <= {*step["names"], *step["facts"]}


def test_far_offsets_are_exact() -> None:
    offsets, memory = unpacked(page(Layout((4, 8), (1 << 40, 1 << 36)), bits=16))
    assert offsets["facts"]["offset"][3 + 4 * 7] == (3 << 40) + (7 << 36)
    assert memory["places"].max() < 32 * 64


def unpacked(html: str) -> list[dict[str, Any]]:
    """The steps as the script has them."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', html).group(1))
    packed = decompress(b64decode(data["numbers"]))
    numbers = np.frombuffer(packed, "<f8" if data["wide"] else "<i4").cumsum().astype(int)
    for step in data["steps"]:
        size = int(np.prod(step["sizes"]))
        start = step["places"]
        step["places"] = numbers[start : start + size * step["copies"]]
        step["facts"] = {n: numbers[at : at + size] for n, at in step["facts"].items()}
    return data["steps"]


# --- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiled", [
    MMA, make_tiled_mma(VOLTA, (2, 2)), make_tiled_mma(SPARSE, (1, 2)),
    make_tiled_mma("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", (2, 1, 2)),
    make_tiled_mma(HALF, (2, 1, 1), (Layout((2, 16), (16, 1)), None, None)),
    make_tiled_mma(MmaAtom(WGMMA, "rmem"), (2, 1, 1)),
])  # fmt: skip
@pytest.mark.parametrize("times", [1, 2])
def test_who_holds_what_is_what_partitions_say(tiled: TiledMma, times: int) -> None:
    for name in "AC":
        sizes = tuple(times * s for s in sizes_of(tiled, name))
        found = held(tiled, name, sizes)
        tile = make_tensor(np.arange(found.thread.size), Layout(sizes))
        for thread in (0, 5 % tiled.size, int(found.thread.max())):
            part = getattr(tiled.thr_slice(thread), f"partition_{name}")(tile)
            assert found.elements[thread].tolist() == [int(x) for x in part.elements()]
        rows = range(found.thread.size)
        assert (found.elements[found.thread, found.value] == rows).all()


@pytest.mark.parametrize("opcode", [HALF, SPARSE, VOLTA])
def test_an_atom_alone_is_its_own_tile(opcode: str) -> None:
    for name in SIDES:
        found = held(make_tiled_mma(opcode), name, sizes_of(make_tiled_mma(opcode), name))
        assert found.place.tolist() == list(range(found.place.size))


def test_registers_and_the_instruction() -> None:
    """Lane 4g + q of m16n8k16 holds A(g, 2q + 9) in the upper half of register 2."""
    a, registers, inside, *_ = followed(MMA).steps
    element = (16 + 3) + 32 * (2 * 1 + 9)  # in the second warp along M
    assert int(a.facts["thread"][element]) == 32 + 4 * 3 + 1
    assert [int(registers.facts[n][element]) for n in ("register", "low", "high")] == [2, 16, 31]
    assert [int(inside.facts[n][element]) for n in ("row", "column", "warp")] == [3, 11, 1]
    place = divmod(int(registers.places[element, 0]), registers.grid.columns.count)
    assert place == (45, 5)
    assert within(cells(registers)[int(registers.places[element, 0])][0], [19, 11])
    assert a.places[element, 0] == 19 * 16 + 11


def test_b_is_drawn_as_the_product_has_it() -> None:
    step = next(s for s in followed(MMA).steps if s.group == "B")
    n, k = 9, 5
    assert step.places[n + 32 * k, 0] == k * 32 + n
    assert step.grid.rows.count == 16 and step.grid.columns.count == 32
    assert mma_fragment(MMA, "B").shape == (16, 32)


# --- a stage -------------------------------------------------------------------------------------


def test_a_stage_from_memory_to_the_instruction() -> None:
    steps = followed(stage()).steps
    titles = [step.heading for step in steps if step.group == "A"]
    assert titles == [
        "A: in global memory", "A: who copies what", "A: after the swizzle", "A: memory",
        "A: who loads what", "A: who holds what", "A: in registers", "A: in the instruction",
    ]  # fmt: skip
    assert steps[-1].heading == "C: who accumulates what"
    assert "256 sectors of 32 bytes, the minimum" in steps[0].about
    assert "no conflicts" in steps[1].about and "no conflicts" in steps[4].about
    element = 37 + 128 * 13
    assert steps[0].facts["offset"][element] == 37 * 4096 + 13
    assert steps[1].facts["thread"][element] == (37 % 32) * 4 + 13 // 8
    assert len(page(stage())) < 320_000


def test_a_stage_with_conflicts_says_so() -> None:
    plain = followed(stage(Layout((128, 32), (32, 1)))).steps
    assert "without conflicts" in next(s for s in plain if "loads" in s.title).about


def test_wgmma_reads_shared_memory() -> None:
    tiled = make_tiled_mma(MmaAtom(WGMMA), (2, 1, 1))
    smem = make_smem_layout("f16", "K", (128, 32))
    b = OperandPath(Layout((32, 32), (4096, 1)), COPY, make_smem_layout("f16", "K", (32, 32)))
    steps = followed(Stage(tiled, OperandPath(Layout((128, 32), (4096, 1)), COPY, smem), b)).steps
    assert [s.title for s in steps if s.group == "A"][-2:] == ["memory", "in the instruction"]
    assert "reads it as A({row},{column})" in [s for s in steps if s.group == "A"][-1].says


# --- the file ------------------------------------------------------------------------------------


def test_the_page_allows_its_own_script_and_style_alone() -> None:
    html = page(SWIZZLED, "<b>&", bits=16)
    policy = unescape(re.search(r'Content-Security-Policy" content="(.*?)"', html).group(1))
    for kind, tag in (("style", "style"), ("script", "script")):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)[0]
        hashed = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{hashed}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "<title>&lt;b&gt;&amp;</title>" in html
    assert not re.search(r'(?:src|href)="(?!#)|url\(|@import|\son\w+=|\sstyle=', html)
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_a_notebook_shows_pages() -> None:
    for shown in (SWIZZLED, MMA, COPY, stage()):
        assert shown._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html')
    assert Layout((4, 8))._repr_html_() is None
    assert Layout.parse("Sw<3,3,3> o (4096,64):(64,1)")._repr_html_() is None  # the picture is


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: page(5.0), "expected a layout, .* or Stage, got 5.0"),
        (lambda: page(Layout((1024, 1024))), "at most 16384 elements, got 1048576"),
        (lambda: page(Layout(4), bits=-3), "bits must be 1 to 1024"),
        (lambda: page(Layout(4, 1 << 60)), "must be at most 4503599627370496"),
        (
            lambda: OperandPath(Layout((64, 32)), COPY, Layout((32, 64))),
            "same two-dimensional tile",
        ),
        (
            lambda: OperandPath(Layout((64, 32, 2)), COPY, Layout((64, 32, 2))),
            "same two-dimensional tile",
        ),
        (
            lambda: Stage(MMA, operand_path(Layout((128, 32)), make_tiled_copy_A),
                          OperandPath(Layout((128, 64)), COPY, Layout((128, 64)))),
            "must have the same K",
        ),
    ],
)  # fmt: skip
def test_misuse(make: Any, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        make()


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --virtual-time-budget=4000""".split()


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_in_a_browser(tmp_path: Path) -> None:
    """The script runs under the page's policy, marks the first element and says where it is."""
    file = tmp_path / "page.html"
    file.write_text(page(SWIZZLED, bits=16), encoding="utf-8")
    command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'user'}", "--dump-dom", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert "(64,64):(64,1) maps (3,5) to 197" in ran.stdout
    assert "197 becomes 221: byte 442, bank 14" in ran.stdout
    assert len(re.findall(r'class="one"', ran.stdout)) == 3
    assert re.findall(r'id="element">(.*?)<', ran.stdout) == ["i = 3, j = 5"]
