"""Register memory: elements packed in a thread's registers, as an engine of tensors.

An element of 32 or 64 bits has a register of its own. Narrower elements are packed in 32-bit words,
the first one lowest, as in fragments of matrix instructions. Offsets must be static. For wide
elements ``[i]`` is the variable itself, which changes when the element is written (``k.mov`` copies
its current value); for narrow elements it is an extracted value.

    f16  %r1 = e1 e0   %r2 = e3 e2   …        f32  %f1 = e0   %f2 = e1   …
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ...dtypes import DTYPES, DType
from ..source_location import kernel_error
from .registers import Operations, Reg, Var, is_integer

_WIDTHS = (4, 8, 16, 32, 64)


class RegisterMemory:
    """``count`` elements of ``dtype`` in the registers ``words``; offset 0 is element ``position``.

    The words are variables unless the memory is only read.
    """

    __slots__ = ("count", "dtype", "position", "words")
    __array_ufunc__ = None  # numpy leaves operators to the registers

    def __init__(self, words: tuple[Reg, ...], dtype: DType, count: int, position: int = 0) -> None:
        self.words = words
        self.dtype = dtype
        self.count = count
        self.position = position

    def __repr__(self) -> str:
        start = f"+{self.position}" if self.position else ""
        return f"{self.dtype}[{self.count}]{start}"

    @property
    def k(self) -> Operations:
        return self.words[0].k

    @property
    def per(self) -> int:
        """Elements per register."""
        return max(1, self.words[0].dtype.bits // self.dtype.bits)

    def __add__(self, offset: Any) -> RegisterMemory:
        return RegisterMemory(self.words, self.dtype, self.count, self.position + _static(offset))

    def __getitem__(self, offset: int) -> Reg:
        word, index = self.locate(offset)
        return extract_element(word, self.dtype, index)

    def __setitem__(self, offset: int, value: Any) -> None:
        word, index = self.locate(offset)
        self.write_word(word, {index: value})

    def write_word(self, word: Any, values: dict[int, Any]) -> None:
        """Write values, by their index in a word and converted; other elements are preserved."""
        last = self.words[-1] is word and self.count % self.per
        others = set(range(last or self.per)) - values.keys()
        pack_elements(self.k, self.dtype, values, word, keep=bool(others))

    def locate(self, offset: int) -> tuple[Any, int]:
        """The word of an element, and the element's index in the word."""
        index = self.position + _static(offset)
        if not 0 <= index < self.count:
            raise kernel_error(
                f"an index of registers must be from 0 to {self.count - 1}, got {index}"
            )
        return self.words[index // self.per], index % self.per

    def is_register_aligned(self, count: int) -> bool:
        """Whether the first ``count`` elements are whole registers."""
        return self.position % self.per == 0 and count % self.per == 0

    def registers(self, count: int) -> tuple[Any, ...]:
        """The registers of the first ``count`` elements, which must be whole registers."""
        if not self.is_register_aligned(count):
            raise kernel_error(
                f"position and count must be multiples of the {self.per} elements of a register, "
                f"got {self.position} and {count} of {self.dtype}"
            )
        self.locate(0), self.locate(count - 1)
        first = self.position // self.per
        return self.words[first : first + count // self.per]

    def recast(self, dtype: DType) -> RegisterMemory:
        """The same registers as elements of another format."""
        old, word = self.dtype.bits, self.words[0].dtype.bits
        if dtype.bits > word or dtype.bits not in _WIDTHS:
            raise kernel_error(f"registers of {word} bits can't be recast to {dtype}")
        if self.position * old % dtype.bits:
            raise kernel_error(
                f"element {self.position} of {self.dtype} must be aligned to {dtype} for a recast"
            )
        count, position = (n * old // dtype.bits for n in (self.count, self.position))
        return RegisterMemory(self.words, dtype, count, position)

    def like(self, count: int, dtype: DType) -> RegisterMemory:
        """New registers for ``count`` elements."""
        return make_register_memory(self.k, count, dtype)


def _static(offset: Any) -> int:
    if not is_integer(offset):
        raise kernel_error(
            f"an index of registers must be static, got {offset!r}", "unroll the loop"
        )
    return operator.index(offset)


def register_format(dtype: DType) -> tuple[int, DType]:
    """(elements per register, the register's format)."""
    if dtype.name == "pred" or dtype.bits in (32, 64):
        return 1, dtype
    if dtype.bits not in _WIDTHS:
        raise kernel_error(
            f"elements in registers must have 4, 8, 16, 32 or 64 bits, got {dtype}",
            "hold the bits as b8 or b32",
        )
    return 32 // dtype.bits, DTYPES["b32"]


def make_register_memory(k: Operations, count: int, dtype: DType) -> RegisterMemory:
    """New registers for ``count`` elements, uninitialised."""
    per, word = register_format(dtype)
    return RegisterMemory(tuple(k.var(word) for _ in range(-(-count // per))), dtype, count)


# --- words and their elements ---------------------------------------------------------------------


def extract_element(word: Reg, dtype: DType, index: int) -> Reg:
    """Element ``index`` of a word."""
    k, bits = word.k, dtype.bits
    if bits == word.dtype.bits:
        return word if word.dtype is dtype else k.view(word, dtype)
    if 2 * bits == word.dtype.bits:
        return k.unpack(word, dtype)[index]
    low = k.view(word, "u32") >> (bits * index)
    if bits < 8:
        low = low & ((1 << bits) - 1)
    element: Reg = k.compute("cvt.u16.u32", low, dtype=dtype)
    return element


def pack_elements(
    k: Operations, dtype: DType, values: dict[int, Any], into: Var | None = None, keep: bool = False
) -> Any:
    """The word of values by their index, converted, and written to ``into`` if given; with ``keep``
    the other elements of ``into`` are preserved.
    """
    per, word = register_format(dtype)
    if len(values) == 2 == per and _rounds_pairs(dtype, values.values()):
        return k.emit(f"cvt.rn.{dtype.name}x2.f32", values[1], values[0], into=into, dtype=word)
    if per == 1 and into is not None and into.dtype is dtype and not isinstance(values[0], Reg):
        return k.mov(values[0], into=into)
    elements = {index: convert_element(k, dtype, value) for index, value in values.items()}
    if per == 1:
        return k.as_result(_viewed(elements[0], into.dtype if into is not None else word), into)
    if per == 2:
        if keep and into is not None:
            rest = k.unpack(into, dtype)
        else:
            rest = (elements[min(elements)],) * 2
        pair = [elements.get(i, rest[i]) for i in range(2)]
        return k.emit("mov.b32", pair, into=into, dtype=word)
    result = into if keep else k.mov(0, dtype=word, into=into)
    for index, value in elements.items():
        wide = k.emit("cvt.u32.u16", Reg(k, DTYPES["u16"], value.operand), dtype=word)
        result = k.emit("bfi.b32", wide, result, dtype.bits * index, dtype.bits, into=into)
    return result


def _viewed(value: Reg, dtype: DType) -> Reg:
    return value if value.dtype is dtype else value.view(dtype)


def _rounds_pairs(dtype: DType, values: Iterable[Any]) -> bool:
    """Whether one instruction rounds and packs both values."""
    floats = all(isinstance(v, Reg) and v.dtype.name == "f32" for v in values)
    return floats and dtype.name in ("f16", "bf16")


def convert_element(k: Operations, dtype: DType, value: Any) -> Reg:
    """A number or register as an element: converted, or viewed if either is untyped bits."""
    if not isinstance(value, Reg):
        constant: Reg = k.const(dtype, value)
        return constant
    given = value.dtype
    if given is dtype:
        return value
    same = given.bits == dtype.bits and "bits" in (given.kind, dtype.kind)
    return value.view(dtype) if same else value.to(dtype)
