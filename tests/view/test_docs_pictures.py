"""Pages and pictures under docs/ are what their scripts make of the package as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import forked_scripts

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = {
    "isa": "scripts/isa_table.py", "layouts": "scripts/layout_pictures.py",
    "epilogues": "scripts/epilogue_pictures.py", "grouped": "scripts/grouped_pictures.py",
    "gemm": "scripts/stream_k_pictures.py", "sgemm": "scripts/sgemm_pictures.py",
}  # fmt: skip
# Bytes of pictures, at most.
BYTES = {
    "isa": 1_500_000, "layouts": 300_000, "epilogues": 50_000, "grouped": 20_000, "gemm": 10_000,
    "sgemm": 220_000,
}  # fmt: skip


@pytest.mark.parametrize("script", MADE.values())
def test_what_is_made_is_up_to_date(script: str) -> None:
    status, printed = forked_scripts.run(script, "--check")
    assert (status, printed) == (0, ""), f"run {script}; it would change:\n{printed}"


@pytest.mark.parametrize("name", MADE)
def test_every_picture_is_linked(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    linked = set(re.findall(rf"\({name}/([\w-]+\.svg)\)", page))
    assert linked == {path.name for path in (DOCS / name).glob("*.svg")}


@pytest.mark.parametrize("name", MADE)
def test_the_pictures_are_not_too_many(name: str) -> None:
    assert sum(path.stat().st_size for path in (DOCS / name).glob("*.svg")) < BYTES[name]
