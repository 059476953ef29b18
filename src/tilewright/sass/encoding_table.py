"""The encodings of an architecture: a compressed file in the package, made by
``scripts/learn_sass.py`` from what nvdisasm says of words.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterable, Iterator
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
from .sass_text import SassText

_OPCODE_BITS = 0xFFF  # of sm_70 and later
_OPERATION_BITS = 0x1FF  # those that are the same for registers, constants and immediates
_MAXWELL_OPERATION = 52  # the lowest of such bits on sm_5x and sm_6x
_MAXWELL_OPCODE = 56  # the lowest of the bits that tell most opcodes of sm_5x and sm_6x apart

_ByMask = dict[tuple[tuple[int, float], int], dict[int, list[SassEncoding]]]


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
    def by_shape(self) -> dict[tuple[str, ...], list[SassEncoding]]:
        """The encodings of each shape, the one with the most fixed bits last."""
        found: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
        for entry in sorted(self.entries, key=lambda e: -e.variable.bit_count()):
            found[entry.shape].append(entry)
        return dict(found)

    def encodings(self, text: SassText) -> list[SassEncoding]:
        """The encodings of a text's opcode and kinds of operands, in the order of ``by_shape``."""
        found = self.by_shape.get(text.shape, ())
        return [e for e in found if e.modifier_bits(text.modifiers) is not None]

    @cached_property
    def by_mnemonic(self) -> dict[str, list[SassEncoding]]:
        """The encodings of each mnemonic."""
        found: dict[str, list[SassEncoding]] = defaultdict(list)
        for entry in self.entries:
            found[entry.shape[0]].append(entry)
        return dict(found)

    @cached_property
    def _by_opcode(self) -> dict[int, _ByMask]:
        """The encodings by ``_opcode_bits`` of their words, by their rank and the mask of their
        fixed bits, low ones first, and by these bits.
        """
        found: dict[int, _ByMask] = defaultdict(dict)
        for rank, entry in sorted(((e.rank, e) for e in self.entries), key=lambda x: x[0]):
            free = self._opcode_bits(entry.variable | entry.silent)
            fixed = self._opcode_bits(entry.base) & ~free
            mask = ~(entry.variable | entry.silent)
            bits = free
            while True:  # every subset of the free bits
                masks = found[fixed | bits].setdefault((rank, mask), defaultdict(list))
                masks[entry.base & mask].append(entry)
                if not bits:
                    break
                bits = bits - 1 & free
        return found

    def candidates(self, word: int) -> Iterator[SassEncoding]:
        """The encodings whose fixed bits a word without guard and control has, those with the
        fewest bits of numbers first, then those of the fewest words.
        """
        for (_, mask), by_bits in self._by_opcode.get(self._opcode_bits(word), {}).items():
            yield from by_bits.get(word & mask, ())

    def may_branch(self, word: int) -> bool:
        """Whether a word, with or without an encoding, has an opcode that may take a target."""
        return self._opcode(word) in self._branch_opcodes

    @cached_property
    def _branch_opcodes(self) -> frozenset[int]:
        branches = (e for e in self.entries if any(n.kind == "t" for n in e.numbers))
        return frozenset(self._opcode(e.base) for e in branches)

    def _opcode(self, word: int) -> int:
        """The bits of the opcode that are the same for all kinds of operands."""
        return word & _OPERATION_BITS if self.coding is VOLTA else word >> _MAXWELL_OPERATION

    def _opcode_bits(self, word: int) -> int:
        """The low 12 bits, up to sm_6x the high 8: they tell most opcodes apart."""
        return word & _OPCODE_BITS if self.coding is VOLTA else word >> _MAXWELL_OPCODE & 0xFF

    def pack(self) -> bytes:
        """The table's file."""
        pool: dict[str, int] = {}

        def pooled(value: object) -> int:
            return pool.setdefault(json.dumps(value, separators=(",", ":")), len(pool))

        def of_marks(fields: Iterable[MarkField]) -> list[int]:
            return [pooled([f"{m.mask:x}", [[k, f"{v:x}"] for k, v in m.choices]]) for m in fields]

        rows = [
            [
                list(e.shape),
                f"{e.base:x}",
                of_marks(e.modifiers),
                [pooled([n.kind, n.constant, [list(b) for b in n.bits]]) for n in e.numbers],
                of_marks(e.marks),
                int(e.uniform) | (not e.guarded) << 1,
                [list(r) for r in e.reuse],
                f"{e.silent:x}",
                e.fixed_reuse,
            ]
            for e in sorted(self.entries, key=lambda e: (e.shape[1:], e.shape[0]))
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
        pool = [_field(*fields) for fields in content["pool"]]
        entries = tuple(_entry(row, pool) for row in content["rows"])
        return cls(content["arch"], content["tool"], content["date"], entries)


def _field(first: str, *rest: Any) -> NumberField | MarkField:
    """A field of the pool: a number's kind, constant and bits; or a mask and its texts."""
    if len(rest) == 2:
        constant, bits = rest
        return NumberField(first, constant, tuple((bit, weight) for bit, weight in bits))
    return MarkField(int(first, 16), tuple((name, int(bits, 16)) for name, bits in rest[0]))


def _entry(row: list[Any], pool: list[Any]) -> SassEncoding:
    """The encoding of a row of the file."""
    shape, base, modifiers, numbers, marks, guard, reuse, silent, fixed = row
    return SassEncoding(
        tuple(shape), int(base, 16), tuple(pool[i] for i in numbers), tuple(pool[i] for i in marks),
        bool(guard & 1), tuple((operand, bit) for operand, bit in reuse), int(silent, 16), fixed,
        not guard & 2, tuple(pool[i] for i in modifiers),
    )  # fmt: skip


ARCHITECTURES = {90: "sm_90a", 80: "sm_80", 52: "sm_52"}  # the table of each sm number
# nvdisasm reads the same text; sm_50 lacks arithmetic of f16 and textures that return it
_ENCODED_AS = {50: 52, 53: 52}


def encoded_as(sm: int) -> int:
    """The architecture whose encodings an architecture's code has: 52 for 50 and 53."""
    return _ENCODED_AS.get(sm, sm)


def encoding_table(sm: int) -> EncodingTable:
    """The table of an architecture: 90, 80 or 52 (also for 50, 53). Raises SassError for others."""
    if not isinstance(sm, int):
        raise SassError(f"an architecture must be an integer, such as 90, got {sm!r:.80}")
    name = ARCHITECTURES.get(encoded_as(sm))
    if name is None:
        known = ", ".join(f"sm_{n}" for n in ARCHITECTURES)
        raise SassError(f"the encodings must be of {known}, got sm_{sm}")
    return _read(name)


@cache
def _read(name: str) -> EncodingTable:
    file = files(__package__).joinpath("tables", f"{name}.json.xz")
    return EncodingTable.unpack(file.read_bytes())
