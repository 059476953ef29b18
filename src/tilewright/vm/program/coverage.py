"""Which instructions a module needs, and whether the virtual machine supports them.

An instruction is refused here by the same code that refuses it at a launch: the checker, and the
flattener. No separate list of instructions exists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import accumulate

from ...errors import PtxError, SourceLocation
from ...ptx import parse, print_module, problems, tree
from .call_graph import reachable_functions
from .flat_code import NameScope
from .flatten import Flattener
from .program import only


@dataclass(frozen=True, slots=True)
class InstructionUse:
    """An opcode with its modifiers, how often the module has it, and the errors of those uses that
    are refused.
    """

    opcode: str
    count: int
    refused: tuple[PtxError, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """A module's instructions by opcode, and the errors that are not about an instruction."""

    needs: tuple[InstructionUse, ...]
    others: tuple[PtxError, ...] = ()


def coverage(module: tree.Module) -> Coverage:
    """The instructions of a module's kernels and of the functions that they call; of all functions
    if the module has no kernel.
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
        except PtxError as error:  # such as a directive with an undeclared name
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
    """The checker's errors: those of instructions by position, and all others."""
    refused: dict[int, PtxError] = {}
    others = []
    finder = _InstructionFinder(module, starts)
    for error in problems(module):
        pos = finder.instruction(error)
        if pos is None:
            others.append(error)
        else:
            refused.setdefault(pos, error)
    return refused, others


class _InstructionFinder:
    """Finds the instruction that an error is about."""

    def __init__(self, module: tree.Module, starts: list[int]) -> None:
        self.module, self.starts = module, starts
        lengths = (len(line) for line in module.source.split("\n"))
        self.lines = list(accumulate((n + 1 for n in lengths), initial=0))

    def instruction(self, error: PtxError) -> int | None:
        """The position of the instruction that contains the error's source location, or None."""
        offset = self._offset(error.location) if error.location else None
        if offset is None:
            return None
        before = bisect_right(self.starts, offset) - 1
        if before < 0 or self.module.source.find(";", self.starts[before]) < offset:
            return None
        return self.starts[before]

    def _offset(self, location: SourceLocation) -> int | None:
        """The offset of a source location, in any of the modules that were linked, or None."""
        for start, _ in self.module.parts or ((0, ""),):
            first = bisect_right(self.lines, start) - 1
            offset = (
                self.lines[min(first + location.line, len(self.lines)) - 1] + location.column - 1
            )
            if self.module.location(offset, location.width) == location:
                return offset
        return None


class _CoverageFlattener(Flattener):
    """Records the errors of instructions in ``refused`` and continues."""

    def __init__(
        self, module: tree.Module, function: tree.Function, refused: dict[int, PtxError]
    ) -> None:
        self.refused = refused
        kernel = replace(function, params=(*function.results, *function.params))
        others = (v for v in module.items if isinstance(v, tree.Variable) and v.space != "shared")
        super().__init__(module, kernel, {v.name: 0 for v in others})

    def instruction(self, s: tree.Instruction, scope: NameScope) -> None:
        if s.pos in self.refused:
            return
        try:
            super().instruction(s, scope)
        except PtxError as error:
            self.refused[s.pos] = error
