"""The kept verdicts are those of the ptxas at hand, for a sample of the cases."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from ptx_forms.forms import MATRICES
from ptx_forms.forms_async import ASYNC
from ptx_forms.forms_make import Judge, judge, versions
from ptx_forms.verdicts import VERSIONS, Family, Verdicts
from ptxas import ptxas

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


ASKED = [pytest.param(f, t, id=f"{f.file}-{t}") for f in (MATRICES, ASYNC) for t in f.targets]
SOME = [1, pytest.param(5, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("family", "target"), ASKED)
@pytest.mark.parametrize("times", SOME)
def test_ptxas_agrees(family: Family, target: str, times: int):
    told, at = Verdicts.load(family), family.targets.index(target)
    numbers = [*Random(target).sample(range(len(told.index)), 60 * times)]
    rows = told.spans()
    legal = np.flatnonzero(told.rows[told.index, at, 1]).tolist()
    numbers += Random(target).sample(legal, min(20 * times, len(legal)))
    cases = told.cases()
    lines = [family.line(cases[i]) for i in numbers]
    known = versions(target, family.last)
    for order in (known, known[::-1]):
        asked = (judge([str(ptxas())], target, version) for version in order)
        first = next(filter(None, asked), None)
        if first is None:
            pytest.skip(f"this ptxas does not know {target}")
        number = VERSIONS.index(first.version)
        wanted = [a <= number < b for a, b in (rows[told.index[i]][at] for i in numbers)]
        assert verdicts(first, lines) == dict(zip(lines, wanted, strict=True))


def verdicts(of: Judge, lines: list[str]) -> dict[str, bool]:
    said = dict(zip(lines, of.errors(lines), strict=True))
    passed = [text for text in lines if not said[text]]
    made = dict(zip(passed, of.assembles(passed), strict=True))
    return {text: made.get(text, False) for text in lines}
