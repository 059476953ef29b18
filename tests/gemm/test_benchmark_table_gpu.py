"""What is chosen for the benchmark's table: a GPU's bits are a virtual machine's."""

from __future__ import annotations

import pytest

from gemm_cases.table_cases import Way, product, ways
from gemm_cases.tma_cases import FEW, few
from rows import every_row
from tilewright.run import VmDevice

pytestmark = pytest.mark.gpu


@pytest.mark.sm("sm_90a")
@pytest.mark.timeout(900)
@every_row("way", ways, ids=str)
def test_the_bits_are_a_virtual_machine_s(way: Way) -> None:
    assert product(way, few(FEW.sms)) == product(way, VmDevice(FEW))
