"""The encodings of an architecture: a compressed file in the package, made by
``scripts/learn_sass.py`` from what nvdisasm says of words.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator
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


@dataclass(frozen=True, eq=False)
class EncodingTable:
    """All known encodings of ``arch``; learned from nvdisasm ``tool`` on ``date``."""

    arch: str
    tool: str
    date: str
    entries: tuple[SassEncoding, ...]

    @property
    def sm(self) -> int:
        """The architecture's number: 90 for sm_90a."""
        return int("".join(filter(str.isdigit, self.arch)))

    @property
    def coding(self) -> SassCoding:
        """Where guard and control lie."""
        return VOLTA if self.sm >= 70 else MAXWELL

    @cached_property
    def by_form(self) -> dict[tuple[str, ...], list[SassEncoding]]:
        """The encodings of each form, the one with the most fixed bits last."""
        found: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
        for entry in sorted(self.entries, key=lambda e: -e.variable.bit_count()):
            found[entry.form].append(entry)
        return found

    @cached_property
    def by_mnemonic(self) -> dict[str, list[tuple[str, ...]]]:
        """The forms of each opcode without its modifiers."""
        found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for form in self.by_form:
            found[form[0].split(".")[0]].append(form)
        return dict(found)

    @cached_property
    def _by_opcode(self) -> dict[int, dict[int, dict[int, list[SassEncoding]]]]:
        """The encodings by ``_opcode_bits`` of their words, by the mask of their fixed bits, those
        with the most fixed bits first, and by these bits.
        """
        found: dict[int, dict[int, dict[int, list[SassEncoding]]]] = defaultdict(dict)
        for entry in sorted(self.entries, key=lambda e: e.variable.bit_count()):
            free = self._opcode_bits(entry.variable | entry.silent)
            fixed = self._opcode_bits(entry.base) & ~free
            mask = ~(entry.variable | entry.silent)
            bits = free
            while True:  # every subset of the free bits
                masks = found[fixed | bits].setdefault(mask, defaultdict(list))
                masks[entry.base & mask].append(entry)
                if not bits:
                    break
                bits = bits - 1 & free
        return found

    def candidates(self, word: int) -> Iterator[SassEncoding]:
        """The encodings whose fixed bits a word without guard and control has, those with the
        most fixed bits first.
        """
        for mask, by_bits in self._by_opcode.get(self._opcode_bits(word), {}).items():
            yield from by_bits.get(word & mask, ())

    def _opcode_bits(self, word: int) -> int:
        """The low 12 bits, up to sm_6x the high 8: they tell most opcodes apart."""
        return word & _OPCODE_BITS if self.coding is VOLTA else word >> _MAXWELL_OPCODE & 0xFF

    def pack(self) -> bytes:
        """The table's file."""
        pool: dict[str, int] = {}

        def pooled(value: object) -> int:
            return pool.setdefault(json.dumps(value, separators=(",", ":")), len(pool))

        groups: dict[str, list[list[object]]] = defaultdict(list)
        for e in sorted(self.entries, key=lambda e: (e.form[1:], e.form[0])):
            fields = [
                list(e.form[1:]),
                [pooled([n.kind, n.constant, [list(b) for b in n.bits]]) for n in e.numbers],
                [pooled([f"{m.mask:x}", [[k, f"{v:x}"] for k, v in m.choices]]) for m in e.marks],
                int(e.uniform) | (not e.guarded) << 1,
                [list(r) for r in e.reuse],
                f"{e.silent:x}",
            ]
            groups[json.dumps(fields)].append([e.form[0], f"{e.base:x}", e.fixed_reuse])
        rows = [[*json.loads(fields), forms] for fields, forms in groups.items()]
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
        entries = tuple(e for row in content["rows"] for e in _entries(row, pool))
        return cls(content["arch"], content["tool"], content["date"], entries)


def _entries(row: list[Any], pool: list[Any]) -> list[SassEncoding]:
    """The encodings of a row: forms that differ in their opcode and their fixed bits alone."""
    kinds, numbers, marks, guard, reuse, silent, forms = row
    fields = tuple(
        NumberField(kind, constant, tuple((bit, weight) for bit, weight in bits))
        for kind, constant, bits in (pool[i] for i in numbers)
    )
    choices = tuple(
        MarkField(int(mask, 16), tuple((name, int(bits, 16)) for name, bits in names))
        for mask, names in (pool[i] for i in marks)
    )
    pairs = tuple((operand, bit) for operand, bit in reuse)
    rest = bool(guard & 1), pairs, int(silent, 16)
    return [
        SassEncoding((opcode, *kinds), int(base, 16), fields, choices, *rest, fixed, not guard & 2)
        for opcode, base, fixed in forms
    ]


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
