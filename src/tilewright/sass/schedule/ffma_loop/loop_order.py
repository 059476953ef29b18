"""The order of a loop's instructions: FFMAs of one outer product after another, row by row.

An accumulator gets one product from each outer product (each k), so the n-th FFMA of every
accumulator together are one. Within it, the operand of a row stays in the reuse cache while the
columns change, forwards in one row and backwards in the next, so that at a turn the column stays.
All other instructions keep their order, and are put between FFMAs: loads an outer product ahead of
the one that needs them, evenly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....errors import SassError
from ...lint.register_banks import source_slots
from ...machine.register_effects import RZ, Register, register_effects
from ...sass_text import ALWAYS, SassText
from .loop_values import LoopValues

_LEAD = 4  # FFMAs from the start of an outer product to the first load for the next one
_SPAN = 0.75  # of an outer product, in which the loads for the next one are issued
_STEP = 2  # FFMAs from one other instruction to the next, at least
_LOAD = 48  # cycles that a load takes where shared memory is busy, about
_AHEAD = 12  # FFMAs from a barrier to the outer product in which the next turn's loads begin
_COPIES_IN = 2  # the outer product in which copies begin, from 0, where there are five or more
_APART = 8  # FFMAs between instructions that compute the next turn's addresses
_BARRIERS = ("DEPBAR", "BAR")
_FENCES = {"DEPBAR", "BAR"}
_MEMORY = {*_FENCES, "LDGDEPBAR", "LDS", "STS", "LDGSTS", "LDG", "STG", "LDSM", "ATOMS", "MEMBAR"}


@dataclass(frozen=True)
class OuterProduct:
    """``rows`` and ``columns`` are virtual registers; ``products`` the FFMA of each pair, with the
    row as first factor.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    products: dict[tuple[int, int], SassText]

    def accumulators(self) -> set[frozenset[int]]:
        """The accumulators of each row."""
        return {
            frozenset(int(self.products[row, c].operands[0].numbers[0]) for c in self.columns)
            for row in self.rows
        }

    def transposed(self) -> OuterProduct:
        """With rows for columns."""
        products = {
            (column, row): _with_factors(text, column, row)
            for (row, column), text in self.products.items()
        }
        return OuterProduct(self.columns, self.rows, products)

    def ordered(self) -> list[SassText]:
        """The FFMAs, row by row, there and back."""
        found = []
        for i, row in enumerate(self.rows):
            columns = self.columns if i % 2 == 0 else self.columns[::-1]
            found += [self.products[row, column] for column in columns]
        return found


def outer_products(loop: LoopValues, transposed: bool = False) -> list[OuterProduct]:
    """The outer products of a loop, in order, with the same accumulators in a row of each: so the
    banks of columns suit them in all. Rows are the shorter side; of squares one side, or the other
    one (``transposed``). Raises SassError where the FFMAs are not outer products.
    """
    chains: dict[int, int] = Counter()
    levels: dict[int, list[SassText]] = defaultdict(list)
    for text in loop.texts:
        if is_product(text):
            target = int(text.operands[0].numbers[0])
            levels[chains[target]].append(text)
            chains[target] += 1
    found = [_outer_product(levels[k]) for k in sorted(levels)]
    first = found[0].transposed() if transposed else found[0]
    rows = first.accumulators()
    return [one if one.accumulators() == rows else one.transposed() for one in found]


def orientations(loop: LoopValues) -> tuple[bool, ...]:
    """The values of ``transposed`` that may be chosen."""
    first = outer_products(loop)[0]
    return (False, True) if len(first.rows) == len(first.columns) else (False,)


def is_product(text: SassText) -> bool:
    """Whether an instruction adds a product of two registers to its own register."""
    if text.opcode != "FFMA" or any(x.kind != "R#" or x.marks for x in text.operands):
        return False
    return text.operands[0].numbers == text.operands[3].numbers


def is_idle(text: SassText) -> bool:
    """Whether an instruction moves a register to itself, which is left out: ptxas moved an
    accumulator from one of its registers to another, and they have become one.
    """
    if text.opcode != "MOV" or text.guard != ALWAYS or text.negated:
        return False
    target, source = text.operands
    return target.kind == source.kind == "R#" and target.numbers == source.numbers


def _outer_product(texts: Sequence[SassText]) -> OuterProduct:
    partners: dict[int, set[int]] = defaultdict(set)
    for text in texts:
        a, b = (int(text.operands[i].numbers[0]) for i in (1, 2))
        partners[a].add(b)
        partners[b].add(a)
    first = min(partners)
    other = partners[first]
    mine = partners[min(other)]
    rows, columns = sorted((tuple(sorted(mine)), tuple(sorted(other))), key=len)
    complete = len(texts) == len(rows) * len(columns) and len(partners) == len(rows) + len(columns)
    if not complete or any(partners[r] != set(columns) for r in rows):
        raise SassError("a loop's FFMAs must be outer products, got others")
    products = {}
    for text in texts:
        a, b = (int(text.operands[i].numbers[0]) for i in (1, 2))
        row, column = (a, b) if a in rows else (b, a)
        products[row, column] = _with_factors(text, row, column)
    return OuterProduct(rows, columns, products)


