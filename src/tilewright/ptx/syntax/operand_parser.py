"""The operand parser: text to value, with each distinct text parsed once.

Compilers repeat a few thousand operands many times, so ``OperandParser`` is a dictionary from an
operand's text to its value, and ``__missing__`` parses. A name without ``%`` is a register if a
``.reg`` of an enclosing scope declares it, and a symbol otherwise; texts with such names are cached
in the scope's own dictionary.
"""

from __future__ import annotations

import re

from ..special_registers import WARP_SIZE
from ..tree import (
    Imm,
    MemoryOperand,
    Negated,
    Not,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Symbol,
    Vector,
)
from .constant_expressions import constant, constant_integer
from .lexer import NAME, Cursor

_REGISTER = re.compile(r"\s*(%[\w$]++(?>(?:\.\w++)?))\s*", re.ASCII)
_ADDRESS = re.compile(r"\s*\[\s*(%[\w$]++)\s*(?:\+\s*(-?(?:0|[1-9]\d{0,18})))?\s*\]\s*", re.ASCII)
_VECTOR = re.compile(r"\s*\{([\s%\w$.,]*+)\}\s*", re.ASCII)
_TOP_LEVEL = re.compile(r"(?>(?:[^,{}\[\]]++|\{[^{}]*+\}|\[[^\[\]]*+\])+)")
_FAMILY = re.compile(r"(.*?)(0|[1-9]\d{0,8})", re.ASCII)
_PLAIN_NAME = re.compile(NAME, re.ASCII)
_SELECTOR = re.compile(r"[bh]\d+", re.ASCII)
_SINK = Sink()


class RegisterScope:
    """The registers without ``%`` that one ``{ }`` and its parents declare."""

    __slots__ = ("families", "names", "parent", "seen")

    def __init__(self, parent: RegisterScope | None = None) -> None:
        self.parent = parent
        self.names: set[str] = set()
        self.families: dict[str, int] = {}
        self.seen: dict[str, Operand] = {}

    def declare(self, names: tuple[str, ...], count: int | None) -> None:
        """Enter the registers of a ``.reg`` declaration."""
        for name in names:
            if name.startswith("%"):
                continue
            self.seen.clear()
            if count is None:
                self.names.add(name)
            else:
                self.families[name] = count

    def has(self, name: str) -> bool:
        """Whether the name is a register here."""
        family = _FAMILY.fullmatch(name)
        scope: RegisterScope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            if family and int(family[2]) < scope.families.get(family[1], 0):
                return True
            scope = scope.parent
        return False


