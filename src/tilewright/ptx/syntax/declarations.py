"""Declarations: registers, variables with their initialisers, and parameters.

Each function starts with the cursor after the linkage word, if there is one, and leaves it after
the ``;`` (for a parameter: after its name and dimensions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from ..tree import Imm, Masked, RegDecl, Symbol, Variable
from ..types import DECLARED
from .constant_expressions import constant, constant_integer
from .directives import SPACES, unknown
from .lexer import Cursor, integer

_MAX_DEPTH = 16  # of nested braces in an initialiser
_FLAT = re.compile(r"\{\s*+((?>(?:-?\w++\s*+,\s*+)*)-?\w++)\s*+\}", re.ASCII)
_NUMBER = re.compile(r"-?\d\w*", re.ASCII)


def registers(cursor: Cursor, pos: int) -> Iterator[RegDecl]:
    """Parse ``.reg .v2 .f32 a, b<4>;`` from ``.reg`` on: one declaration for each run of names with
    the same count.
    """
    cursor.expect(".reg")
    vector = _vector(cursor)
    type_ = _type(cursor)
    declared = [(cursor.name("a register's name"), _count(cursor))]
    while cursor.accept(","):
        declared.append((cursor.name("a register's name"), _count(cursor)))
    cursor.expect(";", "after a declaration")
    for count, run in groupby(declared, key=itemgetter(1)):
        yield RegDecl(type_, tuple(name for name, _ in run), count, vector, pos)


def _count(cursor: Cursor) -> int | None:
    if not cursor.accept("<"):
        return None
    count = _positive(cursor, "the number of registers")
    cursor.expect(">")
    return count


def variables(cursor: Cursor, linkage: str, pos: int) -> Iterator[Variable]:
    """Parse ``.global .align 16 .b8 a[64] = {1, 2}, b;`` from the state space on."""
    space, type_, align, vector, qualifiers = _head(cursor)
    while True:
        name = cursor.name("a variable's name")
        dims = _dims(cursor)
        init = _initialiser(cursor, bool(dims) or vector > 1) if cursor.accept("=") else None
        yield Variable(space, type_, name, dims, align, init, linkage, vector, qualifiers, pos)
        if not cursor.accept(","):
            break
    cursor.expect(";", "after a declaration")


def parameters(cursor: Cursor) -> tuple[Variable, ...]:
    """Parse ``(.param .u64 a, .param .align 8 .b8 b[16])``; empty without a parenthesis."""
    if not cursor.accept("("):
        return ()
    found: list[Variable] = []
    while cursor.value != ")":
        start = cursor.start
        if cursor.value not in (".param", ".reg"):
            cursor.fail(f"expected .param or .reg, got {cursor.describe()}")
        space, type_, align, vector, qualifiers = _head(cursor)
        name = cursor.name("a parameter's name")
        dims = _dims(cursor)
        found.append(Variable(space, type_, name, dims, align, None, "", vector, qualifiers, start))
        if not cursor.accept(","):
            break
        if cursor.value == ")":
            cursor.fail("expected a parameter after ','")
    cursor.expect(")", "after the parameters")
    return tuple(found)


def _head(cursor: Cursor) -> tuple[str, str, int | None, int, tuple[str, ...]]:
    """State space, then type, alignment, vector length and qualifiers in any order."""
    space = cursor.value[1:]
    if space not in SPACES:
        unknown(cursor, SPACES, "a state space")
    cursor.advance()
    type_, align, vector = "", None, 1
    qualifiers: list[str] = []
    while cursor.kind == "directive":
        word = cursor.value
        if word == ".attribute":
            qualifiers.append(_attribute(cursor))
        elif word == ".ptr":
            qualifiers.extend(_pointer(cursor))
        elif word == ".align":
            cursor.advance()
            align = _positive(cursor, "an alignment")
        elif re.fullmatch(r"\.v[248]", word) and not type_:
            vector = _vector(cursor)
        elif type_:
            cursor.fail(f"expected a name, got {cursor.describe()}")
        else:
            type_ = _type(cursor)
    if not type_:
        cursor.fail(f"expected a type, got {cursor.describe()}")
    return space, type_, align, vector, tuple(qualifiers)


def _attribute(cursor: Cursor) -> str:
    """``.attribute(.managed)`` as one word."""
    text = cursor.advance()
    cursor.expect("(")
    words = []
    while cursor.value != ")":
        if cursor.kind not in ("directive", "int") and cursor.value not in ("(", ","):
            cursor.fail(f"expected an attribute, got {cursor.describe()}")
        words.append(cursor.advance())
        if words[-1] == "(":
            while cursor.kind == "int" or cursor.value == ",":
                words.append(cursor.advance())
            cursor.expect(")")
            words.append(")")
    cursor.expect(")")
    return f"{text}({''.join(words)})"


def _pointer(cursor: Cursor) -> Iterator[str]:
    """``.ptr``, the state space that it points to and its alignment, as words."""
    yield cursor.advance()
    if cursor.value in (".global", ".shared", ".const", ".local"):
        yield cursor.advance()
    if cursor.value == ".align":
        yield cursor.advance()
        yield str(_positive(cursor, "an alignment"))


def _vector(cursor: Cursor) -> int:
    return int(cursor.advance()[2:]) if cursor.value in (".v2", ".v4", ".v8") else 1


def _type(cursor: Cursor) -> str:
    if cursor.kind != "directive":
        cursor.fail(f"expected a type, got {cursor.describe()}")
    if cursor.value[1:] not in DECLARED:
        unknown(cursor, tuple(DECLARED), "a type")
    return cursor.advance()[1:]


def _positive(cursor: Cursor, describe: str) -> int:
    start = cursor.start
    value = constant_integer(cursor, describe) if cursor.value == "(" else cursor.integer(describe)
    if value <= 0:
        cursor.fail(f"{describe} must be positive", start)
    return value


def _dims(cursor: Cursor) -> tuple[int, ...]:
    found = []
    while cursor.accept("["):
        start = cursor.start
        found.append(0 if cursor.value == "]" else constant_integer(cursor, "an array size"))
        if found[-1] < 0:
            cursor.fail("an array size can't be negative", start)
        cursor.expect("]", "after an array size")
    return tuple(found)


def _initialiser(cursor: Cursor, braces: bool) -> tuple[object, ...]:
    """The value after ``=``: a brace list, or for a scalar one element."""
    if cursor.value == "{":
        return _list(cursor, 0)
    if braces:
        cursor.fail(f"expected '{{' before an array's values, got {cursor.describe()}")
    return (_element(cursor),)


def _list(cursor: Cursor, depth: int) -> tuple[object, ...]:
    if depth >= _MAX_DEPTH:
        cursor.fail(f"an initialiser can be nested at most {_MAX_DEPTH} deep")
    flat = _flat(cursor)
    if flat is not None:
        return flat
    cursor.expect("{")
    found: list[object] = []
    while cursor.value != "}":
        found.append(_list(cursor, depth + 1) if cursor.value == "{" else _element(cursor))
        if not cursor.accept(","):
            break
    cursor.expect("}", "after the values")
    return tuple(found)


def _flat(cursor: Cursor) -> tuple[object, ...] | None:
    """A list of integer literals only, parsed by one regular expression because it may have 100,000
    of them; None for any other list.
    """
    whole = _FLAT.match(cursor.text, cursor.start)
    if whole is None:
        return None
    words = [word.strip() for word in whole[1].split(",")]
    seen: dict[str, Imm] = {}
    for word in set(words):
        value = integer(word.lstrip("-")) if _NUMBER.fullmatch(word) else None
        if value is None or not _token_int(word):
            return None
        seen[word] = Imm(-value if word[0] == "-" else value, word.endswith("U"))
    cursor.seek(whole.end())
    return tuple(map(seen.__getitem__, words))


def _token_int(word: str) -> bool:
    """Whether a word that int() accepts is also an integer in PTX (``1_0`` and −2⁶⁴ are not)."""
    return "_" not in word and not (word[0] == "-" and len(word) > 18)


def _element(cursor: Cursor) -> object:
    """One value: a number, ``sym+8``, ``generic(sym)+8``, or one byte of an address,
    ``0xFF00(sym)``.
    """
    if cursor.kind == "word":
        return _symbol(cursor)
    start = cursor.start
    value = constant(cursor)
    if cursor.value != "(":
        return value
    if not isinstance(value, Imm):
        cursor.fail("a byte mask must be an integer", start)
    cursor.expect("(")
    symbol = _symbol(cursor)
    cursor.expect(")")
    return Masked(value.value, symbol)


def _symbol(cursor: Cursor) -> Symbol:
    name = cursor.name("a value")
    generic = name == "generic" and cursor.accept("(")
    if generic:
        name = cursor.name("a variable's name")
        inner = _plus(cursor)
        cursor.expect(")")
        return Symbol(name, inner + _plus(cursor), True)
    return Symbol(name, _plus(cursor))


def _plus(cursor: Cursor) -> int:
    if cursor.accept("+"):
        return constant_integer(cursor, "a byte offset")
    return -constant_integer(cursor, "a byte offset") if cursor.accept("-") else 0
