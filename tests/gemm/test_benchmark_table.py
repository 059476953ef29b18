"""What is chosen for the benchmark's table runs on the virtual machine, too: in any order of warps
and copies the same bits.
"""

from __future__ import annotations

import pytest

from gemm_cases.table_cases import KernelVariant, kernel_variants, product
from gemm_cases.tma_cases import FEW
from rows import every_row
from tilewright.run import VmDevice

pytestmark = [pytest.mark.vm, pytest.mark.slow]
SEEDS = 50


@pytest.mark.timeout(900)
@every_row("variant", kernel_variants, ids=str, parts=12)
def test_any_order_gives_the_same_bits(variant: KernelVariant) -> None:
    assert len({product(variant, VmDevice(FEW, seed=seed)) for seed in range(SEEDS)}) == 1
