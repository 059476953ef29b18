"""Operands of epilogues that go through shared memory, on a GPU: NumPy's bits."""

from __future__ import annotations

import pytest

from epilogue_loads import LOADS, VECTORS, check_load, check_vectors

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("name", LOADS)
def test_matrix_operands_are_loaded_by_tensor_copies(name: str) -> None:
    check_load(name, "cuda")
    check_load(name, "cuda", rows=48)  # several tiles of a CTA


@pytest.mark.parametrize("name", VECTORS)
def test_vector_operands_go_through_shared_memory(name: str) -> None:
    check_vectors(name, "cuda")
    check_vectors(name, "cuda", rows=48)
