"""SASS text of one instruction as a value, in nvdisasm's syntax.

An operand is a *kind*, the text with each number replaced by ``#``, its *numbers*, and its
*marks*: ``-``, ``~``, ``!``, ``|`` and a suffix like ``.H0_H0``. So ``-R5.H1_H1`` has kind ``R#``,
numbers (5,), marks ``-.H1_H1``. RZ is R255, URZ is UR63, PT is P7. Aliases that nvdisasm only
displays, such as IMAD.MOV, become the instruction that they stand for.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache

from ..errors import SassError

ALWAYS = 7  # the predicate PT
_COMMENT = re.compile(r"/\*.*?\*/|\(\*.*?\*\)|//.*")
_GUARD = re.compile(r"@(!?)(U?P(?:T|\d+))\s+")
_REUSE = re.compile(r"\.reuse\b")
_NAMED = re.compile(r"\b(U?)(?:RZ|PT)\b")
_NUMBER = re.compile(
    r"(?<![A-Za-z_0-9.])(?:\+?-)?"
    r"(?:0[xf][0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?![A-Za-z_0-9.])"
    r"|(?<=[A-Za-z])\d+(?![A-Za-z_0-9])"
    r"|(?<![A-Za-z_0-9.])[+-](?:INF|QNAN|SNAN)\b"
)
_WITH_MARKS = re.compile(
    r"(-?(?:0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)|[+-](?:INF|QNAN|SNAN))((?:\.[A-Z]\w*)+)"
)
_MARKS = re.compile(r"([-~!]*)(\|?)(.*?)(\|?)((?:\.[A-Za-z_0-9]+)*)", re.DOTALL)
_ALIAS = re.compile(r"^IMAD\.(?:MOV|SHL|IADD)\b")
_FIXED = re.compile(r"^(?:SR_?[A-Z][\w.]*|\{.*\})$")  # names in which digits are no numbers


class NanBits(int):
    """The encoding of an immediate that is a NaN, written ``0f7fffffff``: nvdisasm's ``+QNAN``
    does not say which NaN.
    """


@dataclass(frozen=True, slots=True)
class SassOperand:
    """``kind`` with ``#`` for each of ``numbers``; ``marks`` as in the module's text.

    A decimal number is kept as a float, one in hex as an int. Kind ``$`` is a name without
    numbers, such as SR_TID.X, kept in ``marks``.
    """

    kind: str
    numbers: tuple[int | float, ...] = ()
    marks: str = ""

    def __str__(self) -> str:
        if self.kind == "$":
            return self.marks
        parts = self.kind.split("#")
        text = parts[0]
        for number, after in zip(self.numbers, parts[1:], strict=True):
            text += number_text(number, text) + after
        text = re.sub(r"\bUR63\b", "URZ", re.sub(r"\bR255\b", "RZ", text))
        text = re.sub(r"\b(U?P)7\b", r"\1T", text)
        before = self.marks.split(".")[0]
        suffix = self.marks[len(before) :]
        bar = "|" if "|" in before else ""
        return before.replace("|", "") + bar + text + bar + suffix


@dataclass(frozen=True, slots=True)
class SassText:
    """A parsed instruction: ``opcode`` with its modifiers, operands, guard predicate.

    ``guard`` is the predicate's number and whether it is negated; ``uniform`` whether it is a
    uniform predicate. ``reuse`` has bit i where operand i says ``.reuse``. ``hidden`` are bits of
    the word that nvdisasm does not show and that are not the usual ones, written ``&hidden=0x…``.
    """

    opcode: str
    operands: tuple[SassOperand, ...]
    guard: int = ALWAYS
    negated: bool = False
    uniform: bool = False
    reuse: int = 0
    hidden: int = 0

    @property
    def form(self) -> tuple[str, ...]:
        """The opcode and the operands' kinds."""
        return (self.opcode, *(x.kind for x in self.operands))

    @property
    def shape(self) -> tuple[str, ...]:
        """The mnemonic and the operands' kinds: what selects encodings."""
        return (self.opcode.partition(".")[0], *(x.kind for x in self.operands))

    @property
    def modifiers(self) -> str:
        """The opcode after the mnemonic: ``.E.64``."""
        _, dot, rest = self.opcode.partition(".")
        return dot + rest

    @property
    def numbers(self) -> tuple[int | float, ...]:
        """All operands' numbers."""
        return tuple(n for x in self.operands for n in x.numbers)

    @property
    def marks(self) -> tuple[str, ...]:
        """Each operand's marks."""
        return tuple(x.marks for x in self.operands)

    def __str__(self) -> str:
        name = f"{'U' if self.uniform else ''}P{'T' if self.guard == ALWAYS else self.guard}"
        plain = self.guard == ALWAYS and not self.negated
        guard = "" if plain else f"@{'!' if self.negated else ''}{name} "
        shown = [
            str(x) + (".reuse" if self.reuse >> i & 1 else "") for i, x in enumerate(self.operands)
        ]
        hidden = f" &hidden={self.hidden:#x}" if self.hidden else ""
        return f"{guard}{self.opcode}{' ' if shown else ''}{', '.join(shown)}{hidden}"


