"""Packed integers to pairs of f16 or bf16: a few bit operations instead of conversions.

A small integer inserted into the mantissa of a power of two gives the sum of both: 0x6400 is 1024
in f16, so 0x6400 | u is 1024 + u, and one exact subtraction gives u. ``prmt`` inserts bytes; one
``lop3`` masks, inserts and flips bits: (word & mask) ^ magic. Conversion instructions have at most
a quarter of their throughput.

The elements of a word may be *interleaved*, so that one mask selects an even element in the lower
half and the following odd one in the upper half. ``pack_integers`` makes such words from NumPy
arrays:

    8 bits, from the lowest:  e0 e2 e1 e3                4 bits:  e0 e2 e4 e6 e1 e3 e5 e7

Signed elements are two's complement, or *biased*: 2^(bits − 1) added, so none is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bit_packing import pack
from ...dtypes import DType, dtype
from ...number_conversion import encode
from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.register_class import checked_dtype
from ..values.registers import Reg

_SOURCES = ("u8", "s8", "u4", "s4")
_DESTS = ("f16", "bf16")
_ORDER = {8: (0, 2, 1, 3), 4: (0, 2, 4, 6, 1, 3, 5, 7)}
SCALED_EXPONENT = -6
_AND_XOR = 0x6A  # lop3's table of (a & b) ^ c


def interleaved_order(source: str | DType) -> tuple[int, ...]:
    """The element at each position of a word, from the lowest."""
    return _ORDER[dtype(source).bits]


def pack_integers(
    values: npt.ArrayLike, source: str, *, interleaved: bool = False, biased: bool = False
) -> npt.NDArray[np.uint32]:
    """Integers (…, n) as the words (…, n · bits / 32) that ``k.unpack_integers`` reads.

    Values out of the type's range wrap. Raises DtypeError if n elements do not fill whole words.
    """
    codes = encode(dtype(f"u{dtype(source).bits}"), np.asarray(values).astype(np.int64))
    return pack_codes(np.asarray(codes), source, interleaved=interleaved, biased=biased)


def pack_codes(
    codes: npt.NDArray[Any], source: str, *, interleaved: bool = False, biased: bool = False
) -> npt.NDArray[np.uint32]:
    """Codes (…, n), two's complement of signed types, as ``pack_integers`` packs their integers."""
    t = dtype(source)
    if biased and t.kind == "int":
        codes = codes ^ codes.dtype.type(1 << (t.bits - 1))
    order = interleaved_order(t)
    if interleaved and codes.shape[-1] % len(order) == 0:
        codes = codes.reshape(*codes.shape[:-1], -1, len(order))[..., order].reshape(codes.shape)
    return pack(f"u{t.bits}", codes, np.uint32)


def _both(half: int) -> int:
    return half << 16 | half


class _Offset:
    """What is subtracted from a converted pair: the type's bias, and a zero point, which is a
    number or a register.
    """

    def __init__(self, emitter: Emitter, pair: str, bias: int, point: Any) -> None:
        self._emitter, self._pair = emitter, pair
        in_register = isinstance(point, Reg)
        self.bias: Any = bias if in_register else bias + point
        self.point: Any = point if in_register else None
        self.is_none = self.point is None and self.bias == 0

    def above(self, magic: int) -> Any:
        """The offset plus a power of two."""
        if self.point is None:
            return float(magic + self.bias)
        return self._emitter.compute(f"add.rn.{self._pair}", self.point, float(magic + self.bias))

    def below(self, number: Any, factor: float = 1.0) -> Any:
        """A number, which includes the bias, or a pair of such numbers, minus the zero point times
        a power of two.
        """
        if self.point is None:
            return number
        return self._emitter.compute(f"fma.rn.{self._pair}", self.point, -factor, number)


_Offsets = list[_Offset]


