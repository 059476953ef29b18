"""What is chosen for the benchmark's table: a GPU's bits are a virtual machine's."""

from __future__ import annotations

import pytest

from gemm_cases.table_cases import KernelVariant, kernel_variants, product
from gemm_cases.tma_cases import FEW, few
from rows import every_row
from tilewright.run import VmDevice

pytestmark = pytest.mark.gpu


@pytest.mark.sm("sm_90a")
@pytest.mark.timeout(900)
@every_row("variant", kernel_variants, ids=str)
def test_the_bits_are_a_virtual_machine_s(variant: KernelVariant) -> None:
    assert product(variant, few(FEW.sms)) == product(variant, VmDevice(FEW))
