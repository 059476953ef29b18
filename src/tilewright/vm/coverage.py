"""Which instructions a module needs, and whether the machine runs them.

Who refuses an instruction when a kernel is launched is asked here too: the checker, and the walk
over a function's body. No list of instructions exists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from ..errors import PtxError
from ..ptx import parse, print_module, problems, tree
from .flatten import Flattener, Scope


@dataclass(frozen=True, slots=True)
class Need:
    """A form of an instruction, how often it stands in a module, and why it is refused where."""

    opcode: str
    count: int
    refused: tuple[PtxError, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """A module's forms by name, and what is wrong beside its instructions."""

    needs: tuple[Need, ...]
    others: tuple[PtxError, ...] = ()


def coverage(module: tree.Module) -> Coverage:
    """What all functions of a module need."""
    module = module if module.source else parse(print_module(module))
    found = [f for f in module.functions.values() if f.body is not None]
    instructions = sorted((i for f in found for i in f.instructions()), key=lambda i: i.pos)
    refused, others = _judged(module, [i.pos for i in instructions])
    for function in found:
        try:
            _Survey(module, function, refused)
        except PtxError as error:  # the checker's, too: a directive names what is not there
            others.append(error)
    reasons = defaultdict(list)
    for i in instructions:
        if i.pos in refused:
            reasons[i.opcode].append(refused[i.pos])
    counts = sorted(Counter(i.opcode for i in instructions).items())
    return Coverage(tuple(Need(n, c, tuple(reasons[n])) for n, c in counts), tuple(others))


def _judged(module: tree.Module, starts: list[int]) -> tuple[dict[int, PtxError], list[PtxError]]:
    """What the checker refuses: instructions by their position, and all else."""
    refused: dict[int, PtxError] = {}
    others = []
    where = _Finder(module.source, starts)
    for error in problems(module):
        pos = where.instruction(error)
        if pos is None:
            others.append(error)
        else:
            refused.setdefault(pos, error)
    return refused, others


class _Finder:
    """Instructions by the place of an error."""

    def __init__(self, source: str, starts: list[int]) -> None:
        self.source, self.starts = source, starts
        lengths = (len(line) for line in source.split("\n"))
        self.lines = list(accumulate((n + 1 for n in lengths), initial=0))

    def instruction(self, error: PtxError) -> int | None:
        """The position of the instruction that an error speaks of."""
        if error.place is None:
            return None
        offset = self.lines[error.place.line - 1] + error.place.column - 1
        before = bisect_right(self.starts, offset) - 1
        if before < 0 or self.source.find(";", self.starts[before]) < offset:
            return None
        return self.starts[before]


class _Survey(Flattener):
    """Walks on behind what is refused, and adds it to the rest."""

    def __init__(
        self, module: tree.Module, function: tree.Function, refused: dict[int, PtxError]
    ) -> None:
        self.refused = refused
        kernel = replace(function, params=(*function.results, *function.params))
        super().__init__(module, kernel, dict.fromkeys(_globals(module), 0))

    def instruction(self, s: tree.Instruction, scope: Scope) -> None:
        if s.pos in self.refused:
            return
        try:
            super().instruction(s, scope)
        except PtxError as error:
            self.refused[s.pos] = error


def _globals(module: tree.Module) -> Iterator[str]:
    """The names that have addresses."""
    for item in module.items:
        shared = isinstance(item, tree.Variable) and item.space == "shared"
        if isinstance(item, tree.Function | tree.Variable) and not shared:
            yield item.name
