"""The conversions of packed elements to f16, bf16, e4m3 and s8: instructions and exactness.

Each row is a recipe of the kernel builder (``k.unpack_integers``, ``k.unpack_floats``,
``k.unpack_nibbles``), which is its only implementation: kernels emit it, ``opcodes`` counts it,
and the virtual machine runs it. The recipe of FasterTransformer and CUTLASS for biased, interleaved
bytes is ``s8 to f16, biased, interleaved``: two ``prmt`` insert bytes into 0x6400, and one ``sub``
each removes 1024 + 128.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..builder import Builder, Reg, trace
from ..builder.operations.unpack_integers import SCALED_EXPONENT, pack_codes, pack_integers
from ..builder.operations.unpack_nibbles import NIBBLE_EXPONENTS, NIBBLE_ORDER
from ..dtypes import dtype
from ..errors import DtypeError
from ..number_conversion import decode, encode
from ..ptx import tree
from .weight_types import NF4, is_integer, weight_type

_EXACT = "exact"
_ROUNDED = "rounded to nearest even"
_NAN = "exact; a NaN becomes ±480"


@dataclass(frozen=True)
class ElementConversion:
    """A recipe for a 32-bit word of 4 or 8 elements.

    ``interleaved``: the order of the elements in the word, as ``k.unpack_integers`` and
    ``k.unpack_nibbles`` document; ``biased``: 2^(bits − 1) is added to signed elements.
    ``instructions``: for a word, without moves. ``exactness``: which elements are converted
    exactly. ``exponent``: of the power of two that the results are multiplied by.
    """

    source: str
    dest: str
    interleaved: bool
    biased: bool
    instructions: int
    exactness: str = _EXACT
    exponent: int = 0

    @property
    def name(self) -> str:
        """``"u4 to bf16, interleaved, times 2^-6"``."""
        words = ", biased" * self.biased + ", interleaved" * self.interleaved
        words += f", times 2^{self.exponent}" * bool(self.exponent)
        return f"{self.source} to {self.dest}{words}"

    @property
    def elements(self) -> int:
        """The number of elements in a word."""
        return 32 // weight_type(self.source).bits

    @property
    def to_bytes(self) -> bool:
        """Whether a register of results has four, not two."""
        return dtype(self.dest).bits == 8

    def emit(self, k: Builder, word: Reg, zeros: Sequence[Any] = ()) -> tuple[Reg, ...]:
        """The elements of a word as registers of pairs or four bytes, in order. ``zeros``: zero
        points of integers, as ``k.unpack_integers`` and ``k.unpack_nibbles`` take them; a table
        needs one number.
        """
        if self.to_bytes and self.interleaved:
            return k.unpack_nibbles(word, self.source, self.dest, zeros=zeros)
        if self.to_bytes:
            numbers = decode(self.source, np.arange(16)).astype(float) - (zeros[0] if zeros else 0)
            return k.unpack_nibble_table(word, encode(self.dest, numbers).tolist())
        if self.source == "nf4":
            return k.unpack_table(word, encode(self.dest, NF4).tolist(), self.dest)
        if dtype(self.source).kind == "float":
            return k.unpack_floats(word, self.source, self.dest, interleaved=self.interleaved)
        return k.unpack_integers(
            word, self.source, self.dest, interleaved=self.interleaved, biased=self.biased,
            zeros=zeros, scaled=self.exponent != 0,
        )  # fmt: skip

    def pack(self, values: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """Elements (…, n) as the words that the recipe reads: integers' values, floats' codes."""
        if self.to_bytes:
            return self.pack_codes(np.asarray(values) & 0xF)
        if not is_integer(self.source):
            width = f"u{weight_type(self.source).bits}"
            return pack_integers(values, width, interleaved=self.interleaved)
        return pack_integers(values, self.source, interleaved=self.interleaved, biased=self.biased)

    def pack_codes(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """``pack`` of elements' codes, also of integers."""
        if self.to_bytes:
            order = NIBBLE_ORDER if self.interleaved else range(8)
            words = codes.reshape(*codes.shape[:-1], -1, 8)[..., list(order)]
            return pack_codes(words.reshape(codes.shape), "u4")
        width = f"u{weight_type(self.source).bits}"
        source = self.source if is_integer(self.source) else width
        return pack_codes(codes, source, interleaved=self.interleaved, biased=self.biased)

    def opcodes(self) -> tuple[str, ...]:
        """The PTX instructions for a word, without moves."""

        def body(k: Builder, word: Reg) -> None:
            self.emit(k, word)

        traced = trace(body, params={"word": "b32"}, name="conversion", lines=False)
        found = [s.opcode for s in traced.entry.body or () if isinstance(s, tree.Instruction)]
        return tuple(op for op in found if not op.startswith(("mov", "ld", "ret")))