class OperandParser(dict[str, Operand]):
    """Operand values by their text; ``scope`` is where plain names are looked up."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.scope = RegisterScope()
        self._plain = False  # the operand being parsed depends on the scope

    def __missing__(self, text: str) -> Operand:
        register = _REGISTER.fullmatch(text)
        if register:
            self[text] = found = _register(register[1])
            return found
        address = _ADDRESS.fullmatch(text)
        if address:
            self[text] = made = MemoryOperand(Register(address[1]), int(address[2] or 0))
            return made
        known = self.scope.seen.get(text)
        if known is not None:
            return known
        vector = _VECTOR.fullmatch(text)
        if vector:
            return Vector(tuple(map(self.__getitem__, vector[1].split(","))))
        return self._parse(text)

    def _parse(self, text: str) -> Operand:
        cursor = Cursor(text, self.path)
        self._plain = False
        value = self.operand(cursor)
        if cursor.kind != "end":
            cursor.fail(f"unexpected {cursor.describe()} after an operand")
        if self._plain:
            self.scope.seen[text] = value
        else:
            self[text] = value
        return value

    def split(self, text: str) -> tuple[Operand, ...] | None:
        """The operands of a plain instruction; None where commas and brackets are not balanced."""
        if "{" not in text:
            return tuple(map(self.__getitem__, text.split(",")))
        parts = _TOP_LEVEL.findall(text)
        if sum(map(len, parts)) + len(parts) - 1 != len(text):
            return None
        return tuple(map(self.__getitem__, parts))

    # --- the grammar ---
    def operand(self, cursor: Cursor) -> Operand:
        """Parse one operand."""
        value = cursor.value
        if value == WARP_SIZE:
            return self._warp_size(cursor)
        if cursor.kind == "word":
            return self._named(cursor)
        if value == "[":
            return self._address(cursor)
        if value == "{":
            return Vector(self.operand_list(cursor, "{", "}"))
        if value in ("!", "-"):
            return self._negated(cursor)
        if cursor.kind in ("int", "float") or value in ("-", "~", "(", "+"):
            return constant(cursor)
        cursor.fail(f"expected an operand, got {cursor.describe()}")

    def _warp_size(self, cursor: Cursor) -> Operand:
        """``WARP_SZ`` remains a symbol unless it is part of an expression."""
        start = cursor.start
        value = constant(cursor)
        alone = cursor.text[start : cursor.start].split() == [WARP_SIZE]
        return Symbol(WARP_SIZE) if alone else value

    def operand_list(self, cursor: Cursor, opening: str, closing: str) -> tuple[Operand, ...]:
        """Parse ``{a, b}`` or, for a call, ``(a, b)``; only the latter may be empty."""
        cursor.expect(opening)
        found: list[Operand] = []
        if opening == "(" and cursor.accept(closing):
            return ()
        while True:
            if cursor.value in ("{", "["):
                cursor.fail(
                    "a vector can't be nested in another" if opening == "{" else "expected a name"
                )
            found.append(self.operand(cursor))
            if not cursor.accept(","):
                break
        cursor.expect(closing, f"to close {opening!r}")
        return tuple(found)

    def _named(self, cursor: Cursor) -> Operand:
        first = self._part(cursor, self._name(cursor))
        if cursor.value == "|":
            cursor.advance()
            if cursor.kind != "word":
                cursor.fail(f"expected a register after '|', got {cursor.describe()}")
            return Pair(first, self._name(cursor))
        if cursor.value in ("+", "-") and isinstance(first, Symbol):
            return Symbol(first.name, self._offset(cursor))
        return first

    def _name(self, cursor: Cursor) -> Register | Symbol | Sink:
        if cursor.value == "_":
            cursor.advance()
            return _SINK
        base, dot, _ = cursor.value.partition(".")
        if base.startswith("%"):
            return Register(cursor.advance())
        self._plain = True
        if self.scope.has(base):
            return Register(cursor.advance())
        if dot or not _PLAIN_NAME.fullmatch(cursor.value):
            cursor.fail(f"expected a register or a name, got {cursor.value!r}")
        return Symbol(cursor.advance())

    def _negated(self, cursor: Cursor) -> Operand:
        """``!p``, ``-%r1.b0`` or a constant."""
        start = cursor.start
        sign = cursor.advance()
        if cursor.kind != "word":
            cursor.seek(start)
            return constant(cursor)
        register = self._part(cursor, self._name(cursor))
        if sign == "-" and isinstance(register, Register | Selected):
            return Negated(register)
        if sign == "-" or not isinstance(register, Register):
            cursor.fail(
                f"{sign!r} must be followed by a {'predicate ' * (sign == '!')}register", start
            )
        return Not(register)

    def _part(
        self, cursor: Cursor, named: Register | Symbol | Sink
    ) -> Register | Selected | Symbol | Sink:
        """A register with the selector that follows it, if any; a space may separate them."""
        if not isinstance(named, Register):
            return named
        if cursor.kind == "directive" and _SELECTOR.fullmatch(cursor.value[1:]):
            return Selected(named, cursor.advance()[1:])
        return _register(named.name)

    def _address(self, cursor: Cursor) -> MemoryOperand:
        cursor.expect("[")
        base: Operand
        if cursor.kind == "word":
            base = self._name(cursor)
            if isinstance(base, Sink):
                cursor.fail("'_' can't be an address")
        else:
            base = constant(cursor)
            if not isinstance(base, Imm):
                cursor.fail("an address must be an integer, got a floating-point number")
        offset = self._offset(cursor) if cursor.value in ("+", "-") else 0
        coords = self._coords(cursor) if cursor.accept(",") else None
        cursor.expect("]", "after the address")
        return MemoryOperand(base, offset, coords)

    def _coords(self, cursor: Cursor) -> tuple[Operand, ...]:
        if cursor.value == "{":
            return self.operand_list(cursor, "{", "}")
        sampler = self.operand(cursor)
        cursor.expect(",", "after the sampler")
        return sampler, Vector(self.operand_list(cursor, "{", "}"))

    def _offset(self, cursor: Cursor) -> int:
        if cursor.value == "-":
            cursor.fail("expected '+' before an offset, got '-'", hint="write +-4 to subtract 4")
        cursor.expect("+")
        return constant_integer(cursor, "a byte offset")


def _register(text: str) -> Register | Selected:
    """``%r1``, ``%v.x`` or ``%r1.b0``."""
    base, _, selector = text.partition(".")
    return Selected(Register(base), selector) if _SELECTOR.fullmatch(selector) else Register(text)
