"""Pages of Markdown: what they show is run, and is what happens.

A file's ``python`` blocks run in order in one namespace, each at its own lines of the file. A
``text`` block right after one is what it prints. In a ``console`` block, ``$ tilewright …`` and
``$ make demo`` are run, and the lines below are their output; a backslash ends a line of a command
that goes on. In shown output ``…`` stands for anything, and a time or a rate for any other.

    python tests/support/pages.py README.md
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from tilewright import cli

ROOT = Path(__file__).parents[2]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
MEASURED = re.compile(r"\d[\d.]* (µs|ms|s|[GT]FLOP/s)\b")
MACHINE = 'device="vm"'  # in a section that needs the virtual machine


class Block(NamedTuple):
    """A fenced block: where its text begins (line), its language, its text."""

    line: int
    language: str
    text: str
    follows: bool  # right after the block before
    section: int


def blocks(source: str) -> Iterator[Block]:
    end = -1
    for found in BLOCK.finditer(source):
        line = source.count("\n", 0, found.start(2)) + 1
        section = source.count("\n## ", 0, found.start())
        yield Block(line, found[1], found[2], found.start() == end + 1, section)
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


def check(file: Path, machine: bool = True) -> None:
    """Run all that a file shows, or the sections that do without the virtual machine.

    AssertionError with the line where it shows something else.
    """
    names: dict[str, Any] = {"__name__": file.stem}
    printed = ""
    found = list(blocks(file.read_text(encoding="utf-8")))
    left_out = set() if machine else {block.section for block in found if MACHINE in block.text}
    for block in found:
        if block.section in left_out:
            continue
        where = f"{file.name}:{block.line}"
        if block.language == "python":
            printed = run_python(block, file, names)
        elif block.language == "text" and block.follows:
            assert matches(block.text, printed), f"{where} now prints:\n{printed}"
        elif block.language == "console":
            for session in block.text.replace("\\\n", "").split("$ ")[1:]:
                command, _, shown = session.partition("\n")
                output = run_command(command)
                assert output is None or matches(shown, output), f"{where} {command}:\n{output}"


if __name__ == "__main__":
    for given in sys.argv[1:]:
        check(Path(given).resolve())
