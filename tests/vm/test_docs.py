"""What the README and the docs show is what happens; the paths they name exist; examples run.

A file's ``python`` blocks run in order in one namespace, each at its own lines of the file. A
``text`` block right after one is what it prints. In a ``console`` block, ``$ tilewright …`` and
``$ make demo`` are run, and the lines below are their output. In shown output ``…`` stands for
anything, and a time or a rate for any other. All of it happens in a process that sees no GPU:

    python tests/vm/test_docs.py README.md
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tilewright import cli

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
MEASURED = re.compile(r"\d[\d.]* (µs|ms|s|[GT]FLOP/s)\b")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
NAMED = re.compile(r"`(\w[\w./-]*(?:/|\.py|\.md|\.sh|\.cu|\.json|\.npz))`")


class Block(NamedTuple):
    """A fenced block: where its text begins (line), its language, its text."""

    line: int
    language: str
    text: str
    follows: bool  # right after the block before


def blocks(source: str) -> Iterator[Block]:
    end = -1
    for found in BLOCK.finditer(source):
        line = source.count("\n", 0, found.start(2)) + 1
        yield Block(line, found[1], found[2], found.start() == end + 1)
        end = found.end()


def matches(shown: str, printed: str) -> bool:
    """Whether the shown output is what was printed, ``…`` and measured numbers apart."""
    parts = []
    for piece in tidy(shown).split("…"):
        fixed = MEASURED.split(piece)[::2]
        parts.append(r"\d\S* (?:[mµ]?s|[kMGTP]?FLOP/s)".join(map(re.escape, fixed)))
    return re.fullmatch(".*".join(parts), tidy(printed), re.S) is not None


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def run_python(block: Block, file: Path, names: dict[str, Any]) -> str:
    """Execute a block as lines of its file, so that errors and ``.loc`` lead there; its stdout."""
    code = compile("\n" * (block.line - 1) + block.text, str(file), "exec")
    with redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()


def run_command(command: str) -> str | None:
    """The stdout of a command of ours; None for one that is not run here."""
    if command == "make demo":
        plan = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True)
        lines = plan.stdout.splitlines()
        command = next(line.partition("/bin/")[2] for line in lines if "/bin/tilewright" in line)
    program, *arguments = shlex.split(command)
    if program != "tilewright":
        return None
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        code = cli.main(arguments)
    assert code == 0, f"{command} ends with {code}:\n{out.getvalue()}"
    return out.getvalue()


def check(file: Path) -> None:
    """Run all that a file shows. AssertionError with the line where it shows something else."""
    names: dict[str, Any] = {"__name__": file.stem}
    printed = ""
    for block in blocks(file.read_text(encoding="utf-8")):
        where = f"{file.name}:{block.line}"
        if block.language == "python":
            printed = run_python(block, file, names)
        elif block.language == "text" and block.follows:
            assert matches(block.text, printed), f"{where} now prints:\n{printed}"
        elif block.language == "console":
            for session in block.text.split("$ ")[1:]:
                command, _, shown = session.partition("\n")
                output = run_command(command)
                assert output is None or matches(shown, output), f"{where} {command}:\n{output}"


def in_a_process_of_its_own(*command: str | Path) -> None:
    """Run Python in the repository, seeing no GPU; it has to end well."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("file", DOCS, ids=name_of)
def test_what_is_shown_happens(file: Path) -> None:
    in_a_process_of_its_own(__file__, file)


@pytest.mark.parametrize("file", EXAMPLES, ids=name_of)
def test_an_example_runs(file: Path) -> None:
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


if __name__ == "__main__":
    for given in sys.argv[1:]:
        check(Path(given).resolve())
