"""Block scales on a GPU: the bits are the virtual machine's."""

from __future__ import annotations

import numpy as np
import pytest

from references.block_scaled_products import CASES, BlockScaledCase, operands, product

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_a_virtual_machine_s(case: BlockScaledCase) -> None:
    a, b, scales = operands(case.mnk, case.scaling, ("e4m3", "e5m2"), hostile=True)
    for type_ in ("f32", "bf16"):
        found = [
            product(a, b, scales, config=case.config, out_dtype=type_, device=device)
            for device in ("cuda", "vm")
        ]
        assert np.array_equal(*(x.view(np.uint8) for x in found))
