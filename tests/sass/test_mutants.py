"""100 mutants of our SGEMM for sm_90a with its loop rewritten: each is found by the lint or by the
SASS machine, or is harmless by the worst timing of a warp's run and listed in
``equivalent_mutants.txt``.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxas import assemble, ptxas
from sass_mutants import Mutant, mutants
from sass_worst_case import WorstCase
from tilewright.gemm import Problem
from tilewright.gemm.cp_async import simt
from tilewright.gemm.cp_async.simt_config import SimtConfig
from tilewright.sass import CubinFile
from tilewright.sass.lint.lint_function import lint_function
from tilewright.sass.machine.device_memory import SassFault
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.schedule.ffma_loop.rewrite_loop import rewrite_loop

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]
CONFIG = SimtConfig.parse("simt:64x64x16:16x8:4/4")
SIZES = 128, 128, 112  # four CTAs, seven turns
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


def run(file: CubinFile, name: str, trace: bool = False) -> tuple[Any, SassMachine]:
    """D's bits of random matrices, and the machine."""
    m, n, k = SIZES
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    d = np.zeros((m, n), np.float32)
    zero = np.uint64(0)
    machine = SassMachine(file)
    machine.run(
        name, (CONFIG.tiles(Problem(m, n, k, "f32", "f32", "f32", "k", "n")),), (CONFIG.threads,),
        [a, b, zero, d, *(np.uint32(x) for x in (m, n, k)), *(np.uint64(x) for x in (k, n, 0, n)),
         np.float32(1), np.float32(0), *[zero] * 6],
        shared_bytes=CONFIG.shared_bytes, trace=trace,
    )  # fmt: skip
    return d.view(np.uint32), machine


@cache
def original() -> tuple[Any, list[int]]:
    """D's bits, and the instructions that a warp issued."""
    bits, machine = run(*kernel(), trace=True)
    assert not machine.races
    return bits, [index for index, _ in machine.traces[-1][0]]


def found_by(mutant: Mutant) -> str:
    """What finds a mutant: "lint", or "race", "bits", "fault" of its run; "" for nothing."""
    file, name = kernel()
    code = function_code(file, name)
    if lint_function(mutant.code(code)):
        return "lint"
    kind = mutant.what.split(":")[0]
    copies = mutant.text.opcode == "LDGDEPBAR"
    if kind not in ("fence", "register") and not copies:
        return ""  # the machine's values do not depend on it
    try:
        bits, machine = run(mutant.cubin(file, name, code), name)
    except SassFault:
        return "fault"
    return "race" if machine.races else "" if (bits == original()[0]).all() else "bits"


def proof(mutant: Mutant) -> str:
    """Why a mutant is harmless; "" where the worst timing of a run does not show it."""
    file, name = kernel()
    code = function_code(file, name)
    trace = original()[1]
    if mutant.what.startswith(("register", "fence")) or mutant.index not in trace:
        return ""
    if mutant.what.startswith("reuse"):
        return "a register in the reuse cache has the value that it had"
    if mutant.text.opcode == "LDGDEPBAR":
        return "the run waits for its new barrier before its copies are read"
    before, after = WorstCase(code, trace), WorstCase(mutant.code(code), trace)
    assert not before.breaches
    if after.breaches:
        return ""
    others = {pair: how for pair, how in after.covered.items() if before.covered[pair] != how}
    if mutant.what.startswith("stall"):
        mine = [h for (made, _), h in after.covered.items() if made == mutant.index and "of" in h]
        return f"result used after {mine[0]}" if mine else "no result used that soon"
    if not others:
        return "nothing used later is pending on it"
    (made, used), how = min(others.items())
    return f"{code.offsets[made]:#x} → {code.offsets[used]:#x}: {how}"


def check(counts: dict[str, int]) -> tuple[Counter[str], list[str]]:
    """How mutants were found, and a line for each harmless one. Asserts that all are either."""
    file, name = kernel()
    code = function_code(file, name)
    made = mutants(code, counts, 7)
    assert len(made) == sum(counts.values())
    ways: Counter[str] = Counter()
    harmless = []
    for mutant in made:
        how = found_by(mutant)
        if not how:
            why = proof(mutant)
            x = code.instructions[mutant.index]
            line = f"{code.offsets[mutant.index]:#06x} {x.control} {x.text} | {mutant.what}"
            assert why, f"neither found nor proved harmless: {line}"
            harmless.append(f"{line} | {why}")
        ways[how or "harmless"] += 1
    return ways, harmless


def test_some_mutants() -> None:
    ways, _ = check(FEW)
    assert ways["lint"] >= 6 and ways["race"] and ways["bits"] + ways["fault"]


@pytest.mark.slow
def test_a_hundred_mutants() -> None:
    ways, harmless = check(ALL)
    assert "\n".join(harmless) + "\n" == LIST.read_text(encoding="utf-8")
    assert sum(ways.values()) == 100
    assert ways == {"lint": 31, "race": 11, "bits": 17, "fault": 3, "harmless": 38}


def test_the_worst_timing_finds_what_the_lint_finds() -> None:
    """Of control codes in the loop that the lint refuses, the run shows most: not those that only
    another path needs.
    """
    file, name = kernel()
    code = function_code(file, name)
    trace = original()[1]
    refused = [m for m in mutants(code, {"wait": 8, "barrier": 8, "stall": 8}, 3)
               if lint_function(m.code(code))]  # fmt: skip
    shown = [m for m in refused if WorstCase(m.code(code), trace).breaches]
    assert len(refused) >= 8
    assert len(shown) >= 0.8 * len(refused)