def _integers() -> Iterator[ElementConversion]:
    """(f16, f16 interleaved, bf16, bf16 interleaved) for each kind of element."""
    counts = {
        ("u8", False): (4, 4, 10, 9), ("s8", True): (4, 4, 8, 7), ("s8", False): (5, 5, 8, 7),
        **dict.fromkeys((("u4", False), ("s4", True), ("s4", False)), (12, 9, 13, 11)),
    }  # fmt: skip
    for (source, biased), numbers in counts.items():
        forms = ((dest, interleaved) for dest in ("f16", "bf16") for interleaved in (False, True))
        for (dest, interleaved), count in zip(forms, numbers, strict=True):
            yield ElementConversion(source, dest, interleaved, biased, count)
    for source, biased in (("u4", False), ("s4", True), ("s4", False)):
        yield ElementConversion(source, "bf16", True, biased, 9, exponent=SCALED_EXPONENT)


def _floats() -> Iterator[ElementConversion]:
    for source, dest, counts, exactness in (
        ("e4m3", "f16", (2, 4), _EXACT),
        ("e4m3", "bf16", (10, 9), _NAN),
        ("e5m2", "f16", (2, 2), _EXACT),
        ("e2m1", "f16", (21, 19), _EXACT),
        ("e2m1", "bf16", (21, 19), _EXACT),
    ):
        for interleaved, count in zip((False, True), counts, strict=True):
            yield ElementConversion(source, dest, interleaved, False, count, exactness)
    for dest in ("f16", "bf16"):
        yield ElementConversion("nf4", dest, False, False, 22, _ROUNDED)


def _nibbles() -> Iterator[ElementConversion]:
    """4-bit elements to bytes, by masks or a table."""
    for (source, dest), exponent in NIBBLE_EXPONENTS.items():
        count = 7 if source == "e2m1" else 3
        yield ElementConversion(source, dest, True, False, count, exponent=exponent)
    for source in ("u4", "s4"):
        yield ElementConversion(source, "e4m3", False, False, 12)


CONVERSIONS: tuple[ElementConversion, ...] = (*_integers(), *_floats(), *_nibbles())


def conversion(
    source: str, dest: str, *, interleaved: bool = False, biased: bool = False, exponent: int = 0
) -> ElementConversion:
    """The row of these properties. Raises DtypeError if there is none."""
    for row in CONVERSIONS:
        if (row.source, row.dest, row.interleaved, row.biased, row.exponent) == (
            source, dest, interleaved, biased, exponent,
        ):  # fmt: skip
            return row
    known = ", ".join(dict.fromkeys(f"{row.source} to {row.dest}" for row in CONVERSIONS))
    raise DtypeError(
        f"a conversion must be one of {known}, got {source} to {dest}"
        + ", biased" * biased + ", interleaved" * interleaved
    )  # fmt: skip


def fastest(source: str, dest: str, zero: int = 0) -> ElementConversion:
    """The row with the fewest instructions, which subtracts the zero point ``zero`` of all
    elements. Raises DtypeError if there is none.
    """
    rows = [row for row in CONVERSIONS if (row.source, row.dest) == (source, dest)]
    if zero and dest == "e4m3":
        rows = [row for row in rows if not row.interleaved]
    return min(rows, key=lambda row: row.instructions) if rows else conversion(source, dest)


def table() -> str:
    """All rows as text: instructions for a word, per element, exactness."""
    lines = [f"{'conversion':<43} {'word':>4} {'element':>7}  exactness"]
    for row in CONVERSIONS:
        share = row.instructions / row.elements
        lines.append(f"{row.name:<43} {row.instructions:>4} {share:>7.2f}  {row.exactness}")
    return "\n".join(lines)
