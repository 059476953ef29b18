"""The parser of layout notation: this package's, ``Sw<3,4,3> o (64,64):(64,1)``, and CuTe's,
``Sw<3,4,3> o _0 o (_64,_64):(_64,_1)``.
    text    = part { " o " part }       functions from the last to the first, offsets between them
    part    = "Sw<" int "," int "," int ">"  |  tuple [ ":" tuple ]
    tuple   = number  |  "(" [ tuple { "," tuple } ] ")"
    number  = ["_"] ["-"] digits { "@" digits }        _ marks CuTe's static numbers, @ a mode

This module has only the grammar: the decorator ``makes`` registers the constructor of each class.
Every error is a LayoutError with a caret at its location.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import LayoutError, SourceLocation
from .scaled_basis import ScaledBasis

_TOKEN = re.compile(
    r"\s*(?:(Sw<(\d+),(\d+),(-?\d+)>)|(_?-?\d+(?:@\d+)*)|([(),:])|(o)(?!\w)|(\S))", re.ASCII
)
_DIGITS = 40  # of a number
_DEEPEST = 60  # nested tuples
_MAKERS: dict[str, Callable[..., Any]] = {}


def makes(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the constructor of a ``layout`` (shape, stride), ``swizzle`` (bits, base, shift) or
    ``composed`` layout (outer function, offset, inner layout).
    """

    def enter(maker: Callable[..., Any]) -> Callable[..., Any]:
        _MAKERS[kind] = maker
        return maker

    return enter


def parse(text: str) -> Any:
    """Parse a Layout, ComposedLayout, Swizzle or int tuple. LayoutError with the location.
    >>> parse("(_4,(_2,_3)):(_6,(_3,_1))")
    Layout((4, (2, 3)), (6, (3, 1)))
    """
    if not isinstance(text, str):
        raise LayoutError(f"parse: expected a str, got {text!r}")
    return _NotationParser(text).whole()


class _NotationParser:
    """A recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [m for m in _TOKEN.finditer(text) if m.lastindex]
        self.next = 0

    def whole(self) -> Any:
        starts = [self._here()]
        parts = [self._part()]
        while self.next < len(self.tokens):
            self._expect("o", "' o ' or the end")
            starts.append(self._here())
            parts.append(self._part())
        result = parts.pop()
        while parts:
            offset = parts.pop() if parts[-1].__class__ is int else 0
            if not parts:
                self._fail("a layout or swizzle before an offset", starts[0])
            outer = parts.pop()
            result = self._made("composed", starts[len(parts)], outer, offset, result)
        return result

    def _made(self, kind: str, at: int, *args: Any) -> Any:
        try:
            return _MAKERS[kind](*args)
        except LayoutError as e:
            if e.location is not None:
                raise
            raise LayoutError(e.message, location=self._location(at), hint=e.hint) from None

    def _part(self) -> Any:
        at = self._here()
        token = self._token()
        if token is not None and token.group(1):
            self.next += 1
            return self._made("swizzle", at, *map(int, token.groups()[1:4]))
        shape = self._tuple(0)
        if not self._accept(":"):
            return shape
        return self._made("layout", at, shape, self._tuple(0))

    def _tuple(self, depth: int) -> Any:
        if depth > _DEEPEST:
            self._fail(f"at most {_DEEPEST} nested parentheses")
        if not self._accept("("):
            return self._number()
        modes: list[Any] = []
        while not self._accept(")"):
            if modes:
                self._expect(",", "',' or ')'")
            modes.append(self._tuple(depth + 1))
        return tuple(modes)

    def _number(self) -> Any:
        token = self._token()
        if token is None or not token.group(5):
            self._fail("a number or '('")
        value, *modes = token.group(5).lstrip("_").split("@")
        if max(map(len, (value, *modes))) > _DIGITS:
            self._fail(f"a number of at most {_DIGITS} digits")
        self.next += 1
        return ScaledBasis(int(value), tuple(map(int, modes[::-1]))) if modes else int(value)

    # --- tokens ---

    def _token(self) -> re.Match[str] | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def _accept(self, mark: str) -> bool:
        token = self._token()
        accepted = token is not None and mark in (token.group(6), token.group(7))
        self.next += accepted
        return accepted

    def _expect(self, mark: str, what: str) -> None:
        if not self._accept(mark):
            self._fail(what)

    def _here(self) -> int:
        token = self._token()
        return len(self.text) if token is None else token.start(token.lastindex or 0)

    def _location(self, at: int) -> SourceLocation:
        return SourceLocation.at(self.text, at, "layout")

    def _fail(self, what: str, at: int | None = None) -> NoReturn:
        at = self._here() if at is None else at
        rest = self.text[at : at + 12]
        got = repr(rest) if rest else "the end"
        raise LayoutError(f"expected {what}, got {got}", location=self._location(at))
