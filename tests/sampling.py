"""Which of many alike cases ``make test`` runs; ``make test-all`` runs them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every(n: int, cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters, all but every ``n``-th one slow."""
    made = []
    for i, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        made.append(pytest.param(*values, marks=pytest.mark.slow if i % n else ()))
    return made
