"""Elements of tensors as registers, and back: what copies and all element-wise work rest on.

What two tensors hold side by side alike goes by vectors, as wide as both layouts and what is known
of their alignment allow. Narrow elements in registers are taken out of whole words, and written as
whole words where all of one is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any

from ...dtypes import DType
from ...errors import LayoutError
from ...layout import (
    Layout,
    Tensor,
    composition,
    make_fragment_like,
    max_common_layout,
    nullspace,
    zipped_divide,
)
from ...layout.composed_layout import inside
from ...layout.memory.vectorization import alignment
from ..emitter import Emitter
from ..operations.value_conversions import ConversionOperations
from ..operations.variables import Variables
from ..source_location import kernel_error
from ..values.address_terms import iterate_slices
from ..values.pointer import Pointer
from ..values.register_memory import (
    RegisterMemory,
    extract_element,
    make_register_memory,
    pack_elements,
    register_format,
)
from ..values.registers import Var

_WIDEST = 128  # bits that one load or store moves


class TensorElements:
    """Reading and writing whole tensors."""

    def __init__(
        self, emitter: Emitter, variables: Variables, conversions: ConversionOperations
    ) -> None:
        self._emitter = emitter
        self._variables = variables
        self._conversions = conversions

    def values(self, tensor: Tensor) -> list[Any]:
        """The elements of a tensor in order, each in a register."""
        if isinstance(tensor.engine, Pointer):
            loaded = make_fragment_like(tensor)
            self.move(tensor, loaded)
            tensor = loaded
        if not isinstance(tensor.engine, RegisterMemory):
            return list(tensor.elements())
        engine, halves = tensor.engine, {}
        found = []
        for i in range(tensor.size()):
            word, place = engine.place(tensor.layout(i))
            if 2 * engine.dtype.bits == word.dtype.bits:  # both at once
                if word not in halves:
                    halves[word] = self._conversions.unpack(word, engine.dtype)
                found.append(halves[word][place])
            else:
                found.append(extract_element(word, engine.dtype, place))
        return found

    def write(self, tensor: Tensor, values: Sequence[Any]) -> None:
        """Write all elements of a tensor in order, converted to its format."""
        engine = tensor.engine
        if isinstance(engine, Pointer):
            layout = make_fragment_like(tensor.layout)
            self.move(Tensor(self._packed(tensor.dtype, layout, values), layout), tensor)
            return
        if not isinstance(engine, RegisterMemory):
            raise kernel_error(f"{tensor} has no memory to write to")
        given: dict[Any, dict[int, Any]] = {}
        written = set()
        for i, value in enumerate(values):
            word, place = engine.place(tensor.layout(i))
            own = word.operand
            if isinstance(value, Var) and value.operand != own and value.operand in written:
                value = self._variables.mov(value)  # what it holds before all is written
            written.add(own)
            given.setdefault(word, {})[place] = value
        for word, parts in given.items():
            engine.write_word(word, parts)

    def _packed(self, dtype: DType, layout: Layout, values: Sequence[Any]) -> RegisterMemory:
        """Registers with these values in a layout without gaps."""
        per, _ = register_format(dtype)
        given: list[dict[int, Any]] = [{} for _ in range(-(-layout.cosize() // per))]
        for i, value in enumerate(values):
            place = layout(i)
            given[place // per][place % per] = value
        return RegisterMemory(
            tuple(pack_elements(self._emitter.k, dtype, p) for p in given), dtype, layout.cosize()
        )

    # --- moves -------------------------------------------------------------------------------

    def move(self, src: Tensor, dst: Tensor) -> None:
        """Copy between memory and registers, of tensors of one format, by vectors."""
        src, dst = _once(src, dst)
        count, parts = _by_vectors(src, dst)
        for one, other in zip(*map(iterate_slices, parts), strict=True):
            self.move_bits(one.at(0), other.at(0), count * src.dtype.bits)

    def move_bits(self, src: Any, dst: Any, bits: int) -> None:
        """Move this number of bits from one engine to the other, by the fewest instructions."""
        count = bits // src.dtype.bits
        if isinstance(src, Pointer) and isinstance(dst, Pointer):
            held = make_register_memory(self._emitter.k, count, src.dtype)
            self._load(src, held, count)
            self._store(held, dst, count)
        elif isinstance(src, Pointer):
            self._load(src, dst, count)
        elif isinstance(dst, Pointer):
            self._store(src, dst, count)
        else:
            self._between_registers(src, dst, count)

    def _load(self, src: Pointer, dst: RegisterMemory, count: int) -> None:
        if not dst.is_register_aligned(count):
            for i in range(count):
                dst[i] = src[i]
            return
        for i, words in _parts(dst.registers(count)):
            src.cast(words[0].dtype).load(len(words), index=i, into=words)

    def _store(self, src: RegisterMemory, dst: Pointer, count: int) -> None:
        if not src.is_register_aligned(count):
            for i in range(count):
                dst[i] = src[i]
            return
        for i, words in _parts(src.registers(count)):
            dst.cast(words[0].dtype).store(words, index=i)

    def _between_registers(self, src: RegisterMemory, dst: RegisterMemory, count: int) -> None:
        if src.is_register_aligned(count) and dst.is_register_aligned(count):
            for one, other in zip(src.registers(count), dst.registers(count), strict=True):
                other.set(one if one.dtype is other.dtype else one.view(other.dtype))
            return
        for i in range(count):
            dst[i] = src[i]


def _once(src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor]:
    """Without what the destination holds once and would be given again and again."""
    repeats = nullspace(inside(dst.layout))
    if repeats.size() == 1:
        return src, dst
    one, other = (zipped_divide(x, repeats)[0, None] for x in (src, dst))
    return one, other


def _by_vectors(src: Tensor, dst: Tensor) -> tuple[int, tuple[Tensor, Tensor]]:
    """(elements of a vector, both as (vector, vectors)): contiguous in both, a power of two,
    aligned, in 16 bytes.
    """
    common = max_common_layout(src.layout, dst.layout)
    count = gcd(common.size(), _WIDEST // src.dtype.bits)
    while True:
        try:
            tile = composition(common, Layout(count))
            one, other = zipped_divide(src, tile), zipped_divide(dst, tile)
        except LayoutError:
            pass  # the rest is no layout; that of fewer elements may be
        else:
            if count == 1 or (_aligned(one, count) and _aligned(other, count)):
                return count, (one, other)
        count //= 2


def _aligned(divided: Tensor, count: int) -> bool:
    """Whether each vector is known to begin at a multiple of its size."""
    engine, between = divided.engine, alignment(divided.layout[1])
    if isinstance(engine, RegisterMemory):
        return bool(count % engine.per == 0 and gcd(between, engine.position) % engine.per == 0)
    return bool(gcd(between, 8 * engine.alignment // divided.dtype.bits) % count == 0)


def _parts(words: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Registers by as many as one instruction moves: (which is the first, they)."""
    most = _WIDEST // words[0].dtype.bits
    for i in range(0, len(words), most):
        yield i, words[i : i + most]
