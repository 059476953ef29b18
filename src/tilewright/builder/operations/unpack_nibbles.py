"""Packed 4-bit elements to bytes of s8 or e4m3, four in a register, by masks.

A nibble in the lower half of a byte is u as an integer; as an e4m3 it is u · 2⁻⁹, for subnormal
and normal numbers alike. In the upper half, two's complement is 16 q as an s8. An e2m1's exponent
and mantissa, two bits up, are the number times 2⁻⁶ in e4m3. So masks suffice where the caller takes
care of a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.registers import Reg

# Interleaved: the element at each nibble of a word, from the lowest.
NIBBLE_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
# (source, dest): the power of two that elements are multiplied by.
NIBBLE_EXPONENTS = {("u4", "s8"): 0, ("s4", "s8"): 4, ("u4", "e4m3"): -9, ("e2m1", "e4m3"): -6}
_AND, _AND_OR = 0xC0, 0xEA  # lop3's tables of a & b and (a & b) | c
_LOW, _HIGH, _SIGNS, _PLACE = 0x0F0F0F0F, 0xF0F0F0F0, 0x80808080, 0x1C1C1C1C
_TABLE, _BYTES = 16, 0x01010101


class NibbleUnpacking:
    """Conversions of packed 4-bit elements to 8-bit ones."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def unpack_nibbles(
        self, word: Reg, source: str, dest: str, *, zeros: Sequence[Any] = ()
    ) -> tuple[Reg, Reg]:
        """The eight elements of a 32-bit word as two registers of four bytes: elements 0 to 3, and
        4 to 7. They are interleaved in the word: e0 e4 e1 e5 e2 e6 e3 e7 from the lowest.

            u4 to s8      u            3 instructions; 7 with zero points
            s4 to s8      16 q         3
            u4 to e4m3    u · 2⁻⁹      3
            e2m1 to e4m3  q · 2⁻⁶      7

        ``zeros``: of u4 to s8, what is subtracted from the elements of the first register and of
        the second: numbers from 0 to 15, or registers of four equal bytes. One is for both.
        KernelError for other types.
        """
        if (source, dest) not in NIBBLE_EXPONENTS or word.dtype.bits != 32:
            allowed = ", ".join(f"{a} to {b}" for a, b in NIBBLE_EXPONENTS)
            raise kernel_error(
                f"a 32-bit register must be unpacked from {allowed}, got {word.dtype.name} of "
                f"{source} to {dest}"
            )
        if source == "e2m1":
            return self._floats(word)
        if source == "s4":
            return self._masked(self._shifted("shl", word, 4), _HIGH), self._masked(word, _HIGH)
        parts = word, self._shifted("shr", word, 4)
        if not any(isinstance(zero, Reg) or zero for zero in zeros):
            return self._masked(parts[0], _LOW), self._masked(parts[1], _LOW)
        return self._less(parts[0], zeros[0]), self._less(parts[1], zeros[-1])

    def unpack_nibble_table(self, word: Reg, table: Sequence[int]) -> tuple[Reg, Reg]:
        """The eight nibbles of a 32-bit word, in order, as two registers of four bytes
        ``table[nibble]``, of 16 bytes. 12 instructions: each nibble selects a byte of either half
        of the table, then one of the two.
        """
        if len(table) != _TABLE or word.dtype.bits != 32:
            raise kernel_error(
                f"a 32-bit register must be unpacked by {_TABLE} bytes, got {word.dtype.name} and "
                f"{len(table)}"
            )
        quarters = [int.from_bytes(bytes(table[i : i + 4]), "little") for i in range(0, _TABLE, 4)]
        emit = self._emitter.compute
        places, halves = self._masked(word, 0x77777777), self._shifted("shr", word, 1)
        made = []
        for part in range(2):
            if part:
                places, halves = (self._shifted("shr", x, 16) for x in (places, halves))
            half = emit("lop3.b32", halves, 0x4444, 0x3210, _AND_OR, dtype="b32")
            low, high = (
                emit("prmt.b32", *quarters[i : i + 2], places, dtype="b32") for i in (0, 2)
            )
            made.append(emit("prmt.b32", low, high, half, dtype="b32"))
        return made[0], made[1]

    def _masked(self, word: Reg, mask: int) -> Reg:
        masked: Reg = self._emitter.compute("lop3.b32", word, mask, 0, _AND, dtype="b32")
        return masked

    def _shifted(self, operation: str, x: Reg, count: int) -> Reg:
        kind = "b32" if operation == "shl" else "u32"
        return self._emitter.compute(f"{operation}.{kind}", x, count, dtype="b32")

    def _less(self, word: Reg, zero: Any) -> Reg:
        """Lower nibbles less a zero point: 128 + u − z has no borrow, and bit 7 is flipped back."""
        emit = self._emitter.compute
        subtrahend = zero if isinstance(zero, Reg) else zero * _BYTES
        biased = emit("lop3.b32", word, _LOW, _SIGNS, _AND_OR, dtype="b32")
        less: Reg = emit("xor.b32", emit("sub.u32", biased, subtrahend), _SIGNS, dtype="b32")
        return less

    def _floats(self, word: Reg) -> tuple[Reg, Reg]:
        """Signs and magnitudes in place, of the lower and of the upper nibbles."""
        emit, made = self._emitter.compute, []
        for signs, magnitudes in (
            (self._shifted("shl", word, 4), self._shifted("shl", word, 2)),
            (word, self._shifted("shr", word, 2)),
        ):
            placed = self._masked(magnitudes, _PLACE)
            made.append(emit("lop3.b32", signs, _SIGNS, placed, _AND_OR, dtype="b32"))
        return made[0], made[1]