def _with_factors(text: SassText, row: int, column: int) -> SassText:
    d, a, b, c = text.operands
    operands = (d, replace(a, numbers=(row,)), replace(b, numbers=(column,)), c)
    return replace(text, operands=operands, reuse=0)


def ordered(
    loop: LoopValues, near: bool = False, lead: int = 0, transposed: bool = False
) -> list[tuple[SassText, int | None]]:
    """(instruction, its place in the loop as it was; None for an FFMA) in the new order, without
    the jump. ``near``: addresses of copies are computed between the copies, not ahead of all, which
    takes fewer registers. ``lead``: FFMAs from a load to the outer product that needs it, where an
    outer product has fewer than a load takes cycles. ``transposed``: of ``outer_products``.
    """
    outer = outer_products(loop, transposed)
    products = [x for one in outer for x in one.ordered()]
    return _Merge(loop, products, _wanted(loop, outer, products, near, lead)).merged()


class _Merge:
    """Puts the other instructions between the products: each at its wanted place or later, but
    ahead of what needs its result.
    """

    def __init__(
        self, loop: LoopValues, products: Sequence[SassText], wanted: dict[int, int]
    ) -> None:
        self.loop = loop
        self.products = products
        self.waiting = wanted
        self.before = _dependencies(loop, sorted(wanted))
        self.copies = {i for i in wanted if _is_copy(loop.texts[i])}
        self.writers = self._writers()
        self.found: list[tuple[SassText, int | None]] = []

    def _writers(self) -> dict[int, int]:
        """What writes each register that products read later in the same turn."""
        first: dict[int, int] = {}
        for place, text in enumerate(self.products):
            for operand in text.operands[1:3]:
                first.setdefault(int(operand.numbers[0]), place)
        found = {}
        for i, place in self.waiting.items():
            for file, number in register_effects(self.loop.sm, self.loop.texts[i]).writes:
                if file == "R" and place < first.get(number, 0):
                    found[number] = i
        return found

    def merged(self) -> list[tuple[SassText, int | None]]:
        """All instructions in their new order."""
        last = -_STEP
        for place, text in enumerate(self.products):
            for operand in text.operands[1:3]:
                writer = self.writers.get(int(operand.numbers[0]))
                if writer in self.waiting and writer is not None:
                    self._issue_all(writer)
            if place - last >= _STEP:
                ready = [i for i in self._ready(place) if self.waiting[i] <= place]
                if ready:
                    self._issue(min(ready, key=lambda i: (self.waiting[i], i)))
                    last = place
            self.found.append((text, None))
        for i in sorted(self.waiting):
            self._issue(i)
        return self.found

    def _ready(self, place: int) -> list[int]:
        """Those that wait for nothing. No other access of memory comes between copies, and those
        that read registers through the reuse cache come where a row ends.
        """
        found = [i for i in self.waiting if not self.before[i] & self.waiting.keys()]
        rows = [x.operands[1].numbers for x in self.products[max(0, place - 1) : place + 1]]
        if len(rows) > 1 and rows[0] == rows[1]:
            found = [i for i in found if not source_slots(self.loop.sm, self.loop.texts[i])]
        if self._copying():
            found = [i for i in found if i in self.copies or not _is_memory(self.loop.texts[i])]
        return found

    def _copying(self) -> bool:
        left = self.copies & self.waiting.keys()
        return bool(left) and len(left) < len(self.copies)

    def _issue_all(self, index: int) -> None:
        """Issue an instruction now, after all that it must follow."""
        needed = {index}
        if self._copying() and _is_memory(self.loop.texts[index]):
            needed |= self.copies & self.waiting.keys()
        stack = list(needed)
        while stack:
            for i in self.before[stack.pop()] & self.waiting.keys():
                if i not in needed:
                    needed.add(i)
                    stack.append(i)
        for i in sorted(needed):
            self._issue(i)

    def _issue(self, index: int) -> None:
        self.found.append((replace(self.loop.texts[index], reuse=0), index))
        del self.waiting[index]


