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
from sass_cubins import code_of
from sass_mutant_trial import MutantTrial, reads_zeros
from sass_mutants import Mutant, mutants
from sass_worst_case import WorstCase
from tilewright.gemm import Problem, build
from tilewright.gemm.cp_async.simt_config import SimtConfig
from tilewright.gemm.cp_async.simt_launch import raster_values
from tilewright.sass import CubinFile
from tilewright.sass.control_code import ControlCode
from tilewright.sass.lint.lint_function import lint_function
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.sass_text import parse_instruction
from tilewright.sass.schedule.ffma_loop.rewrite_loop import rewrite_loop
from tilewright.target import device_spec

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
    traced = build(problem, CONFIG, device_spec("H200"))
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


ZEROS = "--:-:-:-:5 CS2R R4, SRZ\n"


@pytest.mark.parametrize(
    ("text", "made", "harmless"),
    [
        (ZEROS + "{MOV R8, R4}", "MOV R8, R5", True),
        (ZEROS + "{MOV R8, R4}", "MOV R8, R6", False),
        (ZEROS + "{MOV R8, R4}", "MOV R9, R4", False),
        (ZEROS + "{MOV R4, R8}", "MOV R5, R8", False),
        (ZEROS + "{FFMA R8, R9, R4, R8}", "FFMA R8, R9, R9, R8", False),  # reads R9 as before
        (ZEROS + "{FFMA R8, R4, R4, R8}", "FFMA R8, R4, R5, R8", True),
        (ZEROS + "{STG.E.64 desc[UR4][R8.64], R4}", "STG.E.64 desc[UR4][R8.64], R6", False),
        (ZEROS + "--:-:-:-:5 MOV R5, R9\n{MOV R8, R4}", "MOV R8, R5", False),
        (
            ZEROS + ".L_0:\n{MOV R8, R4}\n--:-:-:-:5 MOV R4, R9\n--:-:-:-:f @P0 BRA `(.L_0)",
            "MOV R8, R5",
            False,
        ),
    ],
)
def test_which_mutants_read_zeros(text: str, made: str, harmless: bool) -> None:
    """The instruction in braces is changed."""
    ahead = text.partition("{")[0]
    index = ahead.count("\n") - ahead.count(".L_0:")
    code = code_of(text.replace("{", "--:-:-:-:5 ").replace("}", ""))
    assert reads_zeros(code, Mutant("", index, ControlCode(), parse_instruction(made))) == harmless


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
