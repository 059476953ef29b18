"""ptxas's verdicts on forms: which target takes each case in which PTX versions, and what we say.

A ``Family`` of instructions has a list of legal opcodes; from it grow the cases. ``tests/data``
keeps the list and for each case the versions in which ptxas takes it, target by target;
``forms_make.py`` makes those files again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tilewright.ptx.rules.requirements import Requirement, obstacle
from tilewright.target import FIRST_VERSION, Target, parse_version

FOLDER = Path(__file__).parents[2] / "data"
VERSIONS = [
    f"{major}.{minor}" for major, last in ((6, 5), (7, 8), (8, 8), (9, 5))
    for minor in range(last + 1)
]  # fmt: skip
TOP = {"sm_70": "8.8"}  # the last version that a ptxas knows with it

Span = tuple[int, int]  # the first version's number and one past the last; (0, 0): never
Spans = tuple[Span, ...]


@dataclass(frozen=True)
class Family:
    """Instructions that are judged together, up to the PTX version ``last``.

    ``grow`` makes all cases from the legal opcodes, ``line`` the instruction that a case is.
    """

    file: str
    targets: tuple[str, ...]
    last: str
    grow: Callable[[tuple[str, ...]], tuple[str, ...]]
    line: Callable[[str], str]

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    @property
    def never(self) -> Spans:
        return ((0, 0),) * len(self.targets)

    def spans(self, required: Iterable[Requirement], until: str = "") -> Spans:
        """For each target the versions in which something with these needs may be used."""
        return _spans(self.targets, self.last, tuple(required), until)

    def described(self, spans: Spans) -> str:
        """``sm_80 7.0–9.5, …``"""
        given = zip(self.targets, spans, strict=True)
        words = [f"{t} {VERSIONS[a]}–{VERSIONS[b - 1]}" for t, (a, b) in given if b]
        return ", ".join(words) or "never"


@lru_cache(maxsize=None)
def _spans(
    targets: tuple[str, ...], last: str, required: tuple[Requirement, ...], until: str
) -> Spans:
    made = []
    for name in targets:
        target, top = Target.parse(name), min(parse_version(TOP.get(name, last)),
                                              parse_version(last))  # fmt: skip
        found = [
            i for i, v in enumerate(map(parse_version, VERSIONS))
            if FIRST_VERSION[name] <= v <= top
            and not obstacle("it", required, v, target)
            and not (until and v >= parse_version(until))
        ]  # fmt: skip
        made.append((found[0], found[-1] + 1) if found else (0, 0))
    return tuple(made)


def within(few: Spans, many: Spans) -> bool:
    """Whether each span is a late part of its span there."""
    pairs = zip(few, many, strict=True)
    return all(not b or (low <= a and b == high) for (a, b), (low, high) in pairs)


def digest(texts: Iterable[str]) -> str:
    """Names a list of cases, so that kept verdicts are not read against others."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@dataclass(frozen=True)
class Verdicts:
    """For each case a row of ``spans``: when each target takes it."""

    family: Family
    legal: tuple[str, ...]
    index: np.ndarray
    rows: np.ndarray  # (distinct rows, targets, 2)
    digest: str

    def save(self) -> None:
        legal = np.frombuffer("\n".join(self.legal).encode(), np.uint8)
        index, spans = self.index.astype(np.uint16), self.rows.astype(np.uint8)
        np.savez_compressed(
            self.family.path, legal=legal, index=index, spans=spans, digest=self.digest
        )

    @staticmethod
    def load(family: Family) -> Verdicts:
        with np.load(family.path) as archive:
            legal = tuple(bytes(archive["legal"]).decode().split("\n"))
            return Verdicts(
                family, legal, archive["index"], archive["spans"], str(archive["digest"])
            )

    def spans(self) -> list[Spans]:
        """The distinct rows; ``index`` says which is a case's."""
        return [tuple((int(a), int(b)) for a, b in row) for row in self.rows]

    def cases(self) -> tuple[str, ...]:
        """Every case. AssertionError where they are others than were judged."""
        made = self.family.grow(self.legal)
        assert digest(made) == self.digest, "other cases than were judged: run forms_make.py"
        return made


@dataclass(frozen=True)
class Difference:
    """A case of which ptxas and we say different things."""

    family: Family
    text: str
    ptxas: Spans
    ours: Spans

    def __str__(self) -> str:
        theirs, mine = map(self.family.described, (self.ptxas, self.ours))
        return f"{self.text}: ptxas {theirs}; we {mine}"

    @property
    def words(self) -> list[str]:
        return self.text.split(".")

    def only_ptxas(self, pattern: str) -> bool:
        return self.ours == self.family.never and bool(re.match(pattern, self.text))


def differences(
    recorded: Verdicts, ours: Callable[[str], Spans], numbers: Iterable[int]
) -> Iterator[Difference]:
    """Where we and ptxas differ among the cases of these numbers."""
    cases, rows = recorded.cases(), recorded.spans()
    for number in numbers:
        theirs, mine = rows[recorded.index[number]], ours(cases[number])
        if mine != theirs:
            yield Difference(recorded.family, cases[number], theirs, mine)
