"""Programs whose every instruction went through text, and whose code grew, on the GPU."""

from __future__ import annotations

import os

import pytest

from sass_on_gpu import WAYS, failures, programs

LEAST = 40  # programs
PROCESSES = 16  # that share a GPU


def test_there_are_enough_programs() -> None:
    assert len(programs()) >= LEAST


@pytest.mark.gpu
@pytest.mark.sm("sm_90a")
def test_results_are_the_same() -> None:
    """Each listing with NOPs after its code, before it and between its instructions: NumPy's
    results and the bytes that ptxas' own cubin gives.
    """
    failed = failures(programs(), min(PROCESSES, os.cpu_count() or 1))
    assert not failed, "\n".join([f"{len(failed)} of {len(programs()) * len(WAYS)}:", *failed])
