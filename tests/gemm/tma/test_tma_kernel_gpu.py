"""Kernel tma on an H200: exact products that write D and nothing else, a virtual machine's bits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gemm_cases.guarded import check
from gemm_cases.resident import registered
from gemm_cases.tma_cases import ASKED, DIGESTS, FEW, SORTS, digest, few
from tilewright.run import VmDevice

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.parametrize("name", ASKED)
def test_d_is_exact_and_nothing_else_is_written(name: str) -> None:
    config, gemm_case = ASKED[name]
    for seed in range(3):
        check(gemm_case, few(FEW.sms), config, seed)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("name", ASKED)
def test_the_bits_are_a_virtual_machine_s_and_those_kept(name: str, sort: str) -> None:
    here = digest(name, sort, few(FEW.sms))
    assert here == digest(name, sort, VmDevice(FEW))
    assert here == json.loads(DIGESTS.read_text())[name][sort]