def _wanted(
    loop: LoopValues, outer: Sequence[OuterProduct], products: Sequence[SassText], near: bool,
    lead: int,
) -> dict[int, int]:  # fmt: skip
    """The FFMA ahead of which each other instruction should be issued: loads of fragments in the
    outer product ahead of theirs, barriers ahead of the loads of the next turn, what follows them
    as well, the rest early. But what overwrites an address of copies comes last: copies take long
    to read it.
    """
    others = [i for i, x in enumerate(loop.texts[:-1]) if not is_product(x) and not is_idle(x)]
    part = len(products) // len(outer)
    users = {r: k for k, one in enumerate(outer) for r in (*one.rows, *one.columns)}
    fences = [i for i in others if loop.texts[i].opcode.startswith(_BARRIERS)]
    loads: dict[int, list[int]] = defaultdict(list)
    for i in others:
        user = _user(loop.texts[i], users)
        if user is not None:
            carried = not user and any(f < i for f in fences)
            loads[user + len(outer) * carried].append(i)
    found: dict[int, int] = {}
    lead = lead if lead and part < _LOAD else part - _LEAD
    for user, mine in loads.items():
        gap = max(1, int(part * _SPAN) // len(mine))
        found |= {i: user * part - lead + gap * n for n, i in enumerate(mine)}
    late = len(outer) * part - lead - _LEAD - _AHEAD
    rest = [i for i in others if i not in found]
    held = _overwriting(loop, rest)
    early = [i for i in rest if (not fences or i < fences[0]) and not _is_copy(loop.texts[i])]
    early = [i for i in early if i not in held]
    row = max(len(outer[0].columns), _STEP)  # one at the end of each
    copying = _copying_from(len(outer), part, 0 if near else row * (len(early) + 1))
    found |= {i: copying if _is_copy(loop.texts[i]) else late for i in rest}
    found |= {i: late + 1 for i in held}
    after = [i for i in rest if found[i] == late and i not in fences]
    found |= {i: late - _APART * (len(after) - n) for n, i in enumerate(after)}
    first = copying if near else max(0, copying - row * (len(early) + 1))
    found |= {i: first + (copying - first) * n // len(early) for n, i in enumerate(early)}
    return found


def _copying_from(outer: int, part: int, ahead: int) -> int:
    """The FFMA from which on copies are issued: where the loads for an outer product are done, in
    the third one, or in a later one that has ``ahead`` FFMAs before it; at least two outer products
    follow.
    """
    into = part * 3 // 4 + _LEAD
    wanted = max(_COPIES_IN, -(-(ahead - into) // part))
    return max(0, min(wanted, outer - 3)) * part + into


def _overwriting(loop: LoopValues, others: Sequence[int]) -> set[int]:
    """The instructions that write a register that a copy ahead of them reads."""
    found, addresses = set(), set[Register]()
    for i in others:
        effects = register_effects(loop.sm, loop.texts[i])
        if effects.writes & addresses:
            found.add(i)
        if loop.texts[i].opcode.startswith("LDGSTS"):
            addresses |= {r for r in effects.reads if r[0] == "R"}
    return found


def _is_copy(text: SassText) -> bool:
    """A copy to shared memory, or one of the idle loads that ptxas puts ahead of copies. No other
    access is put between them.
    """
    is_idle = text.opcode == "LDS" and text.operands[0].numbers == (RZ,)
    return is_idle or text.opcode.startswith("LDGSTS")


def _is_memory(text: SassText) -> bool:
    return text.opcode.split(".")[0] in _MEMORY


def _user(text: SassText, users: Mapping[int, int]) -> int | None:
    """The outer product that uses a load's results."""
    if not text.opcode.startswith("LDS") or text.operands[0].kind != "R#":
        return None
    return users.get(int(text.operands[0].numbers[0]))


def _dependencies(loop: LoopValues, others: Sequence[int]) -> dict[int, set[int]]:
    """For each other instruction those before it that it must follow: through registers, and
    copies and loads of shared memory on either side of a barrier. Between two barriers a load and
    a copy do not touch the same place: threads could not tell which comes first.
    """
    effects = {i: register_effects(loop.sm, loop.texts[i]) for i in others}
    found: dict[int, set[int]] = {}
    for at, i in enumerate(others):
        mine = effects[i]
        reads = mine.reads | mine.guards
        found[i] = set()
        for j in others[:at]:
            theirs = effects[j]
            touched = theirs.writes & (reads | mine.writes) or mine.writes & (
                theirs.reads | theirs.guards)  # fmt: skip
            if touched or _is_fenced(loop.texts[j], loop.texts[i]):
                found[i].add(j)
    return found


def _is_fenced(first: SassText, second: SassText) -> bool:
    """Whether two instructions keep their order as accesses of memory."""
    names = [x.opcode.split(".")[0] for x in (first, second)]
    if "LDGDEPBAR" in names:  # it commits the copies before it
        return any(n in ("LDGSTS", *_FENCES) for n in names if n != "LDGDEPBAR")
    return all(n in _MEMORY for n in names) and any(n in _FENCES for n in names)
