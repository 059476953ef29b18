"""The statement parser: the body of a function, by recursive descent with a fast path.

Nine statements in ten are plain instructions. One regular expression matches such a statement
whole, and its operands are looked up by their text (``operand_parser.py``). Everything else is
parsed token by token, which also reports every error: the fast path reports none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import PtxSyntaxError
from ..tree import (
    Block,
    Directive,
    Guard,
    Instruction,
    Label,
    Loc,
    Operand,
    RegDecl,
    Register,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from . import directives
from .declarations import registers, variables
from .lexer import NAME, SPACE, Cursor
from .operand_parser import OperandParser, RegisterScope

MAX_DEPTH = 64  # of nested scopes

_OPCODE = r"[a-z][a-z0-9_]*+(?>(?:(?:\.|::)\w++)*)"
_PLAIN = re.compile(
    rf"{SPACE}(?>(?:(@!?{NAME})\s++)?)(?!call(?!\w))({_OPCODE})"
    r'(?>(?:[ \t]++([^;()"/@]*+))?);',
    re.ASCII,
)
_OPCODE_ONLY = re.compile(_OPCODE, re.ASCII)
_LOC = re.compile(
    rf"{SPACE}\.loc\s++(\d++)\s++(\d++)\s++(\d++)"
    rf"(?>(?:\s*+,\s*+(function_name\s++{NAME}(?>(?:\s*+\+\s*+\d++)?)\s*+,"
    r"\s*+inlined_at\s++\d++\s++\d++\s++\d++))?)(?![\w.])",
    re.ASCII,
)


class StatementParser:
    """A text being parsed, with the methods that parse its statements."""

    def __init__(self, text: str, path: str = "<ptx>") -> None:
        self.text = text
        self.path = path
        self.cursor = Cursor("", path)
        self.cursor.text = text
        self.operands = OperandParser(path)
        self.guards: dict[str, Guard] = {}
        self.opcodes: dict[str, str] = {}
        self.spans: list[tuple[int, int]] = []

    def body(self) -> tuple[Statement, ...]:
        """The statements from ``{`` to its ``}``, with an explicit stack of nested scopes."""
        open_: list[tuple[int, list[Statement]]] = [(self.cursor.start, [])]
        pos = self.cursor.end
        while True:
            pos = self._fast(pos, open_[-1][1])
            cursor = self.cursor
            if cursor.value == "{":
                if len(open_) > MAX_DEPTH:
                    cursor.fail(f"scopes can be nested at most {MAX_DEPTH} deep")
                open_.append((cursor.start, []))
                self.operands.scope = RegisterScope(self.operands.scope)
                pos = cursor.end
            elif cursor.value == "}":
                start, statements = open_.pop()
                pos = cursor.end
                if not open_:
                    cursor.advance()
                    return tuple(statements)
                self.operands.scope = self.operands.scope.parent or RegisterScope()
                open_[-1][1].append(Block(tuple(statements), start))
            else:
                open_[-1][1].extend(self._statement())
                pos = cursor.last

    def _fast(self, pos: int, into: list[Statement]) -> int:
        """Parse plain instructions and ``.loc`` lines from ``pos`` on, up to the first statement
        that is neither.
        """
        text, operands, guards, opcodes = self.text, self.operands, self.guards, self.opcodes
        while True:
            found = _PLAIN.match(text, pos)
            if found is None:
                found = _LOC.match(text, pos)
                if found is None:
                    break
                into.append(_loc(found))
                pos = found.end()
                continue
            at, opcode, rest = found.groups()
            try:
                values = operands.split(rest) if rest else ()
            except PtxSyntaxError:
                values = None
            if values is None:
                break
            guard = None if at is None else guards.get(at) or guards.setdefault(at, _guard(at))
            opcode = opcodes.setdefault(opcode, opcode)
            into.append(Instruction(opcode, values, guard, found.start(2 if at is None else 1)))
            pos = found.end()
        self.cursor.seek(pos)
        return pos

    def _statement(self) -> Iterator[Statement]:
        cursor = self.cursor
        pos = cursor.start
        if cursor.kind == "directive":
            yield from self._body_directive(pos)
        elif cursor.kind == "word" and "." not in cursor.value and self._is_label():
            name = cursor.name("a label")
            cursor.expect(":")
            if cursor.value[1:] in directives.BODY[1:] and cursor.kind == "directive":
                yield self.directive(pos, name)
            else:
                yield Label(name, pos)
        elif cursor.kind == "word" or cursor.value == "@":
            yield self.instruction()
        else:
            cursor.fail(f"expected a statement, got {cursor.describe()}")

    def _is_label(self) -> bool:
        after = self.after(self.cursor)
        return self.text.startswith(":", after)

    def _body_directive(self, pos: int) -> Iterator[RegDecl | Variable | Directive]:
        cursor = self.cursor
        word = cursor.value[1:]
        linkage = ""
        if word in directives.LINKAGES:
            linkage = cursor.advance()[1:]
            word = cursor.value[1:]
        if word == "reg" and not linkage:
            for declared in registers(cursor, pos):
                self.operands.scope.declare(declared.names, declared.count)
                yield declared
        elif word in directives.SPACES[:-1]:
            yield from variables(cursor, linkage, pos)
        elif word in directives.BODY and not linkage:
            yield self.directive(pos)
        elif word == "loc":
            cursor.fail("expected .loc file line column")
        else:
            directives.unknown(
                cursor,
                ("reg", "loc", *directives.SPACES, *directives.BODY),
                "a directive of a function body",
            )

    def instruction(self) -> Instruction:
        """One instruction, token by token."""
        cursor = self.cursor
        pos = cursor.start
        guard = None
        if cursor.accept("@"):
            negated = cursor.accept("!")
            guard = Guard(Register(cursor.take("word", "a predicate register")), negated)
        if cursor.kind != "word" or not _OPCODE_ONLY.fullmatch(cursor.value):
            cursor.fail(f"expected an instruction, got {cursor.describe()}")
        opcode = cursor.advance()
        while cursor.kind == "directive":
            opcode += cursor.advance()
        opcode = self.opcodes.setdefault(opcode, opcode)
        operands = self._call() if opcode.split(".")[0] == "call" else self._operand_list()
        cursor.expect(";", "after an instruction")
        return Instruction(opcode, operands, guard, pos)

    def _operand_list(self) -> tuple[Operand, ...]:
        if self.cursor.value == ";":
            return ()
        found = [self._spanned()]
        while self.cursor.accept(","):
            found.append(self._spanned())
        return tuple(found)

    def _spanned(self) -> Operand:
        start = self.cursor.start
        value = self.operands.operand(self.cursor)
        self.spans.append((start, self.cursor.last))
        return value

    def _call(self) -> tuple[Operand, ...]:
        """``(results), callee, (arguments), prototype``, of which only the callee is required."""
        cursor = self.cursor
        results = self._parenthesis(",") if cursor.value == "(" else self._nothing()
        if cursor.kind != "word":
            cursor.fail(f"expected the function to call, got {cursor.describe()}")
        callee = self._spanned()
        comma = cursor.accept(",")
        if comma and cursor.value == "(":
            arguments = self._parenthesis("")
            comma = cursor.accept(",")
        else:
            arguments = self._nothing()
        prototype = (self._prototype(),) if comma else ()
        return (results, callee, arguments, *prototype)

    def _parenthesis(self, after: str) -> Vector:
        start = self.cursor.start
        value = Vector(self.operands.operand_list(self.cursor, "(", ")"))
        self.spans.append((start, self.cursor.last))
        if after:
            self.cursor.expect(after)
        return value

    def _nothing(self) -> Vector:
        self.spans.append((self.cursor.start, self.cursor.start + 1))
        return Vector(())

    def _prototype(self) -> Symbol:
        start = self.cursor.start
        name = self.cursor.name("a prototype")
        self.spans.append((start, self.cursor.last))
        return Symbol(name)

    def directive(self, pos: int, label: str = "") -> Directive:
        cursor = self.cursor
        name = cursor.advance()[1:]
        words = directives.arguments(cursor)
        cursor.expect(";", f"after .{name}")
        return Directive(name, words, label, pos)

    def after(self, cursor: Cursor) -> int:
        """The offset of the token after the next one."""
        lookahead = Cursor("", self.path)
        lookahead.text = self.text
        try:
            lookahead.seek(cursor.end)
        except PtxSyntaxError:
            pass
        return lookahead.start


def operand_spans(text: str, pos: int) -> list[tuple[int, int]]:
    """The (start, end) offsets in the text of the operands of the instruction at ``pos``.

    A call's are, as in the tree, results, callee, arguments and prototype. It serves error
    messages, so it never fails: operands after a syntax error are left out.
    """
    parser = StatementParser(text)
    try:
        parser.cursor.seek(pos)
        parser.instruction()
    except PtxSyntaxError:
        pass
    return parser.spans


def _guard(text: str) -> Guard:
    negated = text[1] == "!"
    return Guard(Register(text[2:] if negated else text[1:]), negated)


def _loc(found: re.Match[str]) -> Loc:
    file, line, column, attributes = found.groups()
    words = re.sub(r"\s*([,+])\s*", r"\1", " ".join((attributes or "").split())).replace(",", ", ")
    return Loc(int(file), int(line), int(column), words, found.start() + found[0].index(".loc"))
