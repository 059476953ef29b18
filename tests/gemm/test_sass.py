"""The machine code of every shipped configuration stays what it is, for one version of ptxas."""

from __future__ import annotations

import json

import pytest

from gemm_cases.sass_cases import DIGESTS, kernels, sass_digest
from ptxas import ptxas, ptxas_version

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

RECORDED = json.loads(DIGESTS.read_text(encoding="utf-8"))


def changed(step: int) -> list[str]:
    """The kernels, each ``step``-th of them, whose machine code is not the recorded one."""
    if ptxas_version() != RECORDED["ptxas"]:
        pytest.skip(f"ptxas is {ptxas_version()}; the digests are of {RECORDED['ptxas']}")
    names = list(RECORDED["digests"])[::step]
    return [name for name in names if sass_digest(kernels()[name]) != RECORDED["digests"][name]]


def test_a_sample_has_the_recorded_machine_code() -> None:
    assert not changed(90)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_shipped_configuration_has_the_recorded_machine_code() -> None:
    assert set(kernels()) == set(RECORDED["digests"])
    assert not changed(1)
