"""What the README and the docs show is what happens; the paths they name exist; examples run.

All of it happens in a process that sees no GPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import forked_scripts
import pages
from pages import BLOCK, ROOT, matches

pytestmark = pytest.mark.vm

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
NAMED = re.compile(r"`(\w[\w./-]*(?:/|\.py|\.md|\.sh|\.cu|\.json|\.npz))`")


def in_a_process_of_its_own(script: str | Path, *arguments: str | Path) -> None:
    """Run a script in the repository, seeing no GPU; it has to end well."""
    status, printed = forked_scripts.run(script, *arguments)
    assert status == 0, printed[-6000:]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def skip_without_libraries(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if "import torch" in text:
        pytest.importorskip("torch")
    if "import jax" in text:
        pytest.importorskip("jax")


@pytest.mark.parametrize("file", DOCS, ids=name_of)
def test_what_is_shown_happens(file: Path) -> None:
    skip_without_libraries(file)
    in_a_process_of_its_own(pages.__file__, file)


@pytest.mark.parametrize("file", EXAMPLES, ids=name_of)
def test_an_example_runs(file: Path) -> None:
    skip_without_libraries(file)
    in_a_process_of_its_own(file, "vm")


@pytest.mark.parametrize("file", DOCS, ids=name_of)
def test_what_is_named_exists(file: Path) -> None:
    text = BLOCK.sub("", file.read_text(encoding="utf-8"))
    linked = [file.parent / found for found in LINK.findall(text)]
    named = [[r / n for r in (ROOT, ROOT / "src" / "tilewright")] for n in NAMED.findall(text)]
    assert not [path for path in linked if not path.exists()]
    assert not [either[0] for either in named if not any(path.exists() for path in either)]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a 1\nb", "a 1  \nb\n", True),
        ("a 1\nb", "a 1\nc\n", False),
        ("a …\nc", "a 1\nb\nc", True),
        ("time 62.1 ms, 4.3 GFLOP/s", "time 2 s, 812 MFLOP/s", True),
        ("time 62.1 ms, of 3", "time 62.1 ms, of 4", False),
    ],
)
def test_the_comparison_can_say_no(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
