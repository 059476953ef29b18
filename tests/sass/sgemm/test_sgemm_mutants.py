"""166 mutants of the SGEMM for Maxwell: each is found by the lint or by the SASS machine, or is
harmless by the worst timing of a warp's run and listed in ``equivalent_mutants.txt``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sass_mutant_trial import MutantTrial
from tilewright.sass import CubinFile
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.sgemm import SgemmPlan, run_sgemm, sgemm_cubin

PLAN = SgemmPlan(128)
FEW = {"wait": 4, "barrier": 4, "stall": 4, "fence": 1, "register": 3}
ALL = {"wait": 24, "barrier": 34, "stall": 26, "fence": 2, "register": 80}
LIST = Path(__file__).with_name("equivalent_mutants.txt")


def run(file: CubinFile, trace: bool) -> tuple[Any, SassMachine]:
    """C's bits of random matrices, and the machine: three steps of K, rows and columns cut."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((21, n)).astype(np.float32) for n in (136, 124))
    c, machine = run_sgemm(PLAN, a, b, 1.5, trace=trace, cubin=file)
    return c.view(np.uint32), machine


@cache
def trial() -> MutantTrial:
    return MutantTrial(sgemm_cubin(PLAN), PLAN.name, run)


def test_some_mutants() -> None:
    ways, _ = trial().check(FEW, 3)
    assert ways["lint"] >= 5
    assert ways["bits"] + ways["fault"] >= 2


@pytest.mark.slow
def test_166_mutants() -> None:
    ways, harmless = trial().check(ALL, 3)
    assert "\n".join(harmless) + "\n" == LIST.read_text(encoding="utf-8")
    assert sum(ways.values()) == 166
