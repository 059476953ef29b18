"""Which instructions a module needs, and whether the machine runs them.

Who refuses an instruction when a kernel is launched is asked here too: the checker, and the walk
over a function's body. No list of instructions exists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import accumulate

from ...errors import PtxError, SourceLocation
from ...ptx import parse, print_module, problems, tree
from .call_graph import reachable_functions
from .flatten import Flattener, NameScope
from .program import only


@dataclass(frozen=True, slots=True)
class InstructionUse:
    """A form of an instruction, how often it stands in a module, and why it is refused where."""

    opcode: str
    count: int
    refused: tuple[PtxError, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """A module's forms by name, and what is wrong beside its instructions."""

    needs: tuple[InstructionUse, ...]
    others: tuple[PtxError, ...] = ()


def coverage(module: tree.Module) -> Coverage:
    """What the kernels of a module need, with the functions that they call; where there are no
    kernels, all functions.
    """
    module = module if module.source else parse(print_module(module))
    roots = module.entries or tuple(module.functions.values())
    code = {
        f.name: f for root in roots for f in (root, *reachable_functions(module, root).values())
    }
    instructions = sorted((i for f in code.values() for i in f.instructions()), key=lambda i: i.pos)
    refused, others = _checker_errors(only(module, code), [i.pos for i in instructions])
    for root in roots:
        try:
            _CoverageFlattener(module, root, refused)
        except PtxError as error:  # the checker's, too: a directive names what is not there
            others.append(error)
    reasons = defaultdict(list)
    for i in instructions:
        if i.pos in refused:
            reasons[i.opcode].append(refused[i.pos])
    counts = sorted(Counter(i.opcode for i in instructions).items())
    return Coverage(
        tuple(InstructionUse(n, c, tuple(reasons[n])) for n, c in counts), tuple(others)
    )


def _checker_errors(
    module: tree.Module, starts: list[int]
) -> tuple[dict[int, PtxError], list[PtxError]]:
    """What the checker refuses: instructions by their position, and all else."""
    refused: dict[int, PtxError] = {}
    others = []
    where = _InstructionFinder(module, starts)
    for error in problems(module):
        pos = where.instruction(error)
        if pos is None:
            others.append(error)
        else:
            refused.setdefault(pos, error)
    return refused, others


class _InstructionFinder:
    """Instructions by the place of an error."""

    def __init__(self, module: tree.Module, starts: list[int]) -> None:
        self.module, self.starts = module, starts
        lengths = (len(line) for line in module.source.split("\n"))
        self.lines = list(accumulate((n + 1 for n in lengths), initial=0))

    def instruction(self, error: PtxError) -> int | None:
        """The position of the instruction that an error speaks of."""
        offset = self._offset(error.location) if error.location else None
        if offset is None:
            return None
        before = bisect_right(self.starts, offset) - 1
        if before < 0 or self.module.source.find(";", self.starts[before]) < offset:
            return None
        return self.starts[before]

    def _offset(self, location: SourceLocation) -> int | None:
        """Where in the source a place is, in whichever of a linked module's parts."""
        for start, _ in self.module.parts or ((0, ""),):
            first = bisect_right(self.lines, start) - 1
            offset = (
                self.lines[min(first + location.line, len(self.lines)) - 1] + location.column - 1
            )
            if self.module.location(offset, location.width) == location:
                return offset
        return None


class _CoverageFlattener(Flattener):
    """Walks on behind what is refused, and adds it to the rest."""

    def __init__(
        self, module: tree.Module, function: tree.Function, refused: dict[int, PtxError]
    ) -> None:
        self.refused = refused
        kernel = replace(function, params=(*function.results, *function.params))
        placed = (v for v in module.items if isinstance(v, tree.Variable) and v.space != "shared")
        super().__init__(module, kernel, {v.name: 0 for v in placed})

    def instruction(self, s: tree.Instruction, scope: NameScope) -> None:
        if s.pos in self.refused:
            return
        try:
            super().instruction(s, scope)
        except PtxError as error:
            self.refused[s.pos] = error
