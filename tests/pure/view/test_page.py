"""docs/isa.md and its pictures are what scripts/isa_table.py makes of the rows as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "isa"


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, "-B", "scripts/isa_table.py", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not ran.stderr
    assert ran.returncode == 0, f"run scripts/isa_table.py; it would change:\n{ran.stdout}"


def test_every_picture_is_linked() -> None:
    page = (ROOT / "docs" / "isa.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(isa/([\w-]+\.svg)\)", page))
    assert linked == {path.name for path in FOLDER.glob("*.svg")}


def test_the_pictures_are_not_too_many() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.svg")) < 1_500_000
