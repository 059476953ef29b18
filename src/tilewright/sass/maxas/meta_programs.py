"""Programs inside a maxas file, in Python: CODE blocks, ``[+ expression +]``, ``[- statements -]``.

All programs of a file share one namespace, which ``-D`` options fill. A CODE block is the body of
a function that returns text; ``global`` makes its names visible to the others. maxas' own programs
are perl, which is refused. An address ``4x<expression>`` is arithmetic alone and calls nothing.
"""

from __future__ import annotations

import ast
import operator
import re
import textwrap
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import CodeType
from typing import Any

from ...errors import SassError
from .source_line import SourceLine

_PERL = re.compile(r"\bmy\b\s*[\$@%(]|\$\w|\bforeach\b|\bunless\b|=~|\bour\b\s*[\$@%]|;\s*$", re.M)
_BITS = 64  # of the largest number of an address expression
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.Div: Fraction, ast.FloorDiv: operator.floordiv, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.Pow: operator.pow,
}  # fmt: skip
_BOUNDED = (ast.LShift, ast.RShift, ast.Pow)  # whose second operand is at most _BITS


class MetaPrograms:
    """Runs the programs of one file; ``defines`` are the names that it starts with.

    A program is trusted: it can do whatever Python can.
    """

    def __init__(self, defines: Mapping[str, object] | None = None) -> None:
        self.names: dict[str, Any] = dict(defines or {})

    def block(self, code: str, line: SourceLine) -> str:
        """The text that a CODE block returns. Raises SassError for perl, and for what the program
        raises.
        """
        body = textwrap.indent(textwrap.dedent(code), "    ")
        text = f"def code_block():\n{body}\n    pass\n"
        self._execute(_compiled(text, "exec", line, code, -1), line, code, -1)
        made = self._guarded(lambda: self.names["code_block"](), line, code, -1)
        return "" if made is None else str(made)

    def expression(self, code: str, line: SourceLine) -> str:
        """The value of an expression as text; ``return`` makes it a block. Raises SassError."""
        if re.match(r"\s*(return|if|for|while)\b", code) or "\n" in code.strip():
            return self.block(code, line)
        compiled = _compiled(code.strip(), "eval", line, code, 0)
        return str(self._guarded(lambda: eval(compiled, self.names), line, code, 0))

    def statements(self, code: str, line: SourceLine) -> None:
        """Run statements that make no text. Raises SassError."""
        compiled = _compiled(textwrap.dedent(code).strip(), "exec", line, code, 0)
        self._execute(compiled, line, code, 0)

    def address(self, text: str, line: SourceLine) -> int:
        """The value of the expression in ``4x<expression>``: arithmetic over integers and names.

        Raises SassError for anything else.
        """
        source = re.sub(r"(?<!\d)0+(?=[1-9])", "", text.replace("$", "")).strip()
        try:
            value = self._value(ast.parse(source, mode="eval").body)
        except (SyntaxError, ArithmeticError, RecursionError, MemoryError, TypeError) as error:
            raise line.error(
                f"an address must be arithmetic, got {text!r:.60} ({error})"
            ) from error
        except SassError as error:
            raise line.error(error.message) from error
        if value != int(value):
            raise line.error(f"an address must be an integer, got {text!r:.60} = {value}")
        return int(value)

    def _value(self, node: ast.expr) -> int | Fraction:
        found: Any = None
        if isinstance(node, ast.Constant):
            found = node.value
        elif isinstance(node, ast.Name):
            found = self.names.get(node.id)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self._value(node.operand)
            found = -inner if isinstance(node.op, ast.USub) else inner
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self._value(node.left), self._value(node.right)
            if isinstance(node.op, _BOUNDED) and not 0 <= int(right) <= _BITS:
                raise SassError(f"a shift must be 0 to {_BITS}, got {right}")
            found = _BINARY[type(node.op)](left, right)
        if isinstance(found, int | Fraction) and abs(float(found)) < 2.0**_BITS:
            return found
        raise SassError(f"an address must consist of integers, got {ast.unparse(node):.60}")

    def _execute(self, program: CodeType, line: SourceLine, code: str, offset: int) -> None:
        self._guarded(lambda: exec(program, self.names), line, code, offset)

    def _guarded(self, run: Callable[[], Any], line: SourceLine, code: str, offset: int) -> Any:
        """Run a program; its exceptions become SassErrors at the line that raised."""
        try:
            return run()
        except Exception as error:
            place = _place(line, code, _raised_at(error) + offset)
            message = f"a program must not fail, got {type(error).__name__}: {error}"
            raise place.error(message) from error


_NAME = "<maxas program>"


def _compiled(text: str, mode: str, line: SourceLine, code: str, offset: int) -> CodeType:
    """The program compiled. Raises SassError for what is no Python, with its line."""
    try:
        compiled: CodeType = compile(text, _NAME, mode)
        return compiled
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = (getattr(error, "lineno", None) or 1) + offset
        place = _place(line, code, at)
        if found := _PERL.search(code):
            raise place.error(
                f"a program must be Python, got perl ({found[0].strip()})",
                hint="translate the block: it is the body of a function that returns text",
            ) from error
        raise place.error(f"a program must be Python, got {error}") from error


def _place(line: SourceLine, code: str, at: int) -> SourceLine:
    """Line number ``at`` of a program that begins on a line."""
    texts = code.split("\n")
    index = min(max(at - 1, 0), len(texts) - 1)
    return SourceLine(texts[index], line.number + index, line.file)


def _raised_at(error: BaseException) -> int:
    """The line of the program that raised."""
    at, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _NAME:
            at = trace.tb_lineno
        trace = trace.tb_next
    return at
