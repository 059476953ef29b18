"""Tags of a maxas file that are replaced by text: INCLUDE, COMMENT, CODE, ``[+ +]``, ``[- -]`` and
CONSTANT_MAPPING, in this order. REGISTER_MAPPING and SCHEDULE_BLOCK stay for ``kernel_source``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from .meta_programs import MetaPrograms
from .source_line import SourceLine, joined, source_lines

_INCLUDE = re.compile(r'[\t ]*<INCLUDE\s+file="([^"]+)"\s*/?>')
_INLINE = re.compile(r"\[([+-])(.+?)\1\]", re.DOTALL)
_CONSTANT = re.compile(r"\w+(?:\[\d+\])?")
_DEPTH = 16  # of files that include files, and of programs that return CODE blocks

Loader = Callable[[str], str]  # the text of an included file; raises OSError or UnicodeError


def folder_loader(folder: Path) -> Loader:
    """A loader of files as named, else from ``folder``, as maxas searches them."""

    def load(name: str) -> str:
        path = Path(name)
        return (path if path.is_file() else folder / path).read_text(encoding="utf-8")

    return load


def expand(
    lines: list[SourceLine], programs: MetaPrograms, load: Loader | None
) -> list[SourceLine]:
    """The lines after all tags but REGISTER_MAPPING and SCHEDULE_BLOCK.

    Raises SassError for unclosed tags, files that can't be read, and programs that fail.
    """
    lines = _included(lines, load, 0)
    lines = list(_replaced(lines, "COMMENT", lambda tag, body: []))
    for _ in range(_DEPTH):
        lines = list(_replaced(lines, r"CODE\d*", lambda tag, body: _run(tag, body, programs)))
        if not any(_opening(line, r"CODE\d*") for line in lines):
            break
    lines = _inlined(lines, programs)
    constants: dict[str, str] = {}

    def note(tag: SourceLine, body: list[SourceLine]) -> list[SourceLine]:
        constants.update(constant_mapping(body))
        return []

    lines = list(_replaced(lines, "CONSTANT_MAPPING", note))
    return [_with_constants(line, constants) for line in lines] if constants else lines


def _included(lines: list[SourceLine], load: Loader | None, depth: int) -> list[SourceLine]:
    out: list[SourceLine] = []
    for line in lines:
        found = _INCLUDE.match(line.text)
        if found is None:
            out.append(line)
            continue
        if load is None or depth >= _DEPTH:
            reason = "no folder to read from" if load is None else f"{_DEPTH} nested files"
            raise line.error(f"an included file must be readable, got {reason}: {found[1]}")
        try:
            text = load(found[1])
        except (OSError, UnicodeError, ValueError) as error:
            raise line.error(f"an included file must be readable, got {error}") from error
        out += _included(source_lines(text, found[1]), load, depth + 1)
    return out


def _opening(line: SourceLine, tag: str) -> re.Match[str] | None:
    return re.match(rf"[\t ]*<({tag})(?:\s[^>]*)?>(.*)", line.text)


Replacement = Callable[[SourceLine, list[SourceLine]], list[SourceLine]]


def _replaced(lines: list[SourceLine], tag: str, make: Replacement) -> Iterator[SourceLine]:
    """The lines with each block of a tag replaced by what ``make`` returns of its body."""
    for item in blocks(lines, tag):
        if isinstance(item, SourceLine):
            yield item
        else:
            yield from make(*item)


def blocks(
    lines: list[SourceLine], tag: str
) -> Iterator[SourceLine | tuple[SourceLine, list[SourceLine]]]:
    """The lines, and (line of the tag, lines inside) for each block. Raises SassError for a tag
    that is not closed, or closed without being open.
    """
    at = 0
    while at < len(lines):
        first = lines[at]
        found = _opening(first, tag)
        at += 1
        if found is None:
            if re.match(rf"\s*</({tag})>", first.text):
                raise first.error(f"a tag must be open before it is closed, got {first.bare}")
            yield first
            continue
        close = re.compile(rf"\s*</{found[1]}>(.*)")
        body = [first.with_text(found[2])] if found[2].strip() else []
        while at < len(lines) and not close.match(lines[at].text):
            body.append(lines[at])
            at += 1
        if at == len(lines):
            raise first.error(f"<{found[1]}> must be closed by </{found[1]}>, got the end of file")
        yield first, body
        at += 1


def _run(tag: SourceLine, body: list[SourceLine], programs: MetaPrograms) -> list[SourceLine]:
    first = body[0] if body else tag
    made = programs.block(joined(body), first)
    return [SourceLine(t, tag.number, tag.file) for t in made.removesuffix("\n").split("\n")]


def _inlined(lines: list[SourceLine], programs: MetaPrograms) -> list[SourceLine]:
    """Programs in the midst of lines; their text belongs to the line on which they begin."""
    text = joined(lines)
    if not _INLINE.search(text):
        return lines
    out: list[SourceLine] = []
    index, rest, end = 0, "", 0

    def push(piece: str, moves: bool) -> None:
        nonlocal rest, index
        *whole, last = piece.split("\n")
        for part in whole:
            out.append(lines[min(index, len(lines) - 1)].with_text(rest + part))
            rest = ""
            index += moves
        rest += last

    for found in _INLINE.finditer(text):
        push(text[end : found.start()], True)
        line = lines[index]
        if found[1] == "+":
            push(programs.expression(found[2], line), False)
        else:
            programs.statements(found[2], line)
        index += found[0].count("\n")
        end = found.end()
    push(text[end:], True)
    out.append(lines[min(index, len(lines) - 1)].with_text(rest))
    return out


def constant_mapping(body: list[SourceLine]) -> dict[str, str]:
    """Names of constants: ``name : c[0x0][0x140]``. Raises SassError for other lines."""
    found: dict[str, str] = {}
    for line in body:
        if not line.bare:
            continue
        name, colon, value = (part.strip() for part in line.bare.partition(":"))
        if not colon or not value or not _CONSTANT.fullmatch(name):
            raise line.error(f"a constant must be like name : c[0x0][0x140], got {line.bare!r:.60}")
        if name in found:
            raise line.error(f"a constant must be defined once, got {name}")
        found[name] = value
    return found


def _with_constants(line: SourceLine, constants: dict[str, str]) -> SourceLine:
    if not line.bare:
        return line
    return line.with_text(_CONSTANT.sub(lambda m: constants.get(m[0], m[0]), line.text))
