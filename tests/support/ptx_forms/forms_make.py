"""Makes tests/data/forms_*.npz again, with PYTHONPATH=tests/support:
python -m ptx_forms.forms_make FAMILY PTXAS [PTXAS …]

FAMILY is ``matrices`` or ``async``. Give the ptxas of CUDA 12.9, for sm_70, and then the newest:
the last that knows a target judges it.
ptxas names every bad line of a file in one run. A line is legal where the front end takes it and
code generation too, alone in its kernel. Lines that no probed version takes are not asked again for
the versions between: nothing was ever taken back within half a year. Targets that are not in
``FULL`` are asked for what others take and for a tenth of the rest. Some bad lines crash ptxas, now
and then. It takes a quarter of an hour.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import numpy as np

from ptx_forms import forms, forms_async
from ptx_forms.verdicts import VERSIONS, Family, Span, Verdicts, digest
from tilewright import mma
from tilewright.ptx.isa import ROWS, Row
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.isa.row import ListedRow
from tilewright.target import FIRST_VERSION, parse_version

CHUNK, KERNELS = 2000, 48
PROBED = {"6.2", "6.4", "7.8"}  # and the first and the last
LAST = "illegal.thing %r0;"  # stops ptxas before code generation, and shows that it came so far
ABOUT_OPERANDS = re.compile("rgument|vector size|Unexpected number|Vector|perand")

FULL = ["sm_70", "sm_90a", "sm_100a", "sm_120a"]  # the others take nothing that none of these does
CRASHED: set[str] = set()  # lines that some ptxas crashed on: asked alone
_ERROR = re.compile(r"\.ptx, line (\d+); (?:error|fatal)\s*: (.*)")


@dataclass(frozen=True)
class Judge:
    """One ptxas, asked for one target and PTX version."""

    path: str
    target: str
    version: str

    def errors(self, lines: Sequence[str]) -> list[list[str]]:
        """What the front end says of each line; a line that crashes ptxas: ["crash"]."""
        found_errors: dict[str, list[str]] = {}
        tame = [text for text in lines if text not in CRASHED]
        waiting = [tame[i : i + CHUNK] for i in range(0, len(tame), CHUNK)]
        waiting += [[text] for text in lines if text in CRASHED]
        while waiting:
            part = waiting.pop()
            found, whole = self._front(part)
            if whole or (len(part) == 1 and found):
                found_errors |= {text: found.get(i, []) for i, text in enumerate(part)}
            elif len(part) == 1:
                found, whole = self._front(part)  # again: ptxas may have died of something else
                found_errors[part[0]] = found.get(0, []) if whole else ["crash"]
                CRASHED.update(part[: not whole])
            else:  # most often it crashed on the last line that it named
                at = max(found, default=len(part) // 2)
                waiting += filter(None, (part[at + 1 :], part[at : at + 1], part[:at]))
        return [found_errors[text] for text in lines]

    def _front(self, lines: Sequence[str]) -> tuple[dict[int, list[str]], bool]:
        """The errors of each line, by its number, and whether ptxas came to the end."""
        head = f"{self._head()}.entry k(){{ {forms.DECLARATIONS}\n"
        done = self._run(head + "\n".join(lines) + f"\n{LAST}\nret; }}\n")
        found: dict[int, list[str]] = {}
        for number, message in _ERROR.findall(done.stdout + done.stderr):
            found.setdefault(int(number) - head.count("\n") - 1, []).append(message)
        assert min(found, default=0) >= 0, found[min(found)]
        return found, found.pop(len(lines), None) is not None and done.returncode > 0

    def assembles(self, lines: Sequence[str]) -> list[bool]:
        """Whether each line passes code generation, in a kernel of its own."""
        if len(lines) > KERNELS:
            parts = (lines[i : i + KERNELS] for i in range(0, len(lines), KERNELS))
            return [x for part in parts for x in self.assembles(part)]
        kernels = (
            f".entry k{i}(){{ {forms.DECLARATIONS}\n{text}\nret; }}\n"
            for i, text in enumerate(lines)
        )
        whole = self._head() + "".join(kernels)
        if not lines or self._run(whole).returncode == 0:
            return [True] * len(lines)
        if len(lines) == 1:  # again: ptxas may have died of something else
            return [self._run(whole).returncode == 0]
        half = len(lines) // 2
        return self.assembles(lines[:half]) + self.assembles(lines[half:])

    def _head(self) -> str:
        return f".version {self.version}\n.target {self.target}\n.address_size 64\n"

    def _run(self, text: str) -> subprocess.CompletedProcess[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            command = [self.path, "-arch", self.target, file.name, "-o", "/dev/null"]
            return subprocess.run(command, capture_output=True, text=True)

    @cache  # noqa: B019
    def works(self) -> bool:
        """Whether it knows the target and the version."""
        return self._run(f"{self._head()}.entry k(){{ ret; }}\n").returncode == 0


def versions(target: str, last: str) -> list[str]:
    """The PTX versions up to ``last`` that know a target."""
    first, end = FIRST_VERSION[target], parse_version(last)
    return [v for v in VERSIONS if first <= parse_version(v) <= end]


def judges(paths: Sequence[str], target: str, last: str = VERSIONS[-1]) -> dict[str, Judge]:
    """For each version the last ptxas that knows it and the target."""
    found = ((v, judge(paths, target, v)) for v in versions(target, last))
    return {v: j for v, j in found if j}


def judge(paths: Sequence[str], target: str, version: str) -> Judge | None:
    """The last ptxas that knows the target and the version."""
    asked = (Judge(path, target, version) for path in reversed(paths))
    return next((j for j in asked if j.works()), None)


def spans(
    lines: Sequence[str], paths: Sequence[str], target: str, last: str, among: Iterable[int]
) -> dict[int, Span]:
    """The lines, ``among`` these, that a target takes in some version, each with its versions."""
    by_version = judges(paths, target, last)
    known = list(by_version)
    accepted: set[int] = set()
    for version in (v for v in known if v in {*PROBED, known[0], known[-1]}):
        end = version == known[-1]
        asked = [i for i in among if end or target == "sm_90a" or lines[i][:5] != "wgmma"]
        some = [lines[i] for i in asked]
        errors = by_version[version].errors(some)
        accepted |= {i for i, found_errors in zip(asked, errors, strict=True) if not found_errors}
        _hidden(by_version[version], some, errors)
    tame = sorted(i for i in accepted if lines[i] not in CRASHED)
    taken: dict[int, list[int]] = {i: [] for i in tame}
    for version, judge in by_version.items():
        for i, found_errors in zip(tame, judge.errors([lines[i] for i in tame]), strict=True):
            if not found_errors:
                taken[i].append(VERSIONS.index(version))
    return dict(_whole(lines, taken, by_version))


def _whole(
    lines: Sequence[str], taken: dict[int, list[int]], by_version: dict[str, Judge]
) -> Iterator[tuple[int, Span]]:
    """The spans of those that pass code generation in the last version that takes them."""
    by_last: dict[int, list[int]] = {}
    for i, found in taken.items():
        if not found or lines[i] in CRASHED or found[-1] - found[0] >= len(found):
            say("not always:", lines[i], found)
        else:
            by_last.setdefault(found[-1], []).append(i)
    for last, some in by_last.items():
        good = by_version[VERSIONS[last]].assembles([lines[i] for i in some])
        for i, made in zip(some, good, strict=True):
            if made:
                yield i, (taken[i][0], taken[i][-1] + 1)
            else:
                say("front end only:", by_version[VERSIONS[last]].target, lines[i])


def _hidden(judge: Judge, lines: Sequence[str], errors: Sequence[list[str]]) -> None:
    """Print what only our choice of operands made illegal."""
    odd = {
        text.split()[0]: text for text, found_errors in zip(lines, errors, strict=True)
        if found_errors and all(map(ABOUT_OPERANDS.search, found_errors))
    }  # fmt: skip
    tries = [f"{opcode} {given};" for opcode in odd for given in others(odd[opcode])]
    for text, found_errors in zip(tries, judge.errors(tries), strict=True):
        if not found_errors and all(judge.assembles([text])):
            say("legal with other operands:", judge.target, judge.version, text)


def others(text: str) -> Iterator[str]:
    """Operands of another kind or number for a line."""
    opcode, _, given = text[:-1].partition(" ")
    if opcode.startswith(("mma", "wgmma.mma")):
        four = re.findall(r"\{[^}]*\}|%\w+|-?\d+", given)
        head, tail = (four[:4], forms.SELECTORS) if opcode[0] == "m" else (four[:3], [])
        if tail:
            for more in ([], ["%r399", "0"], tail, ["%r399", "0", *tail]):
                yield ", ".join(head + more)
                yield re.sub("%f", "%r", ", ".join(head + more))
        else:
            for more in (["%p1"], ["%p1", "1", "1"], ["%p1", "1", "1", "0", "0"]):
                yield ", ".join(head + more)
                yield ", ".join([*head, "%r399", "0", *more])
    elif opcode.startswith(("wmma.load", "wmma.store")):
        for name in ("%r", "%f", "%d"):
            for count in (1, 2, 4, 8):
                vector = "{" + ", ".join(f"{name}{i}" for i in range(count)) + "}"
                yield f"{vector}, [%l1]" if "load" in opcode else f"[%l1], {vector}"
    elif opcode.split(".")[0] in forms_async.POSITIONS:
        yield from forms_async.others(given)


def judged_by(
    family: Family, lines: Sequence[str], paths: Sequence[str]
) -> dict[str, dict[int, Span]]:
    """For each target the spans of the lines that it takes."""

    def judged(targets: Iterable[str], among: Sequence[int]) -> dict[str, dict[int, Span]]:
        ask = partial(spans, lines, paths, last=family.last, among=among)
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(targets, pool.map(ask, targets), strict=True))

    found = judged([t for t in family.targets if t in FULL], range(len(lines)))
    some = {i for of_target in found.values() for i in of_target}
    rest = [t for t in family.targets if t not in FULL]
    more = judged(rest, sorted({*some, *range(0, len(lines), 10)}))
    assert not {i for of_target in more.values() for i in of_target} - some, "ask them of all"
    return found | more


def make(family: Family, paths: Sequence[str], legal: Sequence[str]) -> Verdicts:
    cases = family.grow(tuple(legal))
    found = judged_by(family, [*map(family.line, cases)], paths)
    rows: dict[tuple[Span, ...], int] = {family.never: 0}
    touched = {i for of_target in found.values() for i in of_target}
    index = np.zeros(len(cases), np.uint16)
    for i in sorted(touched):
        row = tuple(found[t].get(i, (0, 0)) for t in family.targets)
        index[i] = rows.setdefault(row, len(rows))
    spans_ = np.array(list(rows), np.uint8)
    return Verdicts(family, tuple(legal), index, spans_, digest(cases))


# --- what begins it ---------------------------------------------------------------------------

ASKED = "mbarrier bulk tensor cluster multimem fences caching copies".split()  # whole files of rows
BESIDE = "bar barrier setmaxnreg griddepcontrol elect activemask nanosleep cvta isspacep".split()


def matrices() -> set[str]:
    """The opcodes of our rows."""
    return {r.opcode for r in mma.ROWS}


def asynchronous() -> set[str]:
    """The opcodes of our rows; of plain accesses those to a cluster's shared memory."""
    rows = (r for some in ROWS.values() for r in some if not isinstance(r, ListedRow))
    return {o for r in rows for o in _opcodes(r) if find(o)}


