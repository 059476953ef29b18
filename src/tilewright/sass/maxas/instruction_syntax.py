"""An instruction as maxas writes it, as a ``SassText`` in nvdisasm's syntax.

Registers may have names, numbers may be decimal, addresses may be ``4x<expression>``; labels stand
for branch targets. The encoding table says of each immediate whether it is an integer or a float.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from ...errors import SassError
from ..encoding import float_of
from ..encoding_table import EncodingTable
from ..sass_instruction import nearest_forms
from ..sass_text import SassOperand, SassText, parse_instruction
from .meta_programs import MetaPrograms
from .source_line import SourceLine

_EXPRESSION = re.compile(r"(\d+)[xX]<([^>]+)>")
_NAME = re.compile(r"(?<![.\w])([A-Za-z_]\w*)\b(?!\[)")
_OFFSET = re.compile(r"\[\s*([\w.]+)\s*(?:(\+\s*)?(-?)\s*((?:0x[0-9a-fA-F]+|\d+)))?\s*\]")
_REFERENCE = re.compile(r"`\(([.\w]+)\)")
_DECIMAL_POINT = re.compile(r"\d\.\d|\de[+-]?\d|[+-]INF")
_PLAIN = re.compile(r"(?<![\w.])R(\d{1,40})\b", re.ASCII)
_LAST = 254  # the last register
_MACHINE = re.compile(
    r"R\d+|RZ|UR\d+|URZ|U?P[0-7]|U?PT|B\d+|SB[0-5]|SR_?\w+|PR|CC|INF|x\w*|"
    r"(?:ARRAY_)?\dD|CUBE|ARRAY_CUBE|R?G?B?A?|gdesc|desc|cx?|gsb\d|tmem|SRZ"
)
JUMPS = (
    "BRA",
    "SSY",
    "CAL",
    "PBK",
    "PCNT",
    "JCAL",
    "BSSY",
    "CALL",
    "JMP",
    "PRET",
    "LEPC",
    "WARPSYNC",
)


class InstructionSyntax:
    """Reads the instructions of one file: ``registers`` are its names' registers."""

    def __init__(
        self, table: EncodingTable, registers: Mapping[str, int], programs: MetaPrograms
    ) -> None:
        self.table = table
        self.registers = registers
        self.programs = programs

    def read(self, body: str, line: SourceLine) -> tuple[SassText, str | None]:
        """The instruction without ``;``, and the label of a jump, whose operand is then 0.

        Raises SassError with the line's location.
        """
        guard, _, rest = body.partition(" ") if body.startswith("@") else ("", "", body)
        opcode, _, operands = rest.strip().partition(" ")
        label = None
        if opcode.split(".")[0] in JUMPS:
            operands, label = _without_label(operands)
        operands = _EXPRESSION.sub(lambda m: self._address(m, line), operands)
        operands = _OFFSET.sub(_offset, operands)
        operands = re.sub(r"(?<![\w.])([+-]?)inf\b", r"\1INF", operands, flags=re.IGNORECASE)
        operands = re.sub(r"(?<![\w.+-])INF\b", "+INF", operands)
        if beyond := next((x for x in _PLAIN.findall(operands) if int(x) > _LAST), None):
            raise line.error(f"a register must be R0 to R{_LAST} or RZ, got R{beyond[:20]}")
        operands = _NAME.sub(lambda m: self._register(m[1]), operands)
        try:
            text = parse_instruction(f"{guard} {opcode} {operands}".strip())
        except SassError as error:
            raise line.error(error.message) from error
        return self._with_numbers(text, operands, line), label

    def shown(self, body: str, line: SourceLine) -> str:
        """The instruction with the values of addresses that use names of programs."""

        def value(found: re.Match[str]) -> str:
            return self._address(found, line) if re.search("[A-Za-z]", found[2]) else found[0]

        return _EXPRESSION.sub(value, body)

    def _address(self, found: re.Match[str], line: SourceLine) -> str:
        value = int(found[1]) * self.programs.address(found[2], line)
        return f"{value:#x}" if value >= 0 else f"-{-value:#x}"

    def _register(self, name: str) -> str:
        number = self.registers.get(name)
        return name if number is None else f"R{number}"

    def _with_numbers(self, text: SassText, operands: str, line: SourceLine) -> SassText:
        """Each immediate as the type that its field has. Raises SassError for an unknown form."""
        entries = self.table.encodings(text)
        if not entries:
            raise self._unknown(text, operands, line)
        reason = ""
        for entry in entries:
            kinds = iter([field.kind for field in entry.numbers])
            try:
                made = tuple(_converted(x, [next(kinds) for _ in x.numbers], operands)
                             for x in text.operands)  # fmt: skip
                return replace(text, operands=made)
            except SassError as error:
                reason = error.message
        raise line.error(f"{line.bare:.80}: {reason}")

    def _unknown(self, text: SassText, operands: str, line: SourceLine) -> SassError:
        """The error for an unknown form; it names an undefined register, or the form."""
        for name in _NAME.findall(operands):
            if not _MACHINE.fullmatch(name):
                near = get_close_matches(name, list(self.registers), 1)
                hint = f"did you mean {near[0]}?" if near else "define it in a REGISTER_MAPPING"
                return line.error(f"a register must be in REGISTER_MAPPING, got {name!r}", hint)
        shown = f"{text.opcode} {', '.join(text.form[1:])}".strip()
        near = nearest_forms(self.table, text)
        return line.error(
            f"{shown} must be an instruction of {self.table.arch}, got an unknown form",
            hint="nearest known: " + "; ".join(near),
        )


