"""Vector loads and stores: neighbouring elements in memory by accesses of up to 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes import DType
from ...layout import Layout, Tensor
from ..emitter import Emitter
from ..operations.value_conversions import ConversionOperations
from ..source_location import kernel_error
from ..values.pointer import Pointer
from ..values.register_class import checked_dtype
from ..values.register_memory import convert_element, make_register_memory
from ..values.registers import Reg, Var, is_integer
from .tensor_elements import TensorElements

_HIGH_HALF = 0xFFFF0000  # of a word; a bf16 there is its value in f32


class MemoryVectors:
    """Neighbouring elements as registers."""

    def __init__(
        self, emitter: Emitter, conversions: ConversionOperations, elements: TensorElements
    ) -> None:
        self._emitter, self._conversions, self._elements = emitter, conversions, elements

    def load_vector(
        self,
        pointer: Pointer,
        count: int,
        *,
        dtype: str | DType | None = None,
        pred: Reg | bool = True,
        cache: str = "",
    ) -> list[Reg]:
        """``count`` neighbouring elements from ``pointer`` on, each in a register, by loads of up
        to 16 bytes; converted to ``dtype`` if it is given. Where ``pred`` does not hold, nothing is
        loaded, and the elements are 0. ``cache``: a cache operator, such as ``nc`` or
        ``L1::no_allocate``, as for ``Pointer.load``.

        The address must be a multiple of 16 bytes, or of the vector's size if that is smaller: for
        the static part of the address this is checked if the pointer declares ``align``. Raises
        KernelError.

        >>> x = k.load_vector(x + i * 8, 8, dtype="f32")  # 8 bf16 by one load
        """
        registers = make_register_memory(self._emitter.k, _checked(pointer, count), pointer.dtype)
        if pred is not True:
            for word in registers.words:
                assert isinstance(word, Var)
                word.set(0)
        with self._emitter.when(pred):
            self._elements.load(pointer, registers, count, cache)
        target = pointer.dtype if dtype is None else checked_dtype(dtype)
        if (pointer.dtype.name, target.name) == ("bf16", "f32"):
            values = [x for word in registers.words for x in self._bf16_pair(word)]
            return values[:count]
        values = self._elements.values(Tensor(registers, Layout(count)))
        return [convert_element(self._emitter.k, target, x) for x in values]

    def store_vector(
        self, pointer: Pointer, values: Sequence[Any], *, pred: Reg | bool = True, cache: str = ""
    ) -> None:
        """Store registers or numbers as neighbouring elements from ``pointer`` on, converted to its
        type, by stores of up to 16 bytes; only where ``pred`` holds. The address is aligned as for
        ``load_vector``. Raises KernelError.
        """
        kept = values[: _checked(pointer, len(values))]
        self._elements.store_values(pointer, kept, pred, cache)

    def _bf16_pair(self, word: Reg) -> tuple[Reg, Reg]:
        """The two bf16 of a word as f32, on every target by one instruction each."""
        bits = self._conversions.view(word, "u32")
        return (bits << 16).view("f32"), (bits & _HIGH_HALF).view("f32")


def _checked(pointer: Any, count: Any) -> int:
    if not isinstance(pointer, Pointer):
        raise kernel_error(f"a vector must be given a pointer, got {pointer!r:.60}")
    size = count * pointer.dtype.bits // 8 if is_integer(count) and count > 0 else 0
    if not size or (size % 16 and size & (size - 1)):
        what = f"a vector must have 1, 2, 4, 8 or a multiple of 16 bytes, got {count!r:.40}"
        raise kernel_error(f"{what} elements of {pointer.dtype.name}")
    return int(count)
