"""The encoding of one shape of instruction: which bits hold which number, mark and modifier.

A shape is a mnemonic with its operands' kinds. Its bits are fixed, or belong to a number (each bit
has a weight), to an operand's marks or to some of the opcode's modifiers (enumerations). Scheduling
control and guard are not part of it: ``SassCoding`` says where an architecture keeps them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import SassError
from .sass_text import NanBits, SassOperand, SassText, number_text

_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


@dataclass(frozen=True, slots=True)
class SassCoding:
    """Where an architecture keeps what every instruction has; offsets of bits, widths in bits.

    ``control`` is the lowest bit of the 21 control bits, None where they are in words of their
    own (sm_5x, sm_6x); ``guard`` the lowest of the guard's 4 bits.
    """

    width: int
    guard: int
    control: int | None

    @property
    def outside(self) -> int:
        """The bits of guard and control."""
        guard = 15 << self.guard
        return guard if self.control is None else guard | (1 << 21) - 1 << self.control


VOLTA = SassCoding(128, 12, 105)  # sm_70 and later
MAXWELL = SassCoding(64, 16, None)


REUSE = 122  # the lowest bit of the reuse field of VOLTA
_REUSE = 15 << REUSE


class Unencodable(SassError):
    """A number or mark that the form has no bits for."""


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number: ``constant`` plus the weights of the bits that are set.

    ``kind`` is ``i`` for an integer, ``t`` for a branch target (relative to the next
    instruction), or ``f16``, ``bf16``, ``f32``, ``f64`` (its upper 32 bits) for a float.
    """

    kind: str
    constant: int
    bits: tuple[tuple[int, int], ...]

    @property
    def mask(self) -> int:
        """The bits of the field."""
        return sum(1 << bit for bit, _ in self.bits)

    def encode(self, number: int | float) -> int:
        """The field's bits. Raises Unencodable."""
        if isinstance(number, float | NanBits) is not (self.kind[-1].isdigit()):
            wanted = "in hex" if self.kind in "it" else "decimal"
            raise Unencodable(f"a number must be {wanted} here, got {number_text(number)}")
        value = float_bits(number, self.kind) if isinstance(number, float) else int(number)
        rest = value - self.constant
        step = min((abs(weight) for _, weight in self.bits), default=1)
        if rest % step and self.kind[-1].isdigit():
            low = step.bit_length() - 1
            hint = f"{number_text(float_of(value - rest % step, self.kind))} is exact"
            raise Unencodable(f"the low {low} bits of a float must be 0, got {number!r}", hint=hint)
        if rest % step:
            raise Unencodable(f"a number must be a multiple of {step}, got {number!r}")
        readings = (
            [rest] if rest < self._span // 2 or rest >= self._span else [rest, rest - self._span]
        )
        for reading in readings:
            word = self._pick(reading)
            if word is not None:
                return word
        raise Unencodable(f"a number must fit into {len(self.bits)} bits, got {number!r}")

    @property
    def _span(self) -> int:
        """What a signed field's unsigned reading exceeds it by."""
        return 2 * -min([0, *(w for _, w in self.bits)])

    def _pick(self, rest: int) -> int | None:
        """Bits whose weights add up to ``rest``; negative weights are taken for negative ones."""
        if all(weight < 0 for _, weight in self.bits):  # an inverted field, as of HGMMA's predicate
            positive = tuple((bit, -weight) for bit, weight in reversed(self.bits))
            if positive:
                return NumberField("i", 0, positive)._pick(-rest)
        word = 0
        for bit, weight in self.bits:  # negative first, then from large to small
            if (rest < 0 and weight < 0) or 0 < weight <= rest:
                word |= 1 << bit
                rest -= weight
        return word if rest == 0 else None

    def decode(self, word: int) -> int | float:
        """The number; a NaN as its bits."""
        value = self.constant + sum(weight for bit, weight in self.bits if word >> bit & 1)
        return value if self.kind in "it" else float_of(value, self.kind)


