"""NVIDIA's assembler takes every kernel of the table for every architecture, without spills where
tiles are whole.

A few of each kind run always; every kernel for every architecture is slow.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemm_cases.kernels import BEST, MAJORS, ODD, OTHER, SPILLED, WHOLE, aligned, make_problem
from ptxas import assemble, ptxas
from rows import every_row
from tilewright.cuda.cubin import KernelUsage
from tilewright.gemm import Config, Problem, SimtConfig, build
from tilewright.gemm.cp_async.multistage_config import F64_TABLE, accumulator_registers, table
from tilewright.gemm.cp_async.simt_config import TABLE as SIMT
from tilewright.target import DEVICES, Target, device_spec

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# Of each architecture: a device, whose kernels may wait for prior grids.
DEVICE = {
    arch: next(d for d in DEVICES.values() if d.target.number == Target.parse(arch).number)
    for arch in ARCHES
}
ALL = BEST | OTHER
# Architectures with instructions of the type, which ptxas replaces by several on others; bytes a
# thread that such a kernel may spill.
NATIVE = {"e4m3": ("sm_89", "sm_120"), "s4": ("sm_80", "sm_89"), "b1": ("sm_80", "sm_89", "sm_90")}
EMULATED = 256
FEW = 64  # bytes a thread that a kernel with edges, C and small copies may spill


@every_row("arch", ARCHES, parts=97)
@every_row("name", ALL)
def test_it_assembles_without_spills(name: str, arch: str) -> None:
    problem, config = ALL[name]
    traced = build(problem, config, DEVICE[arch])
    cubin = assemble(traced.ptx, arch)
    usage = {u.entry: u for u in cubin.usage}[traced.name]
    check_usage(usage, config, FEW if name in OTHER else 0)


def whole_and_odd(type_: str, *align: int) -> dict[str, Problem]:
    """Whole tiles and edges, with what is turned and what is not."""
    whole = {layout: make_problem(WHOLE, layout, type_) for layout in MAJORS}
    odd = {"with_c": True, "batch": 2, **aligned(*align)}
    return whole | {f"odd {x}": make_problem(ODD, x, type_, **odd) for x in ("tn", "nt")}


def allowed_spills(problem: Problem, config: SimtConfig | Config) -> int:
    """Bytes of a thread: FFMA kernels with edges, C and a batch spill some."""
    if isinstance(config, SimtConfig) and problem.with_c:
        return 32
    return SPILLED.get((str(config), problem.a_major + problem.b_major), 0)


def check(problem: Problem, config: SimtConfig | Config, arch: str) -> None:
    (usage,) = assemble(build(problem, config, DEVICE[arch]).ptx, arch).usage
    check_usage(usage, config, allowed_spills(problem, config))


def check_usage(usage: KernelUsage, config: SimtConfig | Config, spills: int) -> None:
    """It has no more spills than this, and as many CTAs as the configuration asks for fit on an SM:
    registers come in eights.
    """
    assert usage.spill_stores <= spills
    assert -(-usage.registers // 8) * 8 * config.threads * config.ctas <= 65536


@every_row("side", "ab")
@every_row("arch", ("sm_80", "sm_90"))
def test_a_sparse_operand_assembles_without_spills(arch: str, side: str) -> None:
    for config in table("f16", device_spec("A100").target, side)[1:3]:
        check(Problem(1024, 1024, 1024, sparse=side), config, arch)


SINGLE, DOUBLE = whole_and_odd("f32", 4, 8, 4, 8), whole_and_odd("f64", 8, 8, 8, 8)


@every_row("arch", ARCHES, parts=127)
@every_row("problem", SINGLE)
@every_row("config", SIMT, ids=str)
def test_simt_assembles_without_spills(arch: str, problem: str, config: SimtConfig) -> None:
    check(SINGLE[problem], config, arch)


@every_row("arch", ARCHES, parts=59)
@every_row("problem", DOUBLE)
@every_row("config", F64_TABLE, ids=str)
def test_f64_assembles_without_spills(arch: str, problem: str, config: Config) -> None:
    """By the instruction that the architecture has."""
    if not Target.parse(arch).runs("sm_90"):
        config = replace(config, mma=(8, 8, 4))
    check(DOUBLE[problem], config, arch)


NARROW = {
    f"{problem}, {config}": (problem, config)
    for a, d in (("tf32", "f32"), ("s8", "s32"), ("e4m3", "bf16"))
    for problem in (
        make_problem(WHOLE, type_=a, d=d),
        make_problem(ODD, type_=a, d=d, with_c=True, batch=2, **aligned(4, 8, 4, 4)),
    )
    for config in table(a, device_spec("B200").target)
    if accumulator_registers(problem, config) < 255
} | {
    f"{a}, {config}": (make_problem((512, 512, 1024), type_=a, d="s32"), config)
    for a in ("s4", "b1")
    for config in table(a, device_spec("B200").target)[::3]
}


@every_row("arch", ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120"), parts=97)
@every_row("name", NARROW)
def test_other_types_assemble(name: str, arch: str) -> None:
    problem, config = NARROW[name]
    if problem.a == "e4m3" and not Target.parse(arch).runs("sm_89"):
        return
    (usage,) = assemble(build(problem, config, DEVICE[arch]).ptx, arch).usage
    assert usage.spill_stores <= (0 if arch in NATIVE.get(problem.a, (arch,)) else EMULATED)
    assert -(-usage.registers // 8) * 8 * config.threads * config.ctas <= 65536
