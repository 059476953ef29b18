"""NVIDIA's assembler takes the copying kernels, without spills, for several CTAs an SM."""

from __future__ import annotations

import pytest

from ptxas import assemble, ptxas
from tilewright.builder import Traced
from tilewright.run.relayout import relayout_kernels as kernels
from tilewright.run.relayout import transpose_kernel

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

SIZES = (1, 2, 4, 8)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_they_assemble_without_spills(arch: str) -> None:
    programmatic = arch != "sm_80"
    made: list[Traced] = [kernels.copy_rows(programmatic)]
    made += [transpose_kernel.copy_transposed(size, programmatic) for size in SIZES]
    made += [kernels.copy_strided(size, programmatic) for size in SIZES]
    for traced in made:
        cubin = assemble(traced.ptx, arch)
        assert cubin.spills == 0 and cubin.registers <= 80, traced.name
