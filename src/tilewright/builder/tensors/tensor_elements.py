"""Reading and writing the elements of tensors: the basis of copies and element-wise operations.

Elements that are contiguous in both tensors are moved by vectors, as wide as the layouts and the
known alignment allow. Elements narrower than a register are extracted from words of registers, and
stored as whole words if all elements of a word are given.
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

_MAX_BITS = 128  # of one load or store


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
        values = []
        for i in range(tensor.size()):
            word, index = engine.locate(tensor.layout(i))
            if 2 * engine.dtype.bits == word.dtype.bits:  # one instruction unpacks both halves
                if word not in halves:
                    halves[word] = self._conversions.unpack(word, engine.dtype)
                values.append(halves[word][index])
            else:
                values.append(extract_element(word, engine.dtype, index))
        return values

    def write(self, tensor: Tensor, values: Sequence[Any]) -> None:
        """Write all elements of a tensor in order, converted to its format."""
        engine = tensor.engine
        if isinstance(engine, Pointer):
            layout = make_fragment_like(tensor.layout)
            self.move(Tensor(self._packed(tensor.dtype, layout, values), layout), tensor)
            return
        if not isinstance(engine, RegisterMemory):
            raise kernel_error(f"the tensor to write must be in memory or registers, got {tensor}")
        words: dict[Any, dict[int, Any]] = {}
        written = set()
        for i, value in enumerate(values):
            word, index = engine.locate(tensor.layout(i))
            own = word.operand
            if isinstance(value, Var) and value.operand != own and value.operand in written:
                value = self._variables.mov(value)  # its value before it is overwritten
            written.add(own)
            words.setdefault(word, {})[index] = value
        for word, elements in words.items():
            engine.write_word(word, elements)

    def _packed(self, dtype: DType, layout: Layout, values: Sequence[Any]) -> RegisterMemory:
        """Registers with these values in a compact layout."""
        per, _ = register_format(dtype)
        words: list[dict[int, Any]] = [{} for _ in range(-(-layout.cosize() // per))]
        for i, value in enumerate(values):
            offset = layout(i)
            words[offset // per][offset % per] = value
        registers = tuple(pack_elements(self._emitter.k, dtype, word) for word in words)
        return RegisterMemory(registers, dtype, layout.cosize())

    def store_values(
        self, pointer: Pointer, values: Sequence[Any], pred: Any = True, cache: str = ""
    ) -> None:
        """Store values as neighbouring elements, converted, by the widest accesses."""
        packed = self._packed(pointer.dtype, Layout(len(values)), values)
        with self._emitter.when(pred):
            self._store(packed, pointer, len(values), cache)

    # --- moves -------------------------------------------------------------------------------

    def move(self, src: Tensor, dst: Tensor) -> None:
        """Copy between memory and registers by vectors; both tensors have the same format."""
        src, dst = _without_repeats(src, dst)
        count, vectors = _divide_by_vectors(src, dst)
        for source, target in zip(*map(iterate_slices, vectors), strict=True):
            self.move_bits(source.at(0), target.at(0), count * src.dtype.bits)

    def move_bits(self, src: Any, dst: Any, bits: int) -> None:
        """Move this number of bits from one engine to another with the fewest instructions."""
        count = bits // src.dtype.bits
        if isinstance(src, Pointer) and isinstance(dst, Pointer):
            registers = make_register_memory(self._emitter.k, count, src.dtype)
            self.load(src, registers, count)
            self._store(registers, dst, count)
        elif isinstance(src, Pointer):
            self.load(src, dst, count)
        elif isinstance(dst, Pointer):
            self._store(src, dst, count)
        else:
            self._between_registers(src, dst, count)

    def load(self, src: Pointer, dst: RegisterMemory, count: int, cache: str = "") -> None:
        """Load ``count`` neighbouring elements by vectors; ``cache`` as for ``Pointer.load``."""
        if not dst.is_register_aligned(count):
            for i in range(count):
                (dst[i],) = src.load(index=i, cache=cache)
            return
        for i, words in _vectors(dst.registers(count)):
            src.cast(words[0].dtype).load(len(words), index=i, cache=cache, into=words)

    def _store(self, src: RegisterMemory, dst: Pointer, count: int, cache: str = "") -> None:
        if not src.is_register_aligned(count):
            for i in range(count):
                dst.store(src[i], index=i, cache=cache)
            return
        for i, words in _vectors(src.registers(count)):
            dst.cast(words[0].dtype).store(words, index=i, cache=cache)

    def _between_registers(self, src: RegisterMemory, dst: RegisterMemory, count: int) -> None:
        if src.is_register_aligned(count) and dst.is_register_aligned(count):
            for one, other in zip(src.registers(count), dst.registers(count), strict=True):
                other.set(one if one.dtype is other.dtype else one.view(other.dtype))
            return
        for i in range(count):
            dst[i] = src[i]


def _without_repeats(src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors without the modes in which the destination's stride is 0."""
    repeats = nullspace(inside(dst.layout))
    if repeats.size() == 1:
        return src, dst
    one, other = (zipped_divide(x, repeats)[0, None] for x in (src, dst))
    return one, other


def _divide_by_vectors(src: Tensor, dst: Tensor) -> tuple[int, tuple[Tensor, Tensor]]:
    """(elements per vector, both tensors as (vector, vectors)). A vector is contiguous and aligned
    in both tensors, has a power of two of elements, and at most 16 bytes.
    """
    common = max_common_layout(src.layout, dst.layout)
    count = gcd(common.size(), _MAX_BITS // src.dtype.bits)
    while True:
        try:
            tile = composition(common, Layout(count))
            one, other = zipped_divide(src, tile), zipped_divide(dst, tile)
        except LayoutError:
            pass  # not divisible by this tile; a smaller one may be
        else:
            if count == 1 or (_aligned(one, count) and _aligned(other, count)):
                return count, (one, other)
        count //= 2


def _aligned(divided: Tensor, count: int) -> bool:
    """Whether each vector is known to be aligned to its size."""
    engine, between = divided.engine, alignment(divided.layout[1])
    if isinstance(engine, RegisterMemory):
        return bool(count % engine.per == 0 and gcd(between, engine.position) % engine.per == 0)
    return bool(gcd(between, 8 * engine.alignment // divided.dtype.bits) % count == 0)


def _vectors(words: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The registers of each instruction, with the index of the first."""
    count = _MAX_BITS // words[0].dtype.bits
    for i in range(0, len(words), count):
        yield i, words[i : i + count]
