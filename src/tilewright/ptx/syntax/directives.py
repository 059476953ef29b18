"""The directives of PTX by context (module, function, body), and their arguments.

Arguments are words, not parsed further: a directive such as ``.pragma`` or ``.branchtargets`` is a
tuple of arguments, each its tokens with normal spacing, so that printing and parsing again gives
the same tuple.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NoReturn

from ..tree import Directive
from .lexer import Cursor, integer

LINKAGES = ("extern", "visible", "weak", "common")
SPACES = ("global", "shared", "local", "const", "param", "tex", "reg")
MODULE = ("alias", "pragma")
BODY = ("pragma", "branchtargets", "calltargets", "callprototype")
FUNCTION = (
    "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "maxclusterrank",
    "reqnctapercluster", "explicitcluster", "blocksareclusters", "noreturn", "pragma",
    "abi_preserve", "abi_preserve_control",
)  # fmt: skip

#: The lowest PTX version and target of each directive.
NEEDS: dict[str, tuple[str, str]] = {
    "branchtargets": ("2.1", "sm_20"), "calltargets": ("2.1", "sm_20"),
    "callprototype": ("2.1", "sm_20"),
    "reqntid": ("2.1", "sm_10"), "minnctapersm": ("2.0", "sm_10"), "pragma": ("2.0", "sm_10"),
    "alias": ("6.3", "sm_30"), "noreturn": ("6.4", "sm_30"), "attribute": ("4.0", "sm_30"),
    "reqnctapercluster": ("7.8", "sm_90"), "explicitcluster": ("7.8", "sm_90"),
    "maxclusterrank": ("7.8", "sm_90"),
    "blocksareclusters": ("9.0", "sm_90"), "abi_preserve": ("9.0", "sm_80"),
    "abi_preserve_control": ("9.0", "sm_80"),
    "maxnreg": ("1.3", "sm_10"), "maxntid": ("1.3", "sm_10"),
}  # fmt: skip

#: The counts of numbers that a function's directive takes, and whether they may be 0.
NUMBERS: dict[str, tuple[range, bool]] = {
    "maxntid": (range(1, 4), False), "reqntid": (range(1, 4), False),
    "minnctapersm": (range(1, 2), False), "maxnctapersm": (range(1, 2), False),
    "maxnreg": (range(1, 2), False), "maxclusterrank": (range(1, 2), True),
    "reqnctapercluster": (range(1, 4), True),
    "explicitcluster": (range(1), True), "blocksareclusters": (range(1), True),
}  # fmt: skip
EXCLUDE = {"maxntid": "reqntid", "maxclusterrank": "reqnctapercluster"}  # mutually exclusive
REQUIRE = {"blocksareclusters": ("reqntid", "reqnctapercluster")}

_OPEN = {"(": ")", "[": "]", "<": ">"}


def arguments(cursor: Cursor, until_directive: bool = False) -> tuple[str, ...]:
    """The arguments up to ``;``, ``{`` or, before a function's body, the next directive."""
    found: list[str] = []
    words = ""
    closing: list[str] = []
    while closing or not _ends(cursor, until_directive):
        if cursor.kind == "end":
            cursor.fail("expected the end of a directive, got the end of the text")
        if cursor.value == "," and not closing:
            if not words:
                cursor.fail("expected an argument before ','")
            found.append(words)
            words = ""
            cursor.advance()
            continue
        words = _joined(words, _nested(cursor, closing))
    if found and not words:
        cursor.fail(f"expected an argument after ',', got {cursor.describe()}")
    return (*found, words) if words else ()


def directive_errors(given: Sequence[Directive]) -> Iterator[tuple[Directive, str]]:
    """Errors of a function's directives, of each and of their combination (PTX manual,
    "Performance-Tuning Directives" and "Cluster Dimension Directives").
    """
    names = {d.name for d in given}
    for d in given:
        counts, zero = NUMBERS.get(d.name, (range(0), True))
        numbers = [integer(word) if word[:1].isdigit() else None for word in d.arguments]
        if counts and len(numbers) not in counts:
            allowed = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
            yield d, f".{d.name} takes {allowed} numbers, got {len(numbers)}"
        elif counts and None in numbers:
            yield d, f".{d.name} takes numbers, got {', '.join(d.arguments)}"
        elif 0 in numbers and not zero:
            yield d, f".{d.name} must be positive, got 0"
        if EXCLUDE.get(d.name) in names:
            yield d, f".{d.name} and .{EXCLUDE[d.name]} are mutually exclusive"
        if missing := [r for r in REQUIRE.get(d.name, ()) if r not in names]:
            yield d, f".{d.name} needs .{' and .'.join(missing)}"


def _ends(cursor: Cursor, until_directive: bool) -> bool:
    return cursor.value in (";", "{", "}") or (until_directive and cursor.kind == "directive")


def _nested(cursor: Cursor, closing: list[str]) -> str:
    """Step over one token, keeping track of the brackets that are open."""
    value = cursor.value
    if value in (";", "{", "}"):
        cursor.fail(f"expected {closing[-1]!r}, got {value!r}")
    if value in _OPEN:
        closing.append(_OPEN[value])
    elif closing and value == closing[-1]:
        closing.pop()
    elif value in _OPEN.values():
        cursor.fail(f"unbalanced {value!r}")
    return cursor.advance()


def _joined(words: str, token: str) -> str:
    tight = not words or words[-1] in "([<-" or token in (")", "]", ">", ",", "[", "<")
    return words + token if tight else f"{words} {token}"


def unknown(cursor: Cursor, allowed: tuple[str, ...], expected: str) -> NoReturn:
    """Fail at a directive that is not allowed here; the hint is the nearest one that is."""
    close = difflib.get_close_matches(cursor.value[1:], allowed, n=1)
    hint = f"did you mean .{close[0]}?" if close else ""
    cursor.fail(f"expected {expected}, got {cursor.describe()}", hint=hint)
