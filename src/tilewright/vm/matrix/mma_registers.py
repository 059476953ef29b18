"""Fragments in registers to scratch and back.

Registers are lines of a warp's lanes in memory. Of each line the lanes are put in the order of
their places in scratch (one shuffle), its elements are shifted out, and runs of neighbours stored:
whole lines at best, eight rows of a column as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import llvmlite.ir as ir
import numpy as np

from ...mma import Fragment, MmaInstruction
from ..llvm.expressions import LANES, Expr
from ..llvm.vector_memory import joined, load_vector, shuffled, store_vector, vector
from .mma_plan import Places, element, per_word, scratch, scratch_of_copy

Register = tuple[int, Places]  # (number in memory, [value][lane] → place)


def load(
    b: ir.IRBuilder, i: MmaInstruction, name: str, lines: ir.Value, out: ir.Value, copy: int = 0
) -> None:
    """An operand's registers at ``lines`` to its scratch. Where several hold an element, ``copy``
    says whose to take.
    """
    fragment = i.fragment(name)
    bits, word = element(fragment.dtype), fragment.word
    step = fragment.container or bits
    live = (1 << bits) - (1 << fragment.dtype.unused)
    where = scratch_of_copy(i, name, copy)
    for number, places in _registers(fragment, where):
        line = load_vector(b, lines, number * LANES * word // 8, vector(word, LANES))
        orders: dict[tuple[int, ...], Expr] = {}
        for value, place in enumerate(places):
            order = tuple(int(x) for x in np.argsort(place, kind="stable") if place[x] >= 0)
            if not order:
                continue
            held = orders.setdefault(order, line if order == _PLAIN else shuffled(line, order))
            shift = value * step + fragment.low
            moved = held >> shift if shift else held
            last = shift + bits == word and live == (1 << bits) - 1
            _scatter(moved if last else moved & live, place[list(order)], out)


def store(b: ir.IRBuilder, i: MmaInstruction, name: str, area: ir.Value, lines: ir.Value) -> None:
    """The inverse: scratch to registers."""
    fragment = i.fragment(name)
    bits, word = element(fragment.dtype), fragment.word
    for number, places in _registers(fragment, scratch(i, name)):
        parts = []
        for value, place in enumerate(places):
            held, spots = _gather(b, area, np.unique(place), word)
            lanes = [spots[int(x)] for x in place]
            moved = held if lanes == list(_PLAIN) and held.lanes == LANES else shuffled(held, lanes)
            parts.append(moved << (value * bits) if value else moved)
        line = reduce(Expr.__or__, parts)
        store_vector(line, lines, number * LANES * word // 8)


_PLAIN = tuple(range(LANES))


def _registers(fragment: Fragment, where: Places) -> Iterator[Register]:
    """The registers of each warp."""
    per = per_word(fragment)
    for register in range(where.shape[1] // per):
        for warp in range(where.shape[0] // LANES):
            lanes = where[warp * LANES : (warp + 1) * LANES]
            number = register * (where.shape[0] // LANES) + warp
            yield number, lanes[:, register * per : (register + 1) * per].T


def _scatter(values: Expr, place: Places, out: ir.Value) -> None:
    size = values.width // 8
    length = _run(place)
    for first in range(0, len(place), length):
        some = range(first, first + length)
        run = values if length == values.lanes else shuffled(values, some)
        store_vector(run, out, int(place[first]) * size)


def _gather(
    b: ir.IRBuilder, area: ir.Value, place: Places, word: int
) -> tuple[Expr, dict[int, int]]:
    """Words at places, and where each place came to lie."""
    length = _run(place)
    runs = [load_vector(b, area, int(p) * word // 8, vector(word, length)) for p in place[::length]]
    return joined(runs), {int(p): n for n, p in enumerate(place)}


def _run(place: Places) -> int:
    """The longest power of two that cuts places into runs of neighbours."""
    length = len(place)
    while length > 1:
        steps = np.diff(place.reshape(-1, length), axis=1)
        if (steps == 1).all():
            break
        length //= 2
    return length
