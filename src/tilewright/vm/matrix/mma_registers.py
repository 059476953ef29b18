"""Moves fragments between registers and scratch memory.

A register is a vector of the warp's lanes in memory. To unpack one, its lanes are shuffled to the
order of their indices in scratch, its elements are shifted out, and runs of consecutive indices are
stored: whole vectors at best, usually eight rows of a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import llvmlite.ir as ir
import numpy as np

from ...mma import Fragment, MmaInstruction
from ..llvm.expressions import LANES, Expr
from ..llvm.vector_memory import joined, load_vector, shuffled, store_vector, vector
from .mma_plan import (
    ScratchIndices,
    element,
    elements_per_word,
    scratch_indices,
    scratch_indices_of_copy,
)

Register = tuple[int, ScratchIndices]  # number of the register, [value][lane] → index in scratch


def load(
    b: ir.IRBuilder, i: MmaInstruction, name: str, registers: ir.Value, out: ir.Value, copy: int = 0
) -> None:
    """Unpack an operand from ``registers`` to its scratch. ``copy``: which one to take of several
    registers that hold the same element.
    """
    fragment = i.fragment(name)
    bits, word = element(fragment.dtype), fragment.word
    step = fragment.container or bits
    used = (1 << bits) - (1 << fragment.dtype.unused)
    for number, values in _registers(fragment, scratch_indices_of_copy(i, name, copy)):
        register = load_vector(b, registers, number * LANES * word // 8, vector(word, LANES))
        orders: dict[tuple[int, ...], Expr] = {}
        for value, indices in enumerate(values):
            order = tuple(int(x) for x in np.argsort(indices, kind="stable") if indices[x] >= 0)
            if not order:
                continue
            in_order = register if order == _IDENTITY else shuffled(register, order)
            words = orders.setdefault(order, in_order)
            shift = value * step + fragment.low
            shifted = words >> shift if shift else words
            highest = shift + bits == word and used == (1 << bits) - 1
            _scatter(shifted if highest else shifted & used, indices[list(order)], out)


def store(
    b: ir.IRBuilder, i: MmaInstruction, name: str, area: ir.Value, registers: ir.Value
) -> None:
    """Pack an operand from its scratch (``area``) to ``registers``."""
    fragment = i.fragment(name)
    bits, word = element(fragment.dtype), fragment.word
    for number, values in _registers(fragment, scratch_indices(i, name)):
        parts = []
        for value, indices in enumerate(values):
            words, positions = _gather(b, area, np.unique(indices), word)
            lanes = [positions[int(x)] for x in indices]
            in_order = lanes == list(_IDENTITY) and words.lanes == LANES
            elements = words if in_order else shuffled(words, lanes)
            parts.append(elements << (value * bits) if value else elements)
        store_vector(reduce(Expr.__or__, parts), registers, number * LANES * word // 8)


_IDENTITY = tuple(range(LANES))


def _registers(fragment: Fragment, indices: ScratchIndices) -> Iterator[Register]:
    """The registers of each warp, with the indices of their elements."""
    per = elements_per_word(fragment)
    for register in range(indices.shape[1] // per):
        for warp in range(indices.shape[0] // LANES):
            lanes = indices[warp * LANES : (warp + 1) * LANES]
            number = register * (indices.shape[0] // LANES) + warp
            yield number, lanes[:, register * per : (register + 1) * per].T


def _scatter(values: Expr, indices: ScratchIndices, out: ir.Value) -> None:
    """Store lanes to sorted indices."""
    size = values.width // 8
    length = _run_length(indices)
    for first in range(0, len(indices), length):
        lanes = range(first, first + length)
        run = values if length == values.lanes else shuffled(values, lanes)
        store_vector(run, out, int(indices[first]) * size)


def _gather(
    b: ir.IRBuilder, area: ir.Value, indices: ScratchIndices, word: int
) -> tuple[Expr, dict[int, int]]:
    """Load the words at sorted indices; the position of each index in the vector."""
    length = _run_length(indices)
    type_ = vector(word, length)
    runs = [load_vector(b, area, int(x) * word // 8, type_) for x in indices[::length]]
    return joined(runs), {int(x): position for position, x in enumerate(indices)}


def _run_length(indices: ScratchIndices) -> int:
    """The largest power of two that divides the indices into runs of consecutive ones."""
    length = len(indices)
    while length > 1:
        steps = np.diff(indices.reshape(-1, length), axis=1)
        if (steps == 1).all():
            break
        length //= 2
    return length