def parse_instruction(text: str) -> SassText:
    """Parse one instruction, with or without ``;``. Raises SassError for an empty one."""
    body = _COMMENT.sub("", text).strip().rstrip(";").strip()
    body, _, bits = body.partition("&hidden=")
    if bits and not re.fullmatch(r"0x[0-9a-f]{1,32}", bits.strip()):
        raise SassError(f"hidden bits must be a number in hex, got {bits!r:.40}")
    hidden = int(bits or "0", 16)
    guard = _GUARD.match(body)
    rest = body[guard.end() :] if guard else body
    opcode, _, operands = rest.strip().partition(" ")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9_.:]*", opcode):
        raise SassError(f"an instruction must begin with an opcode, got {text.strip()!r:.80}")
    parts = [p.strip() for p in _split(operands)]
    opcode = _ALIAS.sub("IMAD", opcode)
    reuse = sum(1 << i for i, p in enumerate(parts) if _REUSE.search(p))
    parsed = tuple(parse_operand(p) for p in parts)
    if guard is None:
        return SassText(opcode, parsed, reuse=reuse, hidden=hidden)
    name = guard[2]
    number = ALWAYS if name.endswith("T") else int(name.lstrip("UP"))
    uniform = name.startswith("U")
    return SassText(opcode, parsed, number, guard[1] == "!", uniform, reuse, hidden)


@lru_cache(1 << 16)
def parse_operand(text: str) -> SassOperand:
    """Parse one operand, without ``.reuse``. Raises SassError for # and registers without a decimal
    number.
    """
    text = _REUSE.sub("", text.strip())
    if "#" in text:
        raise SassError(f"an operand must be without #, got {text!r:.40}")
    if _FIXED.match(text):
        return SassOperand("$", (), text)
    if found := _NUMBER.fullmatch(text):
        return SassOperand("#", (_number(found[0]),))
    if found := _WITH_MARKS.fullmatch(text):  # -1.5.NEG
        return SassOperand("#", (_number(found[1]),), found[2])
    text = text.replace("] [", "][")  # XMAD.X prints c[0x0] [0x4]
    text = _NAMED.sub(lambda m: m[1] + ("R63" if m[1] else "R255") if m[0][-1] == "Z"
                      else f"{m[1]}P7", text)  # fmt: skip
    split = _MARKS.fullmatch(text)
    assert split is not None
    signs, bar, body, _, suffix = split.groups()
    if "[" in body or "{" in body or "(" in body:
        suffix_start = max(body.rfind("]"), body.rfind("}"), body.rfind(")")) + 1
        body, suffix = body[:suffix_start], body[suffix_start:] + suffix
    numbers: list[int | float] = []

    def note(match: re.Match[str]) -> str:
        register = match.start() > 0 and body[match.start() - 1].isalpha()
        if register and not match[0].isdecimal():
            raise SassError(f"a register must have a decimal number, got {body!r:.40}")
        numbers.append(int(match[0]) if register else _number(match[0]))
        return "+#" if match[0].startswith("+-") else "#"

    return SassOperand(_NUMBER.sub(note, body), tuple(numbers), signs + bar + suffix)


def _split(operands: str) -> list[str]:
    """Split at commas outside of brackets."""
    found, depth = [""], 0
    for char in operands:
        depth += (char in "[{(") - (char in "]})")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return [x for x in found if x.strip()]


def _number(text: str) -> int | float:
    text = text.removeprefix("+") if text.startswith("+-") else text
    if "0x" in text:
        return int(text, 16)
    if "0f" in text:
        return NanBits(text.replace("0f", ""), 16)
    if text[-1] in "FN":  # +INF, -QNAN
        name = text[1:].lower().replace("qnan", "nan").replace("snan", "nan")
        return float(text[0] + name)
    return float(text)


def number_text(number: int | float, before: str = "") -> str:
    """A number after the text ``before``: bare after a letter, else hex or decimal."""
    if isinstance(number, float):
        return _float_text(number)
    if isinstance(number, NanBits):
        return f"0f{number:x}"
    if before[-1:].isalpha():
        return str(number)
    return f"-{-number:#x}" if number < 0 else f"{number:#x}"


def _float_text(number: float) -> str:
    if number != number:
        sign = struct.pack(">d", number)[0] >> 7
        return "-QNAN" if sign else "+QNAN"
    if number in (float("inf"), float("-inf")):
        return "+INF" if number > 0 else "-INF"
    return repr(number).removesuffix(".0") if abs(number) < 1e16 else repr(number)
