"""NVIDIA's assembler takes every kernel of the table for every architecture, without spills where
tiles are whole.

A part runs always; the rest, every kernel for every architecture, is slow.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from kernels import BEST, MAJORS, ODD, OTHER, WHOLE, aligned, posed
from ptxas import assemble, ptxas
from tilewright.gemm import Config, SimtConfig, build
from tilewright.gemm.config import F64_TABLE
from tilewright.gemm.simt_config import TABLE as SIMT
from tilewright.target import Target

pytestmark = pytest.mark.skipif(ptxas() is None, reason="no ptxas")

ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
ALL = BEST | OTHER
FEW = 64  # bytes a thread that a kernel with edges, C and small copies may spill


def always(name: str, arch: str) -> bool:
    """f16 for sm_90, one of its layouts for the ends of the range; the odd problems for one."""
    if name in OTHER:
        return arch == "sm_90"
    return name.startswith({"sm_80": "f16-tn", "sm_90": "f16", "sm_120": "f16-tn"}.get(arch, "-"))


def cases() -> list[object]:
    made = []
    for name, arch in product(ALL, ARCHES):
        marks = () if always(name, arch) else pytest.mark.slow
        made.append(pytest.param(name, arch, id=f"{name}-{arch}", marks=marks))
    return made


@pytest.mark.parametrize(("name", "arch"), cases())
def test_it_assembles_without_spills(name: str, arch: str) -> None:
    problem, config = ALL[name]
    traced = build(problem, config)
    cubin = assemble(traced.ptx, arch)
    usage = {u.entry: u for u in cubin.usage}[traced.name]
    assert usage.spill_stores <= (FEW if name in OTHER else 0)
    # As many CTAs as the configuration asks for: registers come in eights.
    assert -(-usage.registers // 8) * 8 * config.threads * config.ctas <= 65536


SIMT_ARCHES = ["sm_90", *(pytest.param(a, marks=pytest.mark.slow) for a in ARCHES if a != "sm_90")]


@pytest.mark.parametrize("arch", SIMT_ARCHES)
@pytest.mark.parametrize("config", SIMT, ids=str)
def test_simt_assembles_without_spills(config: SimtConfig, arch: str) -> None:
    """Whole tiles and edges, with what is turned and what is not."""
    whole = [posed(WHOLE, layout, "f32") for layout in MAJORS]
    odd = [posed(ODD, x, "f32", with_c=True, batch=2, **aligned(4, 8, 4, 8)) for x in ("tn", "nt")]
    for problem in whole[:1] + odd if arch == "sm_90" else whole + odd:
        traced = build(problem, config)
        (usage,) = assemble(traced.ptx, arch).usage
        assert not usage.spill_stores
        assert -(-usage.registers // 8) * 8 * config.threads * config.ctas <= 65536


@pytest.mark.parametrize("arch", SIMT_ARCHES)
@pytest.mark.parametrize("config", F64_TABLE, ids=str)
def test_f64_assembles_without_spills(config: Config, arch: str) -> None:
    """Whole tiles and edges, by the instruction that the architecture has."""
    if not Target.parse(arch).runs("sm_90"):
        config = replace(config, mma=(8, 8, 4))
    whole = [posed(WHOLE, layout, "f64") for layout in MAJORS]
    odd = [posed(ODD, x, "f64", with_c=True, batch=2, **aligned(8, 8, 8, 8)) for x in ("tn", "nt")]
    for problem in whole[:1] + odd if arch == "sm_90" else whole + odd:
        (usage,) = assemble(build(problem, config).ptx, arch).usage
        assert not usage.spill_stores
        assert -(-usage.registers // 8) * 8 * config.threads * config.ctas <= 65536
