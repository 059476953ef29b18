"""Matrix operands of epilogues that tensor copies load, on a GPU: NumPy's bits."""

from __future__ import annotations

import pytest

from epilogue_loads import LOADS, check_load

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("name", LOADS)
def test_matrix_operands_are_loaded_by_tensor_copies(name: str) -> None:
    check_load(name, "cuda")
    check_load(name, "cuda", rows=48)  # several tiles of a CTA
