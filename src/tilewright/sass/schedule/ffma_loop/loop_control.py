"""Control codes and reuse flags of a loop whose order and registers are chosen.

Loads of one outer product signal one barrier, those of the next one another; copies to shared
memory signal a third when they have read their addresses. Barriers that ``DEPBAR`` counts keep
their numbers. Stalls are the least that cover fixed latencies on every path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ....errors import SassError
from ...control_code import ControlCode
from ...lint.register_banks import source_slots
from ...machine.hazards import dependency_barriers
from ...machine.register_effects import Register, register_effects
from ...sass_text import SassText
from ..kernel_instruction import KernelInstruction
from ..stall_assignment import least_stalls
from ..timing_table import TimingTable
from .loop_order import is_product

_BARRIERS = range(1, 7)
_MOST = 4  # barriers of loads


def with_barriers(
    timing: TimingTable, order: Sequence[SassText], old: Sequence[ControlCode | None],
    kept: frozenset[int],
) -> list[ControlCode]:  # fmt: skip
    """The control code of each instruction of the ring ``order``, with stalls of 1. ``old`` are
    those of instructions whose barriers and stalls are kept, and None for others; ``kept`` are the
    barriers that these use. Raises SassError for instructions that no barrier covers here.
    """
    free = [b for b in _BARRIERS if b not in kept]
    if len(free) < 3:
        raise SassError(f"three barriers must be free for a loop, got {len(free)}")
    setters = _setters(timing, order, free)
    waits = _waits(timing, order, setters)
    found = []
    for (read, write), wait, before in zip(setters, waits, old, strict=True):
        if before is not None:
            found.append(replace(before, wait=before.wait & _mask(kept) | wait, reuse=0))
        else:
            found.append(ControlCode(read=read, write=write, wait=wait))
    return found


def _mask(barriers: frozenset[int]) -> int:
    return sum(1 << b - 1 for b in barriers)


def kept_barriers(order: Sequence[SassText]) -> frozenset[int]:
    """The barriers that DEPBAR counts."""
    counted = [b for t in order if t.opcode.startswith("DEPBAR") for b, _ in dependency_barriers(t)]
    return frozenset(counted)


def _setters(
    timing: TimingTable, order: Sequence[SassText], free: Sequence[int]
) -> list[tuple[int, int]]:
    """(read barrier, write barrier) of each instruction. Loads for one outer product signal one
    barrier, those for the next another one: of two, or of four where loads come more than an outer
    product ahead.
    """
    users = _users(timing, order)
    is_far = any(ahead > 1 for _, ahead in users.values())
    count = min(_MOST, len(free) - 1) if is_far else 2
    found = []
    for i, text in enumerate(order):
        effects = register_effects(timing.sm, text)
        read = write = 0
        if timing.is_variable(text) and not text.opcode.startswith("LDGDEPBAR"):
            if any(r[0] == "R" for r in effects.writes):
                write = free[(users[i][0] - 1) % count] if i in users else free[0]
            elif any(r[0] == "R" for r in effects.reads):
                read = free[count]
        found.append((read, write))
    return found


def _users(timing: TimingTable, order: Sequence[SassText]) -> dict[int, tuple[int, int]]:
    """For each load the outer product that is the first to need its result, and how many outer
    products ahead of that it is.
    """
    products = [i for i, t in enumerate(order) if is_product(t)]
    outer = max(Counter(order[i].operands[0].numbers for i in products).values())
    part = len(products) // outer
    reads = [{int(x.numbers[0]) for x in order[i].operands[1:3]} for i in products]
    found = {}
    for i, text in enumerate(order):
        results = {n for f, n in register_effects(timing.sm, text).writes if f == "R"}
        if not results or is_product(text) or not timing.is_variable(text):
            continue
        at = bisect_left(products, i)
        following = (at + j for j in range(len(products)))
        user = next((q for q in following if reads[q % len(products)] & results), None)
        if user is not None:
            found[i] = user // part % outer, user // part - max(0, at - 1) // part
    return found


def _waits(
    timing: TimingTable, order: Sequence[SassText], setters: Sequence[tuple[int, int]]
) -> list[int]:
    """The barriers that each instruction waits for; two turns, as the ring has no start."""
    written: dict[Register, set[int]] = {}
    read: dict[Register, set[int]] = {}
    waits = [0] * len(order)
    for _ in range(2):
        for i, text in enumerate(order):
            effects = register_effects(timing.sm, text)
            needed: set[int] = set()
            for register in effects.reads | effects.guards | effects.writes:
                needed |= written.get(register, set())
            for register in effects.writes:
                needed |= read.get(register, set())
            waits[i] |= _mask(frozenset(needed))
            for pending in (written, read):
                for register in [r for r, b in pending.items() if b & needed]:
                    pending[register] -= needed
            first, second = setters[i]
            if second:
                for register in effects.writes:
                    written.setdefault(register, set()).add(second)
            for register in effects.reads:
                if register[0] == "R" and (first or second):
                    read.setdefault(register, set()).add(first or second)
    return waits


def with_stalls(
    timing: TimingTable, instructions: Sequence[KernelInstruction], labels: dict[str, int]
) -> list[KernelInstruction]:
    """The instructions with the least stalls. Raises SassError for one above 15."""
    stalls = least_stalls(timing, instructions, labels)
    if max(stalls) > 15:
        raise SassError(f"a stall in a loop must be at most 15, got {max(stalls)}")
    return [
        replace(x, control=replace(x.control, stall=s, yields=s > timing.yield_above))
        for x, s in zip(instructions, stalls, strict=True)
    ]


def with_reuse(timing: TimingTable, texts: Sequence[SassText]) -> list[SassText]:
    """FFMAs keep a factor for the next FFMA that has it in the same place, unless an instruction
    between them reads that slot of the cache.
    """
    found = list(texts)
    products = [i for i, t in enumerate(texts) if is_product(t)]
    for i, j in pairwise(products):
        mine, following = texts[i], texts[j]
        written = {r for k in range(i, j) for r in register_effects(timing.sm, texts[k]).writes}
        taken = {slot for k in range(i + 1, j) for slot, _ in source_slots(timing.sm, texts[k])}
        flags = 0
        for operand in (1, 2):
            number = mine.operands[operand].numbers[0]
            same = following.operands[operand].numbers[0] == number
            if same and operand - 1 not in taken and ("R", number) not in written:
                flags |= 1 << operand
        found[i] = replace(mine, reuse=flags)
    return found
