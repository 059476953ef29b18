"""The main loop of kernel ``simt`` scheduled and allocated anew: same bits, no hazard, fewer bank
conflicts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxas import assemble, ptxas
from rows import every_row
from sass_cubins import cubin
from tilewright.cli import main
from tilewright.errors import SassError
from tilewright.gemm import Problem, build, parse
from tilewright.gemm.cp_async.simt_config import TABLE, SimtConfig
from tilewright.sass import CubinFile
from tilewright.sass.lint import lint_cubin
from tilewright.sass.lint.register_banks import conflict_cycles
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.machine.sm_timing import TimingReport, simulate
from tilewright.sass.schedule.ffma_loop.loop_values import find_loop
from tilewright.sass.schedule.ffma_loop.rescheduled_code import rescheduled_code
from tilewright.sass.schedule.ffma_loop.rewrite_loop import rewrite_loop
from tilewright.target import device_spec

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


@cache
def kernels(config: str, limit: int, ragged: bool = False) -> tuple[CubinFile, CubinFile, str]:
    """ptxas' cubin, the rewritten one, and the kernel's name."""
    sizes = (999, 1001, 1003) if ragged else (4096, 4096, 4096)
    align = 4 if ragged else 16
    problem = Problem(*sizes, "f32", "f32", "f32", "k", "n", align_a=align, align_b=align,
                      align_d=align)  # fmt: skip
    traced = build(problem, parse(config), device_spec("H200"))
    old = CubinFile.parse(assemble(traced.ptx, "sm_90a").code)
    return old, rewrite_loop(old, traced.name, limit), traced.name


def product(
    file: CubinFile, name: str, sizes: tuple[int, int, int], config: str
) -> tuple[Any, SassMachine]:
    """D of random matrices, by one CTA."""
    m, n, k = sizes
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    d = np.zeros((m, n), np.float32)
    zero = np.uint64(0)
    lengths = [np.uint64(x) for x in (k, n, 0, n)]
    machine = SassMachine(file)
    parsed = SimtConfig.parse(config)
    machine.run(
        name, (1,), (parsed.threads,),
        [a, b, zero, d, *(np.uint32(x) for x in (m, n, k)), *lengths,
         np.float32(1), np.float32(0), *[zero] * 6, *[np.uint32(0)] * 7],
        shared_bytes=parsed.shared_bytes, trace=True,
    )  # fmt: skip
    assert not machine.races
    return d, machine


def timing(machine: SassMachine, name: str) -> TimingReport:
    return simulate(machine.code(name), machine.traces)


def conflicts(file: CubinFile, name: str) -> int:
    code = function_code(file, name)
    first, last = find_loop(code)
    return sum(conflict_cycles(90, [x.text for x in code.instructions[first:last]]))


CONFIG, LIMIT = "simt:64x64x16:8x8x2:3/4", 128


def test_the_bits_are_the_same_and_there_is_no_hazard() -> None:
    old, new, name = kernels(CONFIG, LIMIT)
    assert not lint_cubin(new)
    assert new.registers(name) <= LIMIT
    sizes = (64, 64, 80)  # 5 turns
    (expected, before), (found, after) = (product(x, name, sizes, CONFIG) for x in (old, new))
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert np.abs(expected).max() > 1
    assert timing(after, name).lost["bank"] <= timing(before, name).lost["bank"]


def test_there_are_few_bank_conflicts() -> None:
    old, new, name = kernels(CONFIG, LIMIT)
    before, after = (conflicts(x, name) for x in (old, new))
    assert after <= before // 3


def test_the_loop_of_squares_is_rewritten() -> None:
    """Its epilogue writes registers of accumulators with carries, which are predicates."""
    name = str(next(iter(TABLE)))
    old, new, kernel = kernels(name, 255)
    assert name.startswith("simt:128x256x8:16x16:6/1")
    assert rescheduled_code(old.build(), kernel) == new.build() != old.build()


@every_row("config", ["simt:32x32x32:4x8x4:3/4", "simt:16x32x16:4x8:4/8"], parts=2)
def test_a_small_product_takes_fewer_cycles_than_with_ptxas_loop(config: str) -> None:
    """One CTA of 3 k-tiles: no other one hides what its warps wait for loads, or its moves."""
    old, new, name = kernels(config, 128, ragged=True)
    assert not lint_cubin(new)
    sizes = SimtConfig.parse(config).tile
    ragged = sizes[0] - 1, sizes[1] - 1, 3 * sizes[2] - 5
    (expected, before), (found, after) = (product(x, name, ragged, config) for x in (old, new))
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert timing(after, name).cycles < timing(before, name).cycles


def test_no_load_is_issued_before_the_barrier_holds_the_warp() -> None:
    """Where nothing else is left to issue between them. On an H200 with 5 cycles a slice of this
    product read shared memory that other warps had not filled yet.
    """
    problem = Problem(71, 646, 262, "f32", "f32", "f32", "m", "n", align_a=4, align_b=8, align_d=8)
    traced = build(problem, parse("simt:16x32x32:4x8x4:3/6*3"), device_spec("H200"))
    new = rewrite_loop(CubinFile.parse(assemble(traced.ptx, "sm_90a").code), traced.name, 80)
    code = function_code(new, traced.name)
    first, last = find_loop(code)
    ages = [y.control.stall for y in code.instructions[first:last]]
    names = [x.text.opcode.split(".")[0] for x in code.instructions[first:last]]
    barrier = names.index("BAR")
    assert sum(ages[barrier : names.index("LDS", barrier)]) >= 6
    assert not lint_cubin(new)


@pytest.mark.slow
def test_a_ragged_problem_and_the_largest_tile() -> None:
    for config, limit, sizes in (
        ("simt:128x256x16:16x16:3", 255, (127, 255, 61)),
        ("simt:64x128x16:8x16:3/4", 128, (63, 127, 33)),
    ):
        old, new, name = kernels(config, limit, ragged=True)
        assert not lint_cubin(new)
        expected, _ = product(old, name, sizes, config)
        found, _ = product(new, name, sizes, config)
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, name = kernels(CONFIG, LIMIT)
    file = tmp_path / "simt.cubin"
    file.write_bytes(old.build())
    assert main(["sass", "reschedule", str(file), "--registers", str(LIMIT)]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: ")
    assert file.read_bytes() == new.build()


def test_a_kernel_without_such_a_loop_is_refused() -> None:
    data = cubin("reduce", "sm_90a")
    assert data
    file = CubinFile.parse(data)
    with pytest.raises(SassError, match=r"loop of FFMAs|outer products"):
        rewrite_loop(file, file.functions[0], 255)


def test_too_few_registers_are_refused() -> None:
    old, _, name = kernels(CONFIG, LIMIT)
    with pytest.raises(SassError, match="registers must be enough"):
        rewrite_loop(old, name, 100)
