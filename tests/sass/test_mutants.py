"""100 mutants of our SGEMM for sm_90a with its loop rewritten: each is found by the lint or by the
SASS machine, or is harmless by the worst timing of a warp's run and listed in
``equivalent_mutants.txt``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxas import assemble, ptxas
from sass_mutant_trial import MutantTrial
from sass_mutants import mutants
from sass_worst_case import WorstCase
from tilewright.gemm import Problem
from tilewright.gemm.cp_async import simt
from tilewright.gemm.cp_async.simt_config import SimtConfig
from tilewright.gemm.cp_async.simt_raster import raster_values
from tilewright.sass import CubinFile
from tilewright.sass.lint.lint_function import lint_function
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.schedule.ffma_loop.rewrite_loop import rewrite_loop

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]
CONFIG = SimtConfig.parse("simt:64x64x16:16x8:4/4")
SIZES = 128, 128, 112  # four CTAs, seven turns
MANY = 2560, 64, 16  # 40 CTAs: a second run of what the first one does not find
REGISTERS = 128
FEW = {"wait": 4, "barrier": 4, "stall": 4, "fence": 1, "register": 2, "reuse": 1}
ALL = {"wait": 18, "barrier": 22, "stall": 18, "fence": 10, "register": 24, "reuse": 8}
LIST = Path(__file__).with_name("equivalent_mutants.txt")


@cache
def kernel() -> tuple[CubinFile, str]:
    problem = Problem(4096, 4096, 4096, "f32", "f32", "f32", "k", "n")
    traced = simt.build(problem, CONFIG)
    file = CubinFile.parse(assemble(traced.ptx, "sm_90a").code)
    return rewrite_loop(file, traced.name, REGISTERS), traced.name


def run(
    file: CubinFile, name: str, sizes: tuple[int, int, int] = SIZES, trace: bool = False
) -> tuple[Any, SassMachine]:
    """D's bits of random matrices, and the machine."""
    m, n, k = sizes
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    d = np.zeros((m, n), np.float32)
    zero = np.uint64(0)
    machine = SassMachine(file)
    problem = Problem(m, n, k, "f32", "f32", "f32", "k", "n")
    raster = [np.uint32(x) for x in raster_values(problem, CONFIG).values()]
    machine.run(
        name, (CONFIG.tiles(problem),), (CONFIG.threads,),
        [a, b, zero, d, *(np.uint32(x) for x in (m, n, k)), *(np.uint64(x) for x in (k, n, 0, n)),
         np.float32(1), np.float32(0), *[zero] * 6, *raster],
        shared_bytes=CONFIG.shared_bytes, trace=trace,
    )  # fmt: skip
    return d.view(np.uint32), machine


@cache
def trial() -> MutantTrial:
    file, name = kernel()
    return MutantTrial(
        file, name, lambda cubin, trace: run(cubin, name, SIZES, trace),
        lambda cubin: run(cubin, name, MANY),
    )  # fmt: skip


def test_some_mutants() -> None:
    ways, _ = trial().check(FEW, 10)
    assert ways["lint"] >= 6 and ways["race"] and ways["bits"] + ways["fault"]


@pytest.mark.slow
def test_a_hundred_mutants() -> None:
    ways, harmless = trial().check(ALL, 7)
    assert "\n".join(harmless) + "\n" == LIST.read_text(encoding="utf-8")
    assert sum(ways.values()) == 100
    assert ways["harmless"] < 45


@pytest.mark.slow
def test_the_worst_timing_finds_what_the_lint_finds() -> None:
    """Of control codes in the loop that the lint refuses, the run shows most: not those that only
    another path needs.
    """
    code, trace = trial().code, trial().original[1]
    refused = [m for m in mutants(code, {"wait": 8, "barrier": 8, "stall": 8}, 3)
               if lint_function(m.code(code))]  # fmt: skip
    shown = [m for m in refused if WorstCase(m.code(code), trace).breaches]
    assert len(refused) >= 8
    assert len(shown) >= 0.8 * len(refused)
