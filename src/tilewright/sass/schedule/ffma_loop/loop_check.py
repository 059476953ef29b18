"""``check_values``: that a rewritten loop computes from the same values as the loop that it was.

Both are followed for a few turns, the old one with its registers, the new one with those chosen.
Each instruction must read what the same instruction wrote in the same turn, or what was there
before the loop; so must what follows the loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ....errors import SassError
from ...machine.register_effects import Register, register_effects, register_operands
from ...sass_text import ALWAYS, SassText
from .loop_order import is_idle, is_product
from .loop_registers import LoopRegisters
from .loop_values import LoopValues

_TURNS = 3  # the second reads what the first left, and a guarded result may be older
Source = tuple[object, ...]  # a register before the loop; or turn, instruction, number of a result


def check_values(
    loop: LoopValues,
    order: Sequence[SassText],
    places: Sequence[int | None],
    registers: LoopRegisters,
) -> None:
    """Raises SassError unless the loop in the new ``order``, with virtual ``registers``, reads what
    it read. ``places`` are those of the instructions in the old order, None for a product.
    """
    known, live_in = registers.known, loop.live_in
    entering = {r: known[n] for r, n in live_in.items() if n in registers.entering}
    old = _Turns(loop, {("R", r): ("R", r) for r in live_in})
    new = _Turns(loop, {("R", there): ("R", r) for r, there in entering.items()}, known)
    origins = _origins(loop, order, places)
    for turn in range(_TURNS):
        for index, text in enumerate(loop.old_texts):
            old.issue(turn, index, text)
        for index, text in zip(origins, order, strict=True):
            new.issue(turn, index, text)
        for r, n in loop.live_out.items():
            if old.source("R", r) != new.source("R", known[n]):
                raise SassError(f"R{r} after a loop must be what it was, got another value")
    wrong = [index for (_, index), reads in old.reads.items() if new.reads[_, index] != reads]
    if wrong or old.others() != new.others():
        at = loop.old_texts[wrong[0]] if wrong else "a predicate"
        raise SassError(f"a rewritten loop must read the same values, got others at {at}")


def _origins(
    loop: LoopValues, order: Sequence[SassText], places: Sequence[int | None]
) -> list[int]:
    """The place in the old order of each instruction; of products it is that of the accumulator's
    product with the same number.
    """
    chains: dict[int, list[int]] = defaultdict(list)
    for index, text in enumerate(loop.texts):
        if is_product(text):
            chains[int(text.operands[0].numbers[0])].append(index)
    done = Counter[int]()
    found = []
    for text, place in zip(order, places, strict=True):
        if place is None:
            accumulator = int(text.operands[0].numbers[0])
            place = dict(enumerate(chains[accumulator])).get(done[accumulator], -1)
            done[accumulator] += 1
        found.append(place)
    if sorted(found) != [i for i, text in enumerate(loop.texts) if not is_idle(text)]:
        raise SassError("a rewritten loop must have each instruction once, got another number")
    return found


@lru_cache(1 << 13)
def _named(sm: int, text: SassText) -> list[tuple[bool, int]]:
    """Each register that an instruction names, and whether it is written."""
    return [(x.written, x.first + i) for x in register_operands(sm, text) for i in range(x.count)]


def _move(sm: int, text: SassText) -> tuple[int, int] | None:
    """The target and the source of a move from register to register of all threads."""
    named = sorted(_named(sm, text), reverse=True)
    is_move = text.opcode == "MOV" and [written for written, _ in named] == [True, False]
    if not is_move or text.guard != ALWAYS or text.negated:
        return None
    return named[0][1], named[1][1]


@dataclass
class _Turns:
    """What each register holds while a loop is followed, and what each instruction has read.
    ``known``: the registers of virtual ones, or None for a loop that names registers.
    """

    loop: LoopValues
    holds: dict[Register, Source]
    known: Mapping[int, int] | None = None
    reads: dict[tuple[int, int], list[Source]] = field(default_factory=dict)

    def source(self, file: str, number: int) -> Source:
        """What a register holds. A register never written holds what it did before the loop."""
        return self.holds.get((file, number), (file, number, "before"))

    def others(self) -> dict[Register, Source]:
        """What predicates and uniform registers hold."""
        return {r: source for r, source in self.holds.items() if r[0] != "R"}

    def issue(self, turn: int, index: int, text: SassText) -> None:
        """Note what an instruction reads, and what it writes. A move is none: its result is what
        it reads.
        """
        move = _move(self.loop.sm, text)
        if move:
            target, source = (("R", self._known(n)) for n in move)
            self.holds[target] = self.source(*source)
            return
        effects = register_effects(self.loop.sm, text)
        reads = sorted(r for r in effects.reads | effects.guards if r[0] != "R")
        named = [(w, ("R", self._known(n))) for w, n in _named(self.loop.sm, text)]
        found = [self.source(*r) for written, r in named if not written]
        if is_product(self.loop.texts[index]):
            found[:2] = sorted(found[:2], key=repr)  # factors may change places
        results = [r for written, r in named if written]
        results += sorted(r for r in effects.writes if r[0] != "R")
        if text.guard != ALWAYS or text.negated:
            found += [self.source(*r) for r in results if not self._begins(index, r)]
        self.reads[turn, index] = found + [self.source(*r) for r in reads]
        for number, register in enumerate(results):
            self.holds[register] = (turn, index, number)

    def _known(self, number: int) -> int:
        return number if self.known is None else self.known[number]

    def _begins(self, index: int, register: Register) -> bool:
        """Whether a guarded result does not depend on what its register held."""
        if register[0] != "R":
            return False
        written = register_effects(self.loop.sm, self.loop.texts[index]).writes
        return {n for f, n in written if f == "R"} <= self.loop.begun
