"""The kept verdicts are those of the ptxas at hand, for a sample of the cases."""

from __future__ import annotations

from random import Random

import pytest

from ptx_forms.forms import MATRICES
from ptx_forms.forms_async import ASYNC
from ptx_forms.forms_make import Judge, judges
from ptx_forms.verdicts import VERSIONS, Family, Verdicts
from ptxas import ptxas

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


ASKED = [pytest.param(f, t, id=f"{f.file}-{t}") for f in (MATRICES, ASYNC) for t in f.targets]
SOME = [1, pytest.param(3, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("family", "target"), ASKED)
@pytest.mark.parametrize("times", SOME)
def test_ptxas_agrees(family: Family, target: str, times: int):
    told, at = Verdicts.load(family), family.targets.index(target)
    numbers = [*Random(target).sample(range(len(told.index)), 100 * times)]
    rows = told.spans()
    legal = [i for i in range(len(told.index)) if rows[told.index[i]][at][1]]
    numbers += Random(target).sample(legal, min(33 * times, len(legal)))
    cases = told.cases()
    lines = [family.line(cases[i]) for i in numbers]
    by_version = judges([str(ptxas())], target, family.last)
    if not by_version:
        pytest.skip(f"this ptxas does not know {target}")
    for version in {*list(by_version)[:1], *list(by_version)[-1:]}:
        number = VERSIONS.index(version)
        wanted = [a <= number < b for a, b in (rows[told.index[i]][at] for i in numbers)]
        assert verdicts(by_version[version], lines) == dict(zip(lines, wanted, strict=True))


def verdicts(judge: Judge, lines: list[str]) -> dict[str, bool]:
    said = dict(zip(lines, judge.errors(lines), strict=True))
    passed = [text for text in lines if not said[text]]
    made = dict(zip(passed, judge.assembles(passed), strict=True))
    return {text: made.get(text, False) for text in lines}
