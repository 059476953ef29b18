"""Register memory: elements packed in a thread's registers, as an engine of tensors.

An element of 32 bits or more has a register of its own; narrower ones lie side by side in words of
32 bits, the first lowest, as fragments of matrix instructions have them. Offsets are static:
registers have no addresses. ``[i]`` of the former is the variable itself, which changes when the
element is written (``k.mov`` takes its value now); of the latter a value that was taken out.

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
    """``count`` elements of ``dtype`` in the registers ``words``, seen from ``position`` on. The
    words are variables, unless nothing will be written to them.
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
        """Elements of a register."""
        return max(1, self.words[0].dtype.bits // self.dtype.bits)

    def __add__(self, offset: Any) -> RegisterMemory:
        return RegisterMemory(self.words, self.dtype, self.count, self.position + _static(offset))

    def __getitem__(self, offset: int) -> Reg:
        word, place = self.place(offset)
        return extract_element(word, self.dtype, place)

    def __setitem__(self, offset: int, value: Any) -> None:
        word, place = self.place(offset)
        self.write_word(word, {place: value})

    def write_word(self, word: Any, values: dict[int, Any]) -> None:
        """Write values at places of a word, converted; its other elements stay."""
        last = self.words[-1] is word and self.count % self.per
        kept = set(range(last or self.per)) - values.keys()
        pack_elements(self.k, self.dtype, values, word, keep=bool(kept))

    def place(self, offset: int) -> tuple[Any, int]:
        """The word that an element is in, and where."""
        index = self.position + _static(offset)
        if not 0 <= index < self.count:
            raise kernel_error(f"element {index} of {self.count} in registers")
        return self.words[index // self.per], index % self.per

    def is_register_aligned(self, count: int) -> bool:
        """Whether ``count`` elements from here on are whole registers."""
        return self.position % self.per == 0 and count % self.per == 0

    def registers(self, count: int) -> tuple[Any, ...]:
        """The whole registers of ``count`` elements from here on."""
        if not self.is_register_aligned(count):
            raise kernel_error(
                f"{count} elements of {self.dtype} from {self.position} on are no whole registers",
                f"a register holds {self.per}",
            )
        self.place(0), self.place(count - 1)
        first = self.position // self.per
        return self.words[first : first + count // self.per]

    def recast(self, dtype: DType) -> RegisterMemory:
        """The same registers as elements of another format."""
        old, word = self.dtype.bits, self.words[0].dtype.bits
        if dtype.bits > word or dtype.bits not in _WIDTHS:
            raise kernel_error(f"registers of {word} bits hold no elements of {dtype}")
        if self.position * old % dtype.bits:
            raise kernel_error(
                f"recast to {dtype}: element {self.position} of {self.dtype} is within one"
            )
        count, position = (n * old // dtype.bits for n in (self.count, self.position))
        return RegisterMemory(self.words, dtype, count, position)

    def like(self, count: int, dtype: DType) -> RegisterMemory:
        """New registers for ``count`` elements."""
        return make_register_memory(self.k, count, dtype)


def _static(offset: Any) -> int:
    if not is_integer(offset):
        raise kernel_error(
            f"registers have no addresses: their index is static, not {offset!r}", "unroll"
        )
    return operator.index(offset)


def register_format(dtype: DType) -> tuple[int, DType]:
    """(elements of a register, the register's format)."""
    if dtype.name == "pred" or dtype.bits in (32, 64):
        return 1, dtype
    if dtype.bits not in _WIDTHS:
        raise kernel_error(f"{dtype} does not fill registers", "hold its bits as b8, or as b32")
    return 32 // dtype.bits, DTYPES["b32"]


def make_register_memory(k: Operations, count: int, dtype: DType) -> RegisterMemory:
    """New registers for ``count`` elements; nothing is in them yet."""
    per, word = register_format(dtype)
    return RegisterMemory(tuple(k.var(word) for _ in range(-(-count // per))), dtype, count)


# --- words and their elements ---------------------------------------------------------------------


def extract_element(word: Reg, dtype: DType, place: int) -> Reg:
    """An element of a word."""
    k, bits = word.k, dtype.bits
    if bits == word.dtype.bits:
        return word if word.dtype is dtype else k.view(word, dtype)
    if 2 * bits == word.dtype.bits:
        return k.unpack(word, dtype)[place]
    low = k.view(word, "u32") >> (bits * place)
    if bits < 8:
        low = low & ((1 << bits) - 1)
    made: Reg = k.compute("cvt.u16.u32", low, dtype=dtype)
    return made


def pack_elements(
    k: Operations, dtype: DType, parts: dict[int, Any], into: Var | None = None, keep: bool = False
) -> Any:
    """The word of these values by their places, converted, written to ``into`` where that is given;
    with ``keep`` its other places stay as they are there.
    """
    per, word = register_format(dtype)
    if len(parts) == 2 == per and _rounds_pairs(dtype, parts.values()):
        return k.emit(f"cvt.rn.{dtype.name}x2.f32", parts[1], parts[0], into=into, dtype=word)
    if per == 1 and into is not None and into.dtype is dtype and not isinstance(parts[0], Reg):
        return k.mov(parts[0], into=into)
    held = {place: convert_element(k, dtype, value) for place, value in parts.items()}
    if per == 1:
        return k.as_result(_viewed(held[0], into.dtype if into is not None else word), into)
    if per == 2:
        rest = k.unpack(into, dtype) if keep and into is not None else (held[min(held)],) * 2
        pair = [held.get(i, rest[i]) for i in range(2)]
        return k.emit("mov.b32", pair, into=into, dtype=word)
    result = into if keep else k.mov(0, dtype=word, into=into)
    for place, value in held.items():
        wide = k.emit("cvt.u32.u16", Reg(k, DTYPES["u16"], value.operand), dtype=word)
        result = k.emit("bfi.b32", wide, result, dtype.bits * place, dtype.bits, into=into)
    return result


def _viewed(value: Reg, dtype: DType) -> Reg:
    return value if value.dtype is dtype else value.view(dtype)


def _rounds_pairs(dtype: DType, values: Iterable[Any]) -> bool:
    """Whether one instruction converts two values."""
    floats = all(isinstance(v, Reg) and v.dtype.name == "f32" for v in values)
    return floats and dtype.name in ("f16", "bf16")


def convert_element(k: Operations, dtype: DType, value: Any) -> Reg:
    """A number or register as an element: converted, or where either is untyped bits, as it is."""
    if not isinstance(value, Reg):
        made: Reg = k.const(dtype, value)
        return made
    given = value.dtype
    if given is dtype:
        return value
    same = given.bits == dtype.bits and "bits" in (given.kind, dtype.kind)
    return value.view(dtype) if same else value.to(dtype)
