"""The lexer: tokens of PTX text by one compiled regular expression, and a cursor with one token of
lookahead.

The recursive descent reads the cursor: ``value`` and ``kind`` are the next token, ``start`` and
``end`` its offsets. Kinds are ``word`` (an opcode with all its modifiers is one word),
``directive`` (``.reg``), ``int``, ``float``, ``string``, ``punct``, ``end``. Text that is not a
token, and a token that the parser does not expect, raise PtxSyntaxError with the line and a caret.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ...errors import PtxSyntaxError, SourceLocation

# Only single characters have possessive quantifiers: Python before 3.11.5 matches ``(?:…)*+``
# wrongly where a turn fails half-way, so a group that must not give back is ``(?>(?:…)*)``.
_COMMENT = r"/\*[^*]*+\*++(?>(?:[^/*][^*]*+\*++)*)/"
SPACE = rf"(?>(?:\s++|//[^\n]*+|{_COMMENT})*)"
NAME = r"(?:[A-Za-z_$]|%[\w$])[\w$]*+"
_WORD = NAME + r"(?>(?:(?:\.|::)[\w$]++)*)"
_HEX_FLOAT = r"0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b"
_FLOAT = _HEX_FLOAT + r"|(?:\d++\.\d*+|\.\d++)(?>(?:[eE][+-]?\d++)?)|\d++[eE][+-]?\d++"
_INT = r"(?:0[xX][0-9a-fA-F]++|0[bB][01]++|\d++)U?+"
_PUNCT = r"<<|>>|<=|>=|==|!=|&&|\|\||\.\.\.|/(?!\*)|[,;:(){}\[\]<>=+\-*%!~&|^?@]"
_TOKEN = re.compile(
    rf"(?P<float>{_FLOAT})|(?P<int>{_INT})(?![\w$])|(?P<word>{_WORD})"
    rf'|(?P<directive>\.{NAME}(?>(?:::\w++)*))|(?P<string>"[^"\n]*+")|(?P<punct>{_PUNCT})',
    re.ASCII,
)
_SPACE = re.compile(SPACE)


class Cursor:
    """A position in a text, with one token of lookahead."""

    __slots__ = ("end", "kind", "last", "path", "start", "text", "value")

    def __init__(self, text: str, path: str = "<ptx>", offset: int = 0) -> None:
        self.text = text
        self.path = path
        self.value = self.kind = ""
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Let the next token be the first one at or after ``offset``."""
        self.end = offset
        self.advance()

    def advance(self) -> str:
        """Step over the next token and return it."""
        taken = self.value
        self.last = self.end
        self.start = _SPACE.match(self.text, self.end).end()  # type: ignore[union-attr]
        found = _TOKEN.match(self.text, self.start)
        if found is not None:
            self.kind, self.value, self.end = found.lastgroup or "", found.group(), found.end()
        elif self.start == len(self.text):
            self.kind, self.value, self.end = "end", "", self.start
        else:
            self._fail_at_character()
        return taken

    def _fail_at_character(self) -> NoReturn:
        rest = self.text[self.start : self.start + 2]
        self.value, self.end = rest[0], self.start + 1
        known = {"/*": "unterminated comment", '"': "unterminated string"}
        why = known.get(rest) or known.get(rest[0]) or f"unexpected character {rest[0]!r}"
        if rest[0].isdigit():
            why = "malformed number"
        self.fail(why)

    # --- taking tokens ---
    def accept(self, value: str) -> bool:
        """Step over the next token if it is ``value``."""
        if self.value != value or self.kind == "string":
            return False
        self.advance()
        return True

    def expect(self, value: str, after: str = "") -> None:
        """Step over ``value``; anything else is an error."""
        if not self.accept(value):
            self.fail(f"expected {value!r}{' ' + after if after else ''}, got {self.describe()}")

    def take(self, kind: str, describe: str) -> str:
        """Step over a token of a kind and return it; ``describe`` names it in the error."""
        if self.kind != kind:
            self.fail(f"expected {describe}, got {self.describe()}")
        return self.advance()

    def name(self, describe: str = "a name") -> str:
        """Step over a plain name: a word without dots."""
        if self.kind == "word" and ("." in self.value or ":" in self.value):
            self.fail(f"expected {describe}, got {self.describe()}")
        return self.take("word", describe)

    def integer(self, describe: str = "an integer") -> int:
        if self.kind == "int" and integer(self.value) is None:
            self.fail(f"{describe} must have at most 64 bits, got {self.value:.40}")
        return integer(self.take("int", describe)) or 0

    # --- errors ---
    def describe(self) -> str:
        """The next token in words."""
        return "the end of the text" if self.kind == "end" else repr(self.value)

    def fail(self, message: str, offset: int | None = None, hint: str = "") -> NoReturn:
        """Raise a PtxSyntaxError at the next token, or at ``offset``."""
        at = self.start if offset is None else offset
        width = max(1, min(self.end - self.start, 40)) if offset is None else 1
        raise PtxSyntaxError(
            message, location=SourceLocation.at(self.text, at, self.path, width), hint=hint
        )


def integer(literal: str) -> int | None:
    """The value of an integer literal: decimal, ``0x``, ``0b``, octal with a leading 0, with or
    without ``U``.

    None where it has more than 64 bits or is malformed (``08``).
    """
    digits = literal.rstrip("U").lower()
    octal = digits[0] == "0" and digits.isdigit()
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        return None
    return value if value < 1 << 64 else None