@dataclass(frozen=True)
class MarkField:
    """An operand's marks, or modifiers of the opcode: the bits in ``mask``, by the text."""

    mask: int
    choices: tuple[tuple[str, int], ...]

    @cached_property
    def bits(self) -> dict[str, int]:
        """The bits by the text."""
        return dict(reversed(self.choices))

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {bits: name for name, bits in reversed(self.choices)}

    def encode(self, marks: str) -> int:
        """The field's bits. Raises Unencodable."""
        if (found := self.bits.get(marks)) is not None:
            return found
        raise Unencodable(f"an operand must have other marks than {marks or '(none)'}")

    def decode(self, word: int) -> str:
        """The marks. Raises Unencodable for bits without a name."""
        found = self._texts.get(word & self.mask)
        if found is None:
            raise Unencodable("unnamed bits")
        return found


@dataclass(frozen=True)
class SassEncoding:
    """A shape's bits: ``base`` with every field zero, a field for each number, marks for each
    operand, and the bit of each operand's ``.reuse`` (operand, bit of the reuse field). ``silent``
    bits change nothing in nvdisasm's text; on sm_70 and later reuse bits can be among them, as of
    TEX.SCR. ``fixed_reuse`` are reuse bits that belong to the
    modifiers: .T and .P of texture instructions. ``guarded`` tells whether it can have a guard;
    without, the guard's bits are 0. The opcode is the mnemonic and a text of each of ``modifiers``.
    """

    shape: tuple[str, ...]
    base: int
    numbers: tuple[NumberField, ...]
    marks: tuple[MarkField, ...]
    uniform: bool = False
    reuse: tuple[tuple[int, int], ...] = ()
    silent: int = 0
    fixed_reuse: int = 0
    guarded: bool = True
    modifiers: tuple[MarkField, ...] = ()

    @cached_property
    def variable(self) -> int:
        """All bits of the fields."""
        mask = 0
        for number in self.numbers:
            mask |= number.mask
        for marks in (*self.marks, *self.modifiers):
            mask |= marks.mask
        return mask

    @property
    def rank(self) -> tuple[int, float]:
        """The bits of its numbers, and the logarithm, to base 2, of the number of its words, silent
        bits left out: where nvdisasm leaves out an operand, or names it, numbers have fewer bits.
        """
        fields = (*self.marks, *self.modifiers)
        bits = sum(len(n.bits) for n in self.numbers)
        return bits, bits + sum(math.log2(len(field.choices)) for field in fields)

    def modifier_bits(self, modifiers: str) -> int | None:
        """The bits of an opcode's modifiers, ``.E.64``; None for others than the encoding's."""
        if modifiers not in self._modifiers:
            self._modifiers[modifiers] = _split_modifiers(self.modifiers, modifiers)
        return self._modifiers[modifiers]

    @cached_property
    def _modifiers(self) -> dict[str, int | None]:
        return {}

    def encode(self, text: SassText, next_offset: int = 0) -> int:
        """The word without guard and control; ``next_offset`` is that of the next instruction.

        Raises Unencodable.
        """
        if text.hidden & ~self.silent:
            raise Unencodable(f"hidden bits must be in {self.silent:#x}, got {text.hidden:#x}")
        modifiers = self.modifier_bits(text.modifiers)
        if modifiers is None:
            raise Unencodable(f"{text.opcode} must have other modifiers")
        word = self.base ^ text.hidden & ~_REUSE | modifiers
        for field, number in zip(self.numbers, text.numbers, strict=True):
            if field.kind == "t" and isinstance(number, int):
                number = signed64(number - next_offset)
            word |= field.encode(number)
        for marks, name in zip(self.marks, text.marks, strict=True):
            word |= marks.encode(name)
        return word

    def matches(self, word: int) -> bool:
        """Whether a word without guard and control has the fixed bits."""
        return not (word ^ self.base) & ~(self.variable | self.silent)

    def hidden(self, word: int) -> int:
        """The silent bits in which a word differs from ``base``."""
        return (word ^ self.base) & self.silent

    def opcode(self, word: int) -> str:
        """The opcode of a word that matches. Raises Unencodable."""
        return self.shape[0] + "".join([x.decode(word) for x in self.modifiers])

    def decode(self, word: int, next_offset: int = 0) -> tuple[SassOperand, ...]:
        """The operands of a word that matches. Raises Unencodable."""
        numbers = [
            int(f.decode(word)) + next_offset if f.kind == "t" else f.decode(word)
            for f in self.numbers
        ]
        found = []
        for kind, marks in zip(self.shape[1:], self.marks, strict=True):
            count = kind.count("#")
            found.append(SassOperand(kind, tuple(numbers[:count]), marks.decode(word)))
            del numbers[:count]
        return tuple(found)

    def reuse_bits(self, operands: int, hidden: int = 0) -> int:
        """The reuse field of operands given as a bit mask, and of a text's hidden bits. Raises
        Unencodable.
        """
        bits = dict(self.reuse)
        asked = [i for i in range(len(self.shape)) if operands >> i & 1]
        if not all(i in bits for i in asked):
            raise Unencodable(f"{self.shape[0]} must reuse operands {sorted(bits)}, got {asked}")
        return sum(1 << bits[i] for i in asked) | self.fixed_reuse | (hidden & _REUSE) >> REUSE

    def reused(self, field: int) -> int | None:
        """The operands, as a bit mask, that a reuse field names, silent bits left out; None for
        unknown bits.
        """
        if self.fixed_reuse:
            return 0 if field == self.fixed_reuse else None
        known = {bit: operand for operand, bit in self.reuse}
        bits = [b for b in range(4) if (field & ~(self.silent >> REUSE)) >> b & 1]
        return sum(1 << known[b] for b in bits) if all(b in known for b in bits) else None


