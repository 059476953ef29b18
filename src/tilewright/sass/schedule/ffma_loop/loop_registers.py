"""Registers of a loop's values: rows for vectors, banks for accumulators.

The loop is a ring: a value is live from where it is written to its last use, over the end where
the next turn reads it. Values that are never live together may share a register.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ....errors import SassError
from ...machine.register_effects import register_effects
from ...sass_text import ALWAYS, SassText
from ..register_request import VIRTUAL
from .loop_order import is_product
from .loop_values import LoopValues, RegisterGroup

_BANKS = 2
_STACK_POINTER = 1
_HELD = (1600, 800, 400, 200, 0)  # instructions for which a copy's address registers are not reused


@dataclass(frozen=True)
class LoopRegisters:
    """``known``: the register of each virtual one; ``entering``: the virtual registers that hold a
    value where the loop begins.
    """

    known: dict[int, int]
    entering: frozenset[int]


def loop_registers(loop: LoopValues, order: Sequence[SassText], limit: int) -> LoopRegisters:
    """Registers below ``limit``. A copy's address registers are left alone for as long as fits, as
    it is late in reading them. Raises SassError where the values don't fit.
    """
    for held in _HELD:
        with suppress(SassError):
            return _placed(loop, order, limit, held)
    return _placed(loop, order, limit, 0, longest_first=True)


def _placed(
    loop: LoopValues, order: Sequence[SassText], limit: int, held: int, longest_first: bool = False
) -> LoopRegisters:
    """With vectors in the order of their numbers, or those first that are live longest: there are
    fewer gaps, but other vectors may have the same banks.
    """
    live = _live_places(loop, order)
    entering = frozenset(n for n, mask in live.items() if mask >> len(order) & 1)
    _hold(live, loop, order, held)
    occupied = [0] * limit
    occupied[_STACK_POINTER] = -1  # ptxas writes it without a barrier
    found: dict[int, int] = {}
    wanted: dict[int, int] = {}
    vectors = sorted(
        (g for g in loop.groups if g.width > 1),
        key=lambda g: (-g.width, -g.multiple, -_length(g, live) * longest_first, g.first),
    )
    for group in vectors:
        _place(group, range(limit), live, occupied, found)
    wanted = _accumulator_banks(order, found)
    for group in sorted(loop.groups, key=lambda g: (g.first not in wanted, g.first)):
        if group.width == 1:
            bank = wanted.get(group.first)
            order_of = sorted(range(limit), key=lambda r: bank is not None and r % _BANKS != bank)
            _place(group, order_of, live, occupied, found)
    _check(loop, order, found, entering)
    return LoopRegisters(found, entering)


def _length(group: RegisterGroup, live: Mapping[int, int]) -> int:
    """Places where the group's value that is live longest is live."""
    return max(live[group.first + i].bit_count() for i in range(group.width))


def _check(
    loop: LoopValues, order: Sequence[SassText], known: Mapping[int, int], entering: frozenset[int]
) -> None:
    """Run the ring twice and see that every register holds the value that is read. Raises SassError
    where it does not, which also finds an order in which a value is used before it is written.
    """
    holds = {known[n]: n for n in loop.live_in.values() if n in entering}
    reads = []
    for text in (*order, *order):
        effects = register_effects(loop.sm, text)
        reads += [(n, holds.get(known[n])) for f, n in effects.reads if f == "R"]
        holds |= {known[n]: n for f, n in effects.writes if f == "R"}
    reads += [(n, holds.get(known[n])) for n in loop.live_out.values()]
    wrong = [n for n, held in reads if n != held]
    if wrong:
        raise SassError(f"each value of a loop must be written before it is read, got {wrong[0]}")


def _place(
    group: RegisterGroup, candidates: Sequence[int], live: Mapping[int, int],
    occupied: list[int], found: dict[int, int],
) -> None:  # fmt: skip
    numbers = range(group.first, group.first + group.width)
    for base in candidates:
        row = range(base, base + group.width)
        if (base + group.offset) % group.multiple or row.stop > len(occupied):
            continue
        if any(occupied[r] & live[n] for r, n in zip(row, numbers, strict=True)):
            continue
        for r, n in zip(row, numbers, strict=True):
            occupied[r] |= live[n]
            found[n] = r
        return
    raise SassError(f"{len(occupied)} registers must be enough for a loop, got too few")


def _live_places(loop: LoopValues, order: Sequence[SassText]) -> dict[int, int]:
    """For each virtual register a mask: bit i where it is live after instruction i of the ring, or
    written by it.
    """
    effects = [register_effects(loop.sm, text) for text in order]
    reads = [{n for f, n in e.reads if f == "R" and n >= VIRTUAL} for e in effects]
    writes = [{n for f, n in e.writes if f == "R" and n >= VIRTUAL} for e in effects]
    sure = [
        w if t.guard == ALWAYS and not t.negated else w & loop.begun
        for w, t in zip(writes, order, strict=True)
    ]
    outside = set(loop.live_out.values())
    masks: dict[int, int] = defaultdict(int)
    live = set(outside)
    for turn in range(2):  # the second one knows what the next turn reads
        for i in reversed(range(len(order))):
            if turn:
                for n in live | writes[i]:
                    masks[n] |= 1 << i
            live = reads[i] | live - sure[i]
        live |= outside
    for n in live:  # live where the loop begins, with each other
        masks[n] |= 1 << len(order)
    return masks


def _hold(live: dict[int, int], loop: LoopValues, order: Sequence[SassText], held: int) -> None:
    """Add the ``held`` instructions after each copy to the places where its addresses are live."""
    for place, text in enumerate(order):
        if text.opcode.startswith("LDGSTS"):
            after = range(place + 1, place + 1 + min(held, len(order) - 1))
            mask = sum(1 << i % len(order) for i in after)
            for file, number in register_effects(loop.sm, text).reads:
                if file == "R" and number >= VIRTUAL:
                    live[number] |= mask


def _accumulator_banks(order: Sequence[SassText], found: Mapping[int, int]) -> dict[int, int]:
    """For each accumulator the bank that its columns' registers are not in."""
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    for text in order:
        if is_product(text):
            column = found.get(int(text.operands[2].numbers[0]))
            if column is not None:
                votes[int(text.operands[0].numbers[0])][(column + 1) % _BANKS] += 1
    return {n: count.most_common(1)[0][0] for n, count in votes.items()}
