"""The encodings of an architecture: a compressed file in the package, made by
``scripts/learn_sass.py`` from what nvdisasm says of words.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from ..errors import SassError
from .encoding import (
    MAXWELL,
    VOLTA,
    MarkField,
    NumberField,
    SassCoding,
    SassEncoding,
)

_OPCODE_BITS = 0xFFF  # of sm_70 and later
_MAXWELL_OPCODE = 56  # the lowest of the bits that tell most opcodes of sm_5x and sm_6x apart


@dataclass(frozen=True)
class EncodingTable:
    """All known encodings of ``arch``; learned from nvdisasm ``tool`` on ``date``."""

    arch: str
    tool: str
    date: str
    entries: tuple[SassEncoding, ...]

    @property
    def coding(self) -> SassCoding:
        """Where guard and control lie."""
        return VOLTA if int("".join(filter(str.isdigit, self.arch))) >= 70 else MAXWELL

    @cached_property
    def by_form(self) -> dict[tuple[str, ...], list[SassEncoding]]:
        """The encodings of each form, the one with the most fixed bits last."""
        found: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
        for entry in sorted(self.entries, key=lambda e: -e.variable.bit_count()):
            found[entry.form].append(entry)
        return found

    @cached_property
    def by_opcode(self) -> dict[int, list[SassEncoding]]:
        """The encodings by ``opcode_bits``, those with the most fixed bits first."""
        found: dict[int, list[SassEncoding]] = defaultdict(list)
        for entry in sorted(self.entries, key=lambda e: e.variable.bit_count()):
            free = self.opcode_bits(entry.variable | entry.silent)
            fixed = self.opcode_bits(entry.base) & ~free
            bits = free
            while True:  # every subset of the free bits
                found[fixed | bits].append(entry)
                if not bits:
                    break
                bits = bits - 1 & free
        return found

    def opcode_bits(self, word: int) -> int:
        """The bits by which ``by_opcode`` finds a word's encodings: the low 12, up to sm_6x the
        high 8.
        """
        return word & _OPCODE_BITS if self.coding is VOLTA else word >> _MAXWELL_OPCODE & 0xFF

    def pack(self) -> bytes:
        """The table's file."""
        pool: dict[str, int] = {}

        def pooled(value: object) -> int:
            return pool.setdefault(json.dumps(value, separators=(",", ":")), len(pool))

        rows = [
            [
                list(e.form),
                f"{e.base:x}",
                [pooled([n.kind, n.constant, [list(b) for b in n.bits]]) for n in e.numbers],
                [pooled([f"{m.mask:x}", [[k, f"{v:x}"] for k, v in m.choices]]) for m in e.marks],
                int(e.uniform),
                [list(r) for r in e.reuse],
                f"{e.silent:x}",
            ]
            for e in self.entries
        ]
        content = {
            "arch": self.arch, "tool": self.tool, "date": self.date,
            "pool": [json.loads(x) for x in pool], "rows": rows,
        }  # fmt: skip
        return lzma.compress(json.dumps(content, separators=(",", ":")).encode(), preset=9)

    @classmethod
    def unpack(cls, data: bytes) -> EncodingTable:
        """Read a table's file."""
        content = json.loads(lzma.decompress(data))
        pool = content["pool"]
        entries = tuple(_entry(row, pool) for row in content["rows"])
        return cls(content["arch"], content["tool"], content["date"], entries)


def _entry(row: list[Any], pool: list[Any]) -> SassEncoding:
    form, base, numbers, marks, uniform, reuse, silent = row
    fields = tuple(
        NumberField(kind, constant, tuple((bit, weight) for bit, weight in bits))
        for kind, constant, bits in (pool[i] for i in numbers)
    )
    choices = tuple(
        MarkField(int(mask, 16), tuple((name, int(bits, 16)) for name, bits in names))
        for mask, names in (pool[i] for i in marks)
    )
    pairs = tuple((operand, bit) for operand, bit in reuse)
    bits = int(base, 16), int(silent, 16)
    return SassEncoding(tuple(form), bits[0], fields, choices, bool(uniform), pairs, bits[1])


ARCHITECTURES = {90: "sm_90a", 80: "sm_80", 52: "sm_52"}  # the table of each sm number


@cache
def encoding_table(sm: int) -> EncodingTable:
    """The table of an architecture: 90, 80 or 52. Raises SassError for others."""
    name = ARCHITECTURES.get(sm)
    file = files(__package__).joinpath("tables", f"{name}.json.xz")
    if name is None or not file.is_file():
        known = ", ".join(f"sm_{n}" for n in ARCHITECTURES)
        raise SassError(f"the encodings must be of {known}, got sm_{sm}")
    return EncodingTable.unpack(file.read_bytes())
