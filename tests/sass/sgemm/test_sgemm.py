"""The SGEMM for Maxwell: right results on the SASS machine, no hazard, FFMA in 98 % of slots."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from rows import every_row
from tilewright.errors import CubinError, SassError
from tilewright.sass import CubinFile
from tilewright.sass.lint import lint_cubin
from tilewright.sass.lint.register_banks import conflict_cycles
from tilewright.sass.machine.sm_timing import TimingReport, simulate
from tilewright.sass.maxas import list_kernels
from tilewright.sass.maxas.new_cubin import new_cubin
from tilewright.sass.sgemm import SgemmPlan, run_sgemm, sgemm_cubin, sgemm_kernel

VARIANTS = [
    SgemmPlan(*x)
    for x in itertools.product((64, 128), ("texture", "global"), (True, False), ("swirl", "zigzag"))
]


def loop(plan: SgemmPlan) -> range:
    """The indexes of the main loop's instructions."""
    opcodes = [x.text.opcode for x in sgemm_kernel(plan).instructions]
    first = opcodes.index("FFMA")
    while not opcodes[first].startswith("ISETP"):
        first -= 1
    return range(first, opcodes.index("BRA") + 1)


def conflicts(plan: SgemmPlan) -> int:
    """Cycles that the FFMAs of a turn lose to register banks."""
    texts = [x.text for x in sgemm_kernel(plan).instructions]
    return sum(conflict_cycles(52, texts)[i] for i in loop(plan))


@every_row("plan", [SgemmPlan(64), SgemmPlan(128, "global", tracks=False)], parts=2)
def test_it_multiplies_and_has_no_hazard(plan: SgemmPlan) -> None:
    check(plan)


@pytest.mark.slow
@pytest.mark.timeout(300)
@every_row("plan", VARIANTS)
def test_every_variant_multiplies_and_has_no_hazard(plan: SgemmPlan) -> None:
    check(plan)


def check(plan: SgemmPlan) -> None:
    """A product of several CTAs with a K of no whole steps; hazards; registers; banks."""
    rng = np.random.default_rng(plan.tile)
    m, n, k = plan.tile + 12, plan.tile - 4, 21
    a = rng.integers(-9, 10, (k, m)).astype(np.float32)
    b = rng.integers(-9, 10, (k, n)).astype(np.float32)
    c, machine = run_sgemm(plan, a, b, alpha=0.5)
    np.testing.assert_array_equal(c, 0.5 * (a.T @ b))
    assert not machine.races
    assert not lint_cubin(sgemm_cubin(plan))
    assert sgemm_cubin(plan).registers(plan.name) <= 128  # 16 warps of an SM
    assert conflicts(plan) == (0 if plan.order == "swirl" else 8)


@pytest.mark.slow
@every_row("plan", VARIANTS)
@every_row("k", [1, 7, 8, 9, 40])
def test_every_variant_has_the_bits_of_sums_in_order(plan: SgemmPlan, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((k, n)).astype(np.float32) for n in (plan.tile, plan.tile + 4))
    expected = np.zeros((plan.tile, plan.tile + 4))
    for row_a, row_b in zip(a.astype(np.longdouble), b.astype(np.longdouble), strict=True):
        expected = (np.outer(row_a, row_b) + expected).astype(np.float32)
    np.testing.assert_array_equal(run_sgemm(plan, a, b)[0], expected)


def steady(plan: SgemmPlan, turns: Sequence[int] = (2, 4)) -> tuple[float, TimingReport]:
    """The share of issue slots that FFMA has in the main loop, 16 warps on an SM; and what the
    model says of the longer run.
    """
    reports = []
    for count in turns:
        ones = np.ones((8 * count, plan.tile), np.float32)
        machine = run_sgemm(plan, ones, ones, trace=True)[1]
        traces = machine.traces * (512 // plan.threads)
        reports.append(simulate(machine.code(plan.name), traces))
    first, last = reports
    cycles = last.cycles - first.cycles
    return (last.issued["FFMA"] - first.issued["FFMA"]) / (4 * cycles), last


@every_row("tile", [64, 128], parts=2)
def test_ffma_has_98_percent_of_issue_slots(tile: int) -> None:
    share, _ = steady(SgemmPlan(tile))
    assert share >= 0.98
    turn = [sgemm_kernel(SgemmPlan(tile)).instructions[i] for i in loop(SgemmPlan(tile))]
    assert sum(x.text.opcode == "FFMA" for x in turn) == 512
    assert sum(x.control.stall > 0 for x in turn) <= {64: 521, 128: 519}[tile]


@pytest.mark.slow
def test_the_simple_order_conflicts_where_a_row_begins() -> None:
    zigzag = SgemmPlan(64, order="zigzag")
    assert conflicts(zigzag) == 8
    swirl, simple = (sgemm_kernel(p).reads for p in (SgemmPlan(64), zigzag))
    assert swirl.reused / swirl.total > 0.46
    assert simple.reused / simple.total < 0.40


def test_a_cubin_is_written_from_nothing() -> None:
    plan = SgemmPlan(64)
    cubin = sgemm_cubin(plan)
    assert CubinFile.parse(cubin.build()).build() == cubin.build()
    assert f"Kernel: {plan.name} (Params: 10, Size: " in list_kernels(cubin)
    assert cubin.barriers(plan.name) == 1
    with pytest.raises(CubinError, match="a parameter must have 4 or 8 bytes"):
        new_cubin(sgemm_kernel(plan), [3], threads=64)
    with pytest.raises(CubinError, match="at most 48 KiB of shared memory, got 64 and 65536"):
        new_cubin(sgemm_kernel(plan), [4], threads=64, shared_bytes=1 << 16)


def test_what_is_no_variant_is_refused() -> None:
    with pytest.raises(SassError, match="tile of an SGEMM must be 64 or 128, got 96"):
        SgemmPlan(96)
    with pytest.raises(SassError, match="tracks of an SGEMM must be True or False, got 1"):
        SgemmPlan(64, tracks=1)  # type: ignore[arg-type]
    a = np.ones((8, 64), np.float32)
    with pytest.raises(SassError, match="A must be K × a multiple of 4"):
        run_sgemm(SgemmPlan(64), np.ones((8, 6), np.float32), a)
    with pytest.raises(SassError, match="must have one K"):
        run_sgemm(SgemmPlan(64), np.ones((4, 64), np.float32), a)
