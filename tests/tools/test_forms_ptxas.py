"""The kept verdicts are those of the ptxas at hand, for a sample of the cases."""

from __future__ import annotations

from random import Random

import pytest

import forms
from forms import TARGETS, VERSIONS, Verdicts
from forms_make import Judge, judges
from ptxas import ptxas

pytestmark = pytest.mark.skipif(ptxas() is None, reason="no ptxas")


@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_says_so(target):
    told, at = Verdicts.load(), TARGETS.index(target)
    numbers = [*Random(target).sample(range(len(told.index)), 300)]
    legal = [i for i in range(len(told.index)) if told.spans[told.index[i]][at][1]]
    numbers += Random(target).sample(legal, min(100, len(legal)))
    cases = told.cases()
    lines = [cases[i] if " " in cases[i] else forms.line(cases[i]) for i in numbers]
    by_version = judges([str(ptxas())], target)
    if not by_version:
        pytest.skip(f"this ptxas does not know {target}")
    for version in {*list(by_version)[:1], *list(by_version)[-1:]}:
        number = VERSIONS.index(version)
        spans = [told.spans[told.index[i]][at] for i in numbers]
        wanted = [int(a) <= number < int(b) for a, b in spans]
        assert verdicts(by_version[version], lines) == dict(zip(lines, wanted, strict=True))


def verdicts(judge: Judge, lines: list[str]) -> dict[str, bool]:
    said = dict(zip(lines, judge.errors(lines), strict=True))
    passed = [text for text in lines if not said[text]]
    made = dict(zip(passed, judge.assembles(passed), strict=True))
    return {text: made.get(text, False) for text in lines}
