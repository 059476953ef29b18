"""The checker says of every matrix instruction and conversion what ptxas says of it.

The cases and ptxas's verdicts are kept (``ptx_forms.forms``): all legal forms, all that are one
modifier away, some with a word moved, 10⁵ random ones; for nine targets and every PTX version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, combinations

import pytest

from ptx_forms import forms_convert, verdicts
from ptx_forms.forms import DECLARATIONS, MATRICES, line
from ptx_forms.verdicts import VERSIONS, Difference, Spans, Verdicts, within
from tilewright import mma, ptx
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.rules.checker import candidates

load_verdicts = cache(partial(Verdicts.load, MATRICES))


@cache
def legal() -> frozenset[str]:
    return frozenset(load_verdicts().legal)


def ours(text: str) -> Spans:
    """What our rows say of an opcode, or of an instruction with operands."""
    opcode, _, operands = text.rstrip(";").partition(" ")
    found = find(opcode)
    if found is None:
        return MATRICES.never
    count = len(re.sub(r"\{[^}]*\}", "", operands).split(","))
    if operands and not candidates(found, count):
        return MATRICES.never
    return MATRICES.spans(found.needs(), found.until)


# --- where we differ on purpose ---------------------------------------------------------------


IGNORED = set(
    "sync satfinite bf16 tf32 s4 u4 s2 u2 b1 bf16x2 pred b8x16 b6x16_p32 b4x16_p64 "
    "xor and or popc kind::f16 kind::tf32 kind::i8".split()
)


def _ignores_words(d: Difference) -> bool:
    """It is legal without one, two or three of them, and for as long, a word's own needs aside.

    Nothing of the list of legal forms is excused so.
    """
    if d.ours != MATRICES.never or d.text in legal():
        return False
    places = [i for i, w in enumerate(d.words) if w in IGNORED]
    for left_out in chain.from_iterable(combinations(places, n) for n in (1, 2, 3)):
        shorter = ".".join(w for i, w in enumerate(d.words) if i not in left_out)
        if within(d.ptxas, ours(shorter)):
            return True
    return False


#: Why we differ, and where: the manual is followed, or common sense.
KNOWN: dict[str, Callable[[Difference], bool]] = {
    "ptxas ignores some words that mean nothing there": _ignores_words,
    "ptxas ignores the operation of s4, which is b1's": lambda d: d.only_ptxas(
        r"mma\..*\.s4\.s4\.s32\.(xor|and|or)\.popc$"
    ),
    "ptxas takes wgmma without .aligned": lambda d: (
        d.only_ptxas("wgmma") and "aligned" not in d.words
    ),
    "m8n8k4 of bf16 and tf32 is in no manual": lambda d: d.only_ptxas(
        r"mma\..*m8n8k4\..*f32\.(bf16\.bf16|tf32\.tf32)\.f32"
    ),
    "wmma.mma of f64 in larger shapes has no loads and stores": lambda d: d.only_ptxas(
        r"wmma\.mma\..*m16n16k(16|8)\.(r.\.)?f64"
    ),
    "CUDA 12.9 takes wmma.load without a type, and u32 for s32, on sm_70 alone": lambda d: (
        d.only_ptxas(r"wmma\.(load|store)\.") and not any(b for _, b in d.ptxas[1:])
    ),
}


def why(d: Difference) -> str:
    return next((reason for reason, holds in KNOWN.items() if holds(d)), "")


def differences(numbers: Iterable[int]) -> Iterator[Difference]:
    return verdicts.differences(load_verdicts(), ours, numbers)


# --- the tests --------------------------------------------------------------------------------


def test_every_row_was_judged():
    judged = {
        *load_verdicts().legal,
        *(text.partition(" ")[0] for text in forms_convert.candidates()),
    }
    rows = {r.opcode for r in mma.catalogue()}
    assert not rows - judged, "judge them: tests/support/ptx_forms/forms_make.py"


def test_legal_forms_and_a_tenth_of_the_others_are_as_ptxas_has_them():
    recorded = load_verdicts()
    numbers = dict.fromkeys([*range(len(recorded.legal)), *range(0, len(recorded.index), 10)])
    assert not [str(d) for d in differences(numbers) if not why(d)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_cases_are_as_ptxas_has_them():
    """And each reason to differ is one still."""
    found = {why(d) or str(d) for d in differences(range(len(load_verdicts().index)))}
    assert found == set(KNOWN)


@pytest.mark.parametrize("target", MATRICES.targets)
def test_the_checker_takes_whole_lines(target):
    """Operands too: what ptxas assembled passes ``ptx.check`` in the last version that had it."""
    recorded, at = load_verdicts(), MATRICES.targets.index(target)
    by_version: dict[int, list[str]] = {}
    for opcode, i in zip(recorded.legal, recorded.index, strict=False):
        if (last := int(recorded.rows[i][at][1])) and find(opcode):
            by_version.setdefault(last - 1, []).append(line(opcode))
    assert by_version
    for last, lines in by_version.items():
        head = f".version {VERSIONS[last]}\n.target {target}\n.address_size 64\n"
        body = f"{DECLARATIONS}\n" + "\n".join(lines)
        assert ptx.problems(ptx.parse(f"{head}.entry k() {{\n{body}\nret;\n}}\n")) == []
