"""The parser: PTX text to a module tree.

This module parses the module and its functions; ``statements.py`` parses their statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import PtxSyntaxError
from ..tree import Directive, File, Function, Item, Module, Section, Statement
from . import directives
from .declarations import parameters, variables
from .operand_parser import RegisterScope
from .statements import StatementParser

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?![\w.])")
_SECTION = re.compile(r'(?>(?:[^}/"]++|//[^\n]*+|/(?!/)|"[^"\n]*+")*)\}')


def parse(text: str, path: str = "<ptx>") -> Module:
    """Parse a PTX text. Raises PtxSyntaxError with line and caret."""
    if not isinstance(text, str):
        raise PtxSyntaxError(
            f"PTX text must be a str, got {type(text).__name__}", hint="decode bytes first"
        )
    return _ModuleParser(text, path).module()


class _ModuleParser(StatementParser):
    def module(self) -> Module:
        self.cursor.seek(0)
        version, target, size = self._header()
        items: list[Item] = []
        while self.cursor.kind != "end":
            items.extend(self._items())
        return Module(version, target, size, tuple(items), self.text, self.path)

    def _header(self) -> tuple[tuple[int, int], tuple[str, ...], int]:
        cursor = self.cursor
        if cursor.value != ".version":
            cursor.fail(f"a module must begin with .version, got {cursor.describe()}")
        found = _VERSION.match(self.text, self.after(cursor))
        if found is None:
            cursor.advance()
            cursor.fail(f"expected a version such as 8.5, got {cursor.describe()}")
        cursor.seek(found.end())
        cursor.expect(".target", "after .version")
        target = [cursor.name("a target such as sm_90a")]
        while cursor.accept(","):
            target.append(cursor.name("a target or its option"))
        size = 64
        if cursor.accept(".address_size"):
            size = cursor.integer("32 or 64")
        return (int(found[1]), int(found[2])), tuple(target), size

    def _items(self) -> Iterator[Item]:
        cursor = self.cursor
        pos = cursor.start
        linkage = ""
        if cursor.value[1:] in directives.LINKAGES:
            linkage = cursor.advance()[1:]
        word = cursor.value[1:] if cursor.kind == "directive" else ""
        if word in ("entry", "func"):
            yield self._function(linkage, pos)
        elif word in directives.SPACES and word not in ("reg", "local", "param"):
            yield from variables(cursor, linkage, pos)
        elif linkage:
            cursor.fail(
                f"expected a function or variable after .{linkage}, got {cursor.describe()}"
            )
        elif word == "file":
            yield self._file(pos)
        elif word == "section":
            yield self._section(pos)
        elif word in directives.MODULE:
            yield self.directive(pos)
        elif word:
            allowed = (
                "entry",
                "func",
                "file",
                "section",
                *directives.MODULE,
                *directives.SPACES[:3],
            )
            directives.unknown(cursor, allowed, "a directive of a module")
        else:
            cursor.fail(f"expected a function, a variable or a directive, got {cursor.describe()}")

    def _file(self, pos: int) -> File:
        cursor = self.cursor
        cursor.advance()
        index = cursor.integer("a file number")
        name = cursor.take("string", "a file name in quotes")[1:-1]
        attributes = []
        while cursor.accept(","):
            attributes.append(cursor.integer("a time stamp or size"))
        return File(index, name, tuple(attributes), pos)

    def _section(self, pos: int) -> Section:
        cursor = self.cursor
        cursor.advance()
        name = cursor.take(
            "directive" if cursor.kind == "directive" else "word", "a section's name"
        )
        if cursor.value != "{":
            cursor.fail(f"expected '{{' after a section's name, got {cursor.describe()}")
        body = _SECTION.match(self.text, cursor.end)
        if body is None:
            cursor.fail("unterminated section")
        text = self.text[cursor.end : body.end() - 1]
        cursor.seek(body.end())
        return Section(name, text, pos)

    # --- functions ---
    def _function(self, linkage: str, pos: int) -> Function:
        cursor = self.cursor
        kind = cursor.advance()[1:]
        attributes = tuple(self._attributes())
        results = parameters(cursor) if kind == "func" else ()
        name = cursor.name("a function's name")
        params = parameters(cursor)
        heads = (*attributes, *self._function_directives())
        body: tuple[Statement, ...] | None = None
        if cursor.value == "{":
            self.operands.scope = RegisterScope()
            inputs = [p.name for p in (*results, *params) if p.space == "reg"]
            self.operands.scope.declare(tuple(inputs), None)
            body = self.body()
        else:
            cursor.expect(";", "or a body after a function's head")
        return Function(name, kind, params, results, heads, body, linkage, pos)

    def _attributes(self) -> Iterator[Directive]:
        cursor = self.cursor
        if cursor.value != ".attribute":
            return
        pos = cursor.start
        cursor.advance()
        depth, words = 0, ""
        while True:
            depth += {"(": 1, ")": -1}.get(cursor.value, 0)
            if cursor.kind == "end" or depth < 0 or not (depth or words):
                cursor.fail(f"expected an attribute in parentheses, got {cursor.describe()}")
            words += cursor.advance()
            if not depth:
                break
        yield Directive("attribute", (words,), "", pos)

    def _function_directives(self) -> Iterator[Directive]:
        cursor = self.cursor
        while cursor.kind == "directive":
            pos = cursor.start
            if cursor.value[1:] not in directives.FUNCTION:
                directives.unknown(cursor, directives.FUNCTION, "a directive of a function")
            name = cursor.advance()[1:]
            words = directives.arguments(cursor, until_directive=True)
            if name == "pragma":
                cursor.accept(";")
            yield Directive(name, words, "", pos)