def _split_modifiers(fields: Sequence[MarkField], text: str) -> int | None:
    """The bits of modifiers, split into a text of each field; None where they can't be."""
    if not fields:
        return None if text else 0
    for name in sorted(fields[0].bits, key=len, reverse=True):
        if text.startswith(name):
            rest = _split_modifiers(fields[1:], text[len(name) :])
            if rest is not None:
                return rest | fields[0].bits[name]
    return None


def signed64(number: int) -> int:
    """A number modulo 2^64, as a signed one: nvdisasm prints negative offsets unsigned."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def float_bits(number: float, kind: str) -> int:
    """A float's encoding. Raises Unencodable if it has none, or is a NaN."""
    bits = _bits(number, kind)
    near = None if bits is None else float_of(bits, kind)
    if bits is None or near != number:
        exact = f"{number_text(near)} is exact" if isinstance(near, float) else ""
        hint = "write the bits of a NaN, as 0f7fffffff" if number != number else exact
        raise Unencodable(f"a float must be exact in {kind}, got {number!r}", hint=hint)
    return bits


def _bits(number: float, kind: str) -> int | None:
    try:
        if kind == "bf16":
            return int.from_bytes(struct.pack("<f", number), "little") >> 16
        packed = int.from_bytes(struct.pack(_FLOATS[kind], number), "little")
    except OverflowError:
        return None
    return packed >> 32 if kind == "f64" else packed


def float_of(bits: int, kind: str) -> float | NanBits:
    """The float of an encoding; of a NaN its bits."""
    if kind == "bf16":
        number: float = struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0]
    elif kind == "f64":
        number = struct.unpack("<d", (bits << 32).to_bytes(8, "little"))[0]
    else:
        layout = _FLOATS[kind]
        number = struct.unpack(layout, bits.to_bytes(struct.calcsize(layout), "little"))[0]
    return number if number == number else NanBits(bits)


def float_kind(opcode: str) -> str:
    """The type of an opcode's decimal immediates."""
    if ".BF16" in opcode:
        return "bf16"
    return {"H": "f16", "D": "f64"}.get(opcode[0], "f32")


def sorted_bits(weights: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """A field's (bit, weight) in the order that ``NumberField`` picks them."""
    return tuple(sorted(weights, key=lambda x: (x[1] > 0, -x[1])))
