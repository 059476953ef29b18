"""REGISTER_MAPPING of a maxas file: which names stand for which registers.

     3, 2, 11, 10 : cx<00-03>y0         names of fixed registers, in order
    64-79         : a<0-7>, b<0-7>      ranges; ``a`` alone is a0, for vectors
    96-111        ~ track[0], end, i    registers to allocate from; [0] asks for a bank
    5             = x, y                several names of one register

A name to be allocated gets a virtual register, a number from ``VIRTUAL`` on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from ..schedule.register_request import VIRTUAL, RegisterRequest
from .source_line import SourceLine

_LAST = 254
_RANGE = re.compile(r"(\d+)\s*(?:-\s*(\d+))?")
_NAMES = re.compile(r"(\w+)<((?:\s*\d+(?:\s*-\s*\d+)?\s*\|?)+)>(\w*)(?:\[([0-3])\])?")
_NAME = re.compile(r"([A-Za-z_]\w*)(?:\[([0-3])\])?")
_RESERVED = re.compile(r"R\d+|RZ|U?P[0-7]|U?PT|UR\d+|URZ|CC|PR")
_LIMIT = 4096  # names of one line


@dataclass
class RegisterMapping:
    """``numbers`` are the register of each name: fixed, or virtual and then in ``requests``.

    ``vectors`` are the numbers of the line that a register belongs to, in order.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    requests: list[RegisterRequest] = field(default_factory=list)

    def read(self, lines: list[SourceLine]) -> None:
        """Add the lines of a REGISTER_MAPPING. Raises SassError for malformed ones."""
        for line in lines:
            if line.bare:
                self._read(line)

    def _read(self, line: SourceLine) -> None:
        found = re.fullmatch(r"([\d\s,-]+)([:~=])(.*)", line.bare)
        if found is None:
            raise line.error(
                f"a mapping must be like 0-3 : name<0-3>, got {line.bare!r:.60}",
                hint="the sign is : for fixed registers, ~ to allocate, = for one register",
            )
        numbers = _numbers(found[1], line)
        names = [n for part in found[3].split(",") for n in _names(part.strip(), line)]
        kind = found[2]
        if len(names) > _LIMIT:
            raise line.error(f"a line must have at most {_LIMIT} names, got {len(names)}")
        if kind == "=" and len(numbers) > 1:
            raise line.error(f"names of one register must follow one number, got {len(numbers)}")
        if kind == ":" and len(names) > len(numbers):
            raise line.error(f"{len(names)} names must have registers, got {len(numbers)}")
        if kind != "~" and any(bank is not None for _, bank, _ in names):
            raise line.error("a bank must be asked for where registers are allocated (~), got :")
        if kind == "~":
            self._allocated(names, numbers, line)
            return
        for i, (name, _, base) in enumerate(names):
            self._define(name, numbers[i if kind == ":" else 0], line)
            if kind == ":" and _vector(numbers, i):
                self.numbers.setdefault(base, numbers[i])

    def _allocated(
        self, names: list[tuple[str, int | None, str]], numbers: list[int], line: SourceLine
    ) -> None:
        """A line with ``~``: names that share a pool, each with a virtual register."""
        last = self.requests[-1].number if self.requests else VIRTUAL
        start = (last // 8 + 1) * 8  # a vector never runs into another line
        for i, (name, bank, base) in enumerate(names):
            self._define(name, start + i, line)
            group = self.numbers.get(base, start + i) if base else start + i
            request = RegisterRequest(name, start + i, tuple(numbers), bank, group)
            self.requests.append(request)
            if base:
                self.numbers.setdefault(base, start + i)

    def _define(self, name: str, number: int, line: SourceLine) -> None:
        if name in self.numbers:
            raise line.error(f"a register must be defined once, got {name}")
        if _RESERVED.fullmatch(name):
            raise line.error(f"a name must differ from the machine's registers, got {name}")
        self.numbers[name] = number


def _numbers(text: str, line: SourceLine) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise line.error(f"registers must be numbers or ranges, got {part.strip()!r:.40}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last <= _LAST:
            raise line.error(f"registers must be between 0 and {_LAST}, got {part.strip()}")
        found += range(first, last + 1)
    return found


def _names(text: str, line: SourceLine) -> list[tuple[str, int | None, str]]:
    """(name, bank, the name without its number or "") of each name in a part of a line."""
    if single := _NAME.fullmatch(text):
        return [(single[1], int(single[2]) if single[2] else None, "")]
    found = _NAMES.fullmatch(text)
    if found is None:
        raise line.error(f"a name must be like a, a[0] or a<0-3|8>b, got {text!r:.40}")
    bank = int(found[4]) if found[4] else None
    made = []
    for part in found[2].split("|"):
        first, _, last = (x.strip() for x in part.partition("-"))
        for number in _counted(first, last or first, line):
            made.append((f"{found[1]}{number}{found[3]}", bank, found[1] + found[3]))
    return made


def _counted(first: str, last: str, line: SourceLine) -> list[str]:
    """The numbers of a range, as wide as its first: 00 to 03 are 00, 01, 02, 03."""
    if not first.isdigit() or not last.isdigit() or not 0 <= int(last) - int(first) < _LIMIT:
        raise line.error(f"a range of names must be like 0-3 or 00-15, got {first}-{last}")
    width = len(first) if first.startswith("0") else 0
    return [f"{i:0{width}d}" for i in range(int(first), int(last) + 1)]


def _vector(numbers: list[int], i: int) -> bool:
    """Whether a vector can begin at the i-th register of a line."""
    ascending = all(b == a + 1 for a, b in pairwise(numbers))
    return ascending and numbers[i] % 2 == 0 and i + 1 < len(numbers)
