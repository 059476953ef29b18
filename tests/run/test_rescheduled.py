"""The machine code of f32 products: what matmul runs has its loop rewritten, or is ptxas'."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilewright
from gemm_cases.kernels import SPILLED
from ptxas import ptxas
from tilewright import cuda
from tilewright.gemm import Problem, build
from tilewright.gemm.cp_async import simt
from tilewright.gemm.cp_async.simt_config import TABLE
from tilewright.run.devices.serialized_kernel import rescheduled
from tilewright.sass import CubinFile
from tilewright.sass.lint import lint_cubin
from tilewright.sass.lint.register_banks import conflict_cycles
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.schedule.ffma_loop.loop_values import find_loop
from tilewright.target import device_spec

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


def compiled(problem: Problem, number: int) -> tuple[cuda.Cubin, str]:
    """ptxas' machine code of a shipped configuration."""
    traced = build(problem, TABLE[number], device_spec("H200"))
    return cuda.compile(traced.ptx, "sm_90a"), traced.name


def conflicts(cubin: cuda.Cubin, name: str) -> int:
    """Cycles of bank conflicts in the loop."""
    code = function_code(CubinFile.parse(cubin.code), name)
    first, last = find_loop(code)
    return sum(conflict_cycles(90, [x.text for x in code.instructions[first:last]]))


def square(a_major: str = "k", b_major: str = "n") -> Problem:
    return Problem(4096, 4096, 4096, "f32", "f32", "f32", a_major, b_major)


def test_matmul_runs_the_rewritten_loop() -> None:
    """The small tile, and what ``plan`` says of it."""
    plan = tilewright.plan(4096, 4096, 4096, dtype="f32", device="vm", config=str(TABLE[-1]))
    old, name = compiled(plan.problem, len(TABLE) - 1)
    new = rescheduled(old, name)
    assert not lint_cubin(CubinFile.parse(new.code))
    assert conflicts(new, name) < conflicts(old, name) / 2
    table = tilewright.sass.encoding_table(90)
    code = CubinFile.parse(new.code).code(name)
    assert plan.sass == tilewright.sass.disassemble(table, code)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["kn", "kk", "mn", "mk"])
@pytest.mark.parametrize("number", range(len(TABLE)), ids=[str(x) for x in TABLE])
def test_every_configuration_has_its_loop_rewritten(number: int, layout: str) -> None:
    old, name = compiled(square(*layout), number)
    spills = (str(TABLE[number]), layout) in SPILLED
    assert (rescheduled(old, name).code == old.code) == spills


def test_other_code_stays() -> None:
    old, name = compiled(square(), len(TABLE) - 1)
    early = old.code[:-100]  # a file that ends early
    for other in (
        cuda.compile(simt.build(square(), TABLE[-1]).ptx, "sm_80").code,
        early,
        b"// PTX",
    ):
        assert rescheduled(replace(old, code=other), name).code == other
    assert rescheduled(old, "tma_f16") is old
    assert rescheduled(old, "simt_other").code == old.code