def _opcodes(row: Row) -> Iterable[str]:
    if row.meaning.__module__.split(".")[-1] in ASKED or row.mnemonic in BESIDE:
        return row.opcodes()
    spaces = next((s.choices for s in row.slots if s.name == "space"), ())
    if "shared::cluster" not in spaces:
        return ()
    only = {"space": ["shared::cluster"], "mmio": [""], "nc": [""], "evict": [""], "hint": [""],
            "prefetch": [""]}  # fmt: skip
    axes = [only.get(s.name, [""] * s.optional + [*s.choices]) for s in row.slots]
    return (".".join([row.mnemonic, *filter(None, words)]) for words in product(*axes))


FAMILIES = {"matrices": (forms.MATRICES, matrices), "async": (forms_async.ASYNC, asynchronous)}


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in FAMILIES:
        sys.exit("usage: python -m ptx_forms.forms_make FAMILY PTXAS [PTXAS …]")
    family, ours = FAMILIES[sys.argv[1]]
    kept = Verdicts.load(family).legal if family.path.exists() else ()
    made = make(family, sys.argv[2:], sorted({*kept, *ours()}))
    made.save()
    legal = Counter(
        case.split(".")[0] for case, i in zip(made.cases(), made.index, strict=True) if i
    )
    say(len(made.index), "cases, legal somewhere:", dict(legal), family.path.stat().st_size)


if __name__ == "__main__":
    main()
