"""The kept digests against the GPU that is here."""

from __future__ import annotations

import json

import pytest

from gemm_cases.problems import DIGESTS, ROWS, digest

pytestmark = pytest.mark.gpu


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize("name", ROWS)
def test_the_bits_are_those_kept(name: str) -> None:
    assert digest(name, "cuda") == json.loads(DIGESTS.read_text())[name]
