"""What an H200 returned for every form of ``cvt``: the virtual machine returns it bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from golden.golden_conversions import digests, operands, read
from ptx_kernels.conversion_kernels import batches, forms, on_vm, text
from rows import every_row

pytestmark = pytest.mark.vm

KEPT = read()


def test_golden_file_has_every_form() -> None:
    assert list(KEPT) == sorted(forms("sm_90a")) and len(KEPT) == 840


@every_row("batch", lambda: batches("sm_90a"), ids=lambda b: b[0], parts=8)
def test_results_equal_the_h200(batch: list[str]) -> None:
    inputs = operands(batch)
    made = on_vm(text(batch), inputs, np.zeros((len(batch), inputs.shape[1]), np.uint64), "sm_90a")
    assert digests(batch, made) == {opcode: KEPT[opcode] for opcode in batch}