def _without_label(operands: str) -> tuple[str, str | None]:
    """The operands with the last one, a label, replaced by 0; and the label."""
    before, comma, last = operands.rpartition(",")
    last = last.strip()
    quoted = _REFERENCE.fullmatch(last)
    if quoted or (re.fullmatch(r"[A-Za-z_.]\w*", last) and not re.fullmatch(r"U?R\d+|U?P\d", last)):
        return f"{before}{comma} 0x0", quoted[1] if quoted else last
    return operands, None


def _offset(found: re.Match[str]) -> str:
    """``[base + offset]`` in nvdisasm's syntax: no blanks, no offset 0."""
    base, _, minus, number = found.groups()
    if number is None:
        return f"[{base}]"
    value = int(number, 0) if number.lower().startswith("0x") else int(number)
    if not value:
        return f"[{base}]"
    return f"[{base}+{'-' if minus else ''}{value:#x}]"


def _converted(operand: SassOperand, kinds: list[str], operands: str) -> SassOperand:
    """An operand's numbers as its fields' types. Raises SassError."""
    pairs = zip(operand.numbers, kinds, strict=True)
    return replace(operand, numbers=tuple(_number(n, kind, operands) for n, kind in pairs))


def _number(number: int | float, kind: str, operands: str) -> int | float:
    if kind in "it":
        if isinstance(number, float):
            if _DECIMAL_POINT.search(operands) and (number % 1 or not math.isfinite(number)):
                return int.from_bytes(struct.pack("<f", number), "little")
            if number % 1 or not math.isfinite(number):
                raise SassError(f"a number must be an integer, got {number}")
            if re.search(rf"(?<![\w.]){re.escape(str(number))}(?![\w.])", operands):
                return int.from_bytes(struct.pack("<f", number), "little")
        return int(number)
    if isinstance(number, float):
        return _nearest(number, kind)
    return float_of(int(number), kind)


def _nearest(number: float, kind: str) -> float:
    """The float that a field of f32's upper bits can hold where the text has more digits."""
    layout = {"f16": "<e", "f32": "<f"}.get(kind)
    try:
        rounded = struct.unpack(layout, struct.pack(layout, number))[0] if layout else number
    except OverflowError as error:
        raise SassError(f"a number must fit into {kind}, got {number}") from error
    return float(rounded)
