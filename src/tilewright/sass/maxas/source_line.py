"""A line of a maxas file with its origin, so that errors name the line that the user wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import SassError, SourceLocation

_COMMENT = re.compile(r"(?:#|//).*")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """``number`` is the 1-based line in ``file``; of generated text, the line of its tag."""

    text: str
    number: int
    file: str

    @property
    def bare(self) -> str:
        """The text without comment and outer blanks."""
        return _COMMENT.sub("", self.text).strip()

    def error(self, message: str, hint: str = "") -> SassError:
        """A SassError located at this line."""
        width = max(1, len(self.text.strip()))
        column = 1 + len(self.text) - len(self.text.lstrip())
        place = SourceLocation(self.file, self.number, column, self.text, width)
        return SassError(message, location=place, hint=hint)

    def with_text(self, text: str) -> SourceLine:
        """Another text of the same origin."""
        return SourceLine(text, self.number, self.file)


def source_lines(text: str, file: str) -> list[SourceLine]:
    """The lines of a text."""
    return [SourceLine(line, i, file) for i, line in enumerate(text.split("\n"), 1)]


def joined(lines: Iterable[SourceLine]) -> str:
    """The lines as a text."""
    return "\n".join(line.text for line in lines)