class IntegerUnpacking:
    """Fast exact conversions of packed integers."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def unpack_integers(
        self,
        word: Reg,
        source: str | DType,
        dest: str | DType = "f16",
        *,
        interleaved: bool = False,
        biased: bool = False,
        zeros: Sequence[Any] = (),
        scaled: bool = False,
    ) -> tuple[Reg, ...]:
        """The elements of a 32-bit word (u8, s8, u4, s4) as pairs of f16 or bf16, exactly.

        Pair i holds elements 2i (lower half) and 2i + 1, whether or not the word is interleaved.
        ``zeros``: zero points that are subtracted, exactly; pair i has the i-th of them, in turn.
        Each is an integer of the type's range, or a register of two equal ones in ``dest``'s
        format. They add one instruction for each pair of s8 to bf16, and none else.
        ``scaled``: elements times 2^SCALED_EXPONENT, of interleaved u4 and s4 to bf16.
        Instructions for a word of 4 bytes or 8 nibbles, without moves of constants:

                            f16                  bf16 (sm_80)
                            plain  interleaved   plain  interleaved
            u8                4        4           10        9
            s8 biased         4        4            8        7
            s8                5        5            8        7
            u4, s4 (both)    12        9           13       11, scaled 9
        """
        t, to = checked_dtype(source), checked_dtype(dest)
        if t.name not in _SOURCES or to.name not in _DESTS or word.dtype.bits != 32:
            raise kernel_error(
                f"a 32-bit register of {', '.join(_SOURCES)} must be unpacked to "
                f"{' or '.join(_DESTS)}, got {word.dtype.name} of {t.name} to {to.name}"
            )
        if biased and t.kind != "int":
            raise kernel_error(f"biased must be given for s8 and s4 only, got {t.name}")
        if scaled and not (interleaved and t.bits == 4 and to.name == "bf16"):
            raise kernel_error(f"scaled must be of interleaved u4 or s4 to bf16, got {t.name}")
        half = 1 << (t.bits - 1)
        signed = t.kind == "int"
        bias, flip = half if signed else 0, half if signed and not biased else 0
        points = [_Offset(self._emitter, f"{to.name}x2", bias, z) for z in zeros or (0,)]
        pairs = [points[i % len(points)] for i in range(16 // t.bits)]
        unpack = {
            ("f16", 8): self._bytes_to_f16,
            ("bf16", 8): self._bytes_to_bf16,
            ("f16", 4): self._nibbles_to_f16,
            ("bf16", 4): self._nibbles_to_scaled_bf16 if scaled else self._nibbles_to_bf16,
        }[to.name, t.bits]
        return tuple(unpack(word, interleaved, pairs, flip))

    def _masked(self, word: Reg, mask: int, magic: int, dtype: str) -> Reg:
        """(word & mask) ^ magic."""
        masked: Reg = self._emitter.compute("lop3.b32", word, mask, magic, _AND_XOR, dtype=dtype)
        return masked

    def _bytes_to_f16(self, word: Reg, interleaved: bool, zeros: _Offsets, flip: int) -> list[Reg]:
        """Two prmt give 1024 + u for each element; s8 is biased first."""
        if flip:
            word = self._emitter.compute("xor.b32", word, 0x80808080, dtype=word.dtype)
        pairs = []
        selectors = (0x4240, 0x4341) if interleaved else (0x4140, 0x4342)
        for select, zero in zip(selectors, zeros, strict=True):
            x = self._emitter.compute("prmt.b32", word, 0x64646464, select, dtype="f16x2")
            pairs.append(self._emitter.compute("sub.rn.f16x2", x, zero.above(1024)))
        return pairs

    def _bytes_to_bf16(self, word: Reg, interleaved: bool, zeros: _Offsets, flip: int) -> list[Reg]:
        """The mantissa of a bf16 has seven bits, so bit 7 selects which power is subtracted.

        128 + (u & 127) minus 128 or 256, depending on bit 7, is the two's complement; with bit 7
        flipped it is u − 128.
        """
        pairs = []
        for i in range(2):
            if not interleaved:
                part = self._emitter.compute("prmt.b32", word, 0, (0x4140, 0x4342)[i], dtype="b32")
            else:
                part = self._emitter.compute("shr.b32", word, 8, dtype="b32") if i else word
            low = self._masked(part, _both(0x7F), _both(0x4300), "bf16x2")
            high = self._masked(part, _both(0x80), _both(0x4300 if flip else 0x4380), "bf16x2")
            x = self._emitter.compute("fma.rn.bf16x2", high, -1.0, low)
            # x is the element less 128
            zero = zeros[i]
            if zero.bias != 128 or zero.point is not None:
                x = self._emitter.compute("fma.rn.bf16x2", x, 1.0, zero.below(128.0 - zero.bias))
            pairs.append(x)
        return pairs

    def _nibbles_to_f16(
        self, word: Reg, interleaved: bool, zeros: _Offsets, flip: int
    ) -> list[Reg]:
        """1024 + u for a lower nibble; 1024 + 16u for an upper one, corrected by an FMA."""
        pairs: list[Any] = []
        if interleaved:
            for i, part in enumerate(
                (word, self._emitter.compute("shr.b32", word, 8, dtype="b32"))
            ):
                even, odd = zeros[2 * i : 2 * i + 2]
                x = self._masked(part, _both(0x0F), _both(0x6400 | flip), "f16x2")
                pairs.append(self._emitter.compute("sub.rn.f16x2", x, even.above(1024)))
                x = self._masked(part, _both(0xF0), _both(0x6400 | flip << 4), "f16x2")
                pairs.append(
                    self._emitter.compute("fma.rn.f16x2", x, 1 / 16, odd.below(-64.0 - odd.bias))
                )
            return pairs
        factor = self._pair(1.0, 1 / 16)
        for i, zero in enumerate(zeros):
            offset = zero.below(self._pair(-1024.0 - zero.bias, -64.0 - zero.bias))
            part = self._emitter.compute("prmt.b32", word, word, 0x1111 * i, dtype="b32")
            magic = (0x6400 | flip << 4) << 16 | 0x6400 | flip
            x = self._masked(part, 0x00F0000F, magic, "f16x2")
            pairs.append(self._emitter.compute("fma.rn.f16x2", x, factor, offset))
        return pairs

    def _pair(self, low: float, high: float) -> Reg:
        bits = [int(encode("f16", x)) for x in (low, high)]
        return self._emitter.constant(checked_dtype("f16x2"), bits[1] << 16 | bits[0])

    def _nibbles_to_bf16(
        self, word: Reg, interleaved: bool, zeros: _Offsets, flip: int
    ) -> list[Reg]:
        """128 + u; upper nibbles are shifted down first."""
        down = None if interleaved else self._emitter.compute("shr.b32", word, 4, dtype="b32")
        pairs = []
        for i in range(4):
            if down is not None:
                part = self._emitter.compute("prmt.b32", word, down, (4 + i) << 8 | i, dtype="b32")
            else:
                part = self._emitter.compute("shr.b32", word, 4 * i, dtype="b32") if i else word
            x = self._masked(part, _both(0x0F), _both(0x4300 | flip), "bf16x2")
            pairs.append(
                self._emitter.compute(
                    "fma.rn.bf16x2", x, 1.0, zeros[i].below(-128.0 - zeros[i].bias)
                )
            )
        return pairs

    def _nibbles_to_scaled_bf16(
        self, word: Reg, interleaved: bool, zeros: _Offsets, flip: int
    ) -> list[Reg]:
        """The lower eight bits of a bf16 are 2^-133 times an integer, in subnormal and in the
        smallest normal numbers alike. So one mask leaves a lower nibble and another one 16 times an
        upper nibble, and an FMA multiplies by 2^127 or 2^123.
        """
        pairs: list[Reg] = []
        factor = 2.0**SCALED_EXPONENT
        parts = word, self._emitter.compute("shr.b32", word, 8, dtype="b32")
        for i, zero in enumerate(zeros):
            up = 4 * (i % 2)
            x = self._masked(parts[i // 2], _both(0x0F << up), _both(flip << up), "bf16x2")
            offset = zero.below(-zero.bias * factor, factor)
            pairs.append(self._emitter.compute("fma.rn.bf16x2", x, 2.0 ** (127 - up), offset))
        return pairs
