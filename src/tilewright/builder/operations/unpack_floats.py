"""Packed 8- and 4-bit floats to pairs of f16 or bf16: bits in place, and one exact product.

The exponent and mantissa bits of a small float, put where the wide format has them, are the number
times 2^(difference of the biases), for subnormal numbers too. One multiplication by a power of two
makes them exact. e5m2 is the upper byte of an f16; e4m3 to f16 has an instruction.

    e4m3 in bf16   s0000eeeemmm0000   times 2¹²⁰        e2m1 in bf16   s000000eem000000   times 2¹²⁶

Words may be interleaved as ``unpack_integers`` describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes import DType
from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.register_class import checked_dtype
from ..values.registers import Reg

_AND, _AND_OR = 0xC0, 0xEA  # lop3's tables of a & b and (a & b) | c
_SIGNS = 0x80008000
# (source, dest): shift from a byte's place at the top of a half, mask of the magnitude, the factor
_PLACES = {
    ("e4m3", "bf16"): (4, 0x07F007F0, 2.0**120),
    ("e2m1", "bf16"): (6, 0x01C001C0, 2.0**126),
    ("e2m1", "f16"): (3, 0x0E000E00, 2.0**14),
}


class FloatUnpacking:
    """Fast conversions of packed floats."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def unpack_floats(
        self,
        word: Reg,
        source: str | DType,
        dest: str | DType = "f16",
        *,
        interleaved: bool = False,
    ) -> tuple[Reg, ...]:
        """The elements of a 32-bit word (e4m3, e5m2, e2m1) as pairs of f16 or bf16.

        Pair i holds elements 2i (lower half) and 2i + 1, whether or not the word is interleaved.
        All numbers are exact. An e4m3 NaN becomes ±480 in bf16. Instructions for a word of 4 bytes
        or 8 nibbles, without moves:

                            plain  interleaved
            e4m3 to f16        2        4        (sm_89)
            e4m3 to bf16      10        9        (sm_80)
            e5m2 to f16        2        2
            e2m1 to f16       21       19        (sm_80)
            e2m1 to bf16      21       19        (sm_80)
        """
        t, to = checked_dtype(source), checked_dtype(dest)
        known = (*_PLACES, ("e4m3", "f16"), ("e5m2", "f16"))
        if (t.name, to.name) not in known or word.dtype.bits != 32:
            allowed = ", ".join(f"{a} to {b}" for a, b in known)
            raise kernel_error(
                f"a 32-bit register must be unpacked from {allowed}, got {word.dtype.name} of "
                f"{t.name} to {to.name}"
            )
        if t.name == "e5m2":
            selectors = (0x2404, 0x3414) if interleaved else (0x1404, 0x3424)
            return tuple(self._prmt(word, 0, s, "f16x2") for s in selectors)
        if to.name == "f16" and t.name == "e4m3":
            return self._converted(word, interleaved)
        tops = self._nibble_tops if t.bits == 4 else self._byte_tops
        return tuple(self._placed(x, t.name, to.name) for x in tops(word, interleaved))

    def unpack_table(
        self, word: Reg, table: Sequence[int], dest: str | DType = "f16"
    ) -> tuple[Reg, ...]:
        """The eight nibbles of a 32-bit word as pairs of f16 or bf16, the bits ``table[nibble]`` of
        16 numbers. Pair i holds nibbles 2i (lower half) and 2i + 1. 22 instructions without moves:
        each nibble selects a byte of each quarter of the table, then one of the halves.
        """
        pair = f"{checked_dtype(dest).name}x2"
        if len(table) != 16 or word.dtype.bits != 32:
            raise kernel_error(
                f"a 32-bit register must be unpacked by 16 numbers, got {word.dtype.name} and "
                f"{len(table)}"
            )
        quarters = [
            sum((table[i + j] >> shift & 0xFF) << 8 * j for j in range(4))
            for shift in (0, 8)
            for i in range(0, 16, 4)
        ]
        emit = self._emitter.compute
        places = emit("lop3.b32", word, 0x77777777, 0, _AND, dtype="b32")
        halves = self._shifted("shr", word, 1)
        made: list[Reg] = []
        for part in range(2):
            if part:
                places, halves = (self._shifted("shr", x, 16) for x in (places, halves))
            half = emit("lop3.b32", halves, 0x4444, 0x3210, _AND_OR, dtype="b32")
            of_places = [
                emit("prmt.b32", low, high, places, dtype="b32")
                for low, high in zip(quarters[::2], quarters[1::2], strict=True)
            ]
            low, high = (emit("prmt.b32", *of_places[i : i + 2], half, dtype="b32") for i in (0, 2))
            made += [self._prmt(low, high, s, pair) for s in (0x5140, 0x7362)]
        return tuple(made)

    def _prmt(self, a: Reg, b: Any, selector: int, dtype: str) -> Reg:
        return self._emitter.compute("prmt.b32", a, b, selector, dtype=dtype)

    def _converted(self, word: Reg, interleaved: bool) -> tuple[Reg, ...]:
        """Pairs of bytes by the conversion instruction."""
        if interleaved:
            parts = [self._prmt(word, 0, s, "b32") for s in (0x4420, 0x4431)]
            halves = [self._halves(part)[0] for part in parts]
        else:
            halves = list(self._halves(word))
        opcode = "cvt.rn.f16x2.e4m3x2"
        return tuple(self._emitter.compute(opcode, half, dtype="f16x2") for half in halves)

    def _halves(self, word: Reg) -> tuple[Reg, Reg]:
        low, high = self._emitter.emit("mov.b32", word, dtype="b16", vector=2)
        return low, high

    def _byte_tops(self, word: Reg, interleaved: bool) -> list[Reg]:
        """Registers with an element at the top of each half; the bits below are arbitrary."""
        if interleaved:
            return [self._shifted("shl", word, 8), word]
        return [self._prmt(word, 0, s, "b32") for s in (0x1404, 0x3424)]

    def _nibble_tops(self, word: Reg, interleaved: bool) -> list[Reg]:
        if interleaved:
            return [*(self._shifted("shl", word, 12 - 4 * i) for i in range(3)), word]
        up = self._shifted("shl", word, 4)
        return [self._prmt(up, word, (4 + i) << 12 | i << 4, "b32") for i in range(4)]

    def _shifted(self, operation: str, x: Reg, count: int) -> Reg:
        kind = "b32" if operation == "shl" else "u32"
        return self._emitter.compute(f"{operation}.{kind}", x, count, dtype="b32")

    def _placed(self, x: Reg, source: str, dest: str) -> Reg:
        """Sign and magnitude in place, times the factor; −0 keeps its sign."""
        shift, mask, factor = _PLACES[source, dest]
        emit, pair = self._emitter.compute, f"{dest}x2"
        magnitude = emit("lop3.b32", self._shifted("shr", x, shift), mask, 0, _AND, dtype="b32")
        bits = emit("lop3.b32", x, _SIGNS, magnitude, _AND_OR, dtype=pair)
        return emit(f"fma.rn.{pair}", bits, factor, -0.0)
