"""Kernel tma on an H200: exact products that write D and nothing else, a virtual machine's bits."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from guarded import check
from problems import matrix
from resident import registered
from tilewright.run import VmDevice, device
from tilewright.run.device import Device
from tma_cases import ASKED, FEW

pytestmark = pytest.mark.sm("sm_90a")


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def few() -> Device:
    """The GPU, asked to do with few of its SMs, so that a CTA has several tiles."""
    made: Any = copy(device("cuda"))
    made.target = replace(made.target, sms=FEW.sms)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ASKED)
def test_d_is_exact_and_nothing_else_is_written(name: str) -> None:
    config, asked = ASKED[name]
    for seed in range(3):
        check(asked, few(), config, seed)


@pytest.mark.parametrize("sort", ["normal", "spread", "special"])
@pytest.mark.parametrize("name", ASKED)
def test_the_bits_are_a_virtual_machine_s(name: str, sort: str) -> None:
    config, asked = ASKED[name]
    rng, (m, n, k) = np.random.default_rng(0), asked.sizes
    given = asked.numbers(rng)
    if asked.types[2] != "s32":
        shapes = zip(((m, k), (k, n), (m, n)), asked.types, strict=True)
        given = [matrix(rng, *shape, type_, sort) for shape, type_ in shapes]
    a, b, c = (
        lie.place(x, rng)[1].view(x.dtype)
        for lie, x in zip(asked.lies, given, strict=False)  # D's is the fourth
    )
    options: dict[str, Any] = {
        "c": c, "alpha": asked.alpha, "beta": asked.beta, "out_dtype": asked.types[2],
        "precision": "tf32", "fast_accum": asked.fast, "config": config,
    }  # fmt: skip
    here, there = (tilewright.matmul(a, b, device=on, **options) for on in (few(), VmDevice(FEW)))
    assert here.tobytes() == there.tobytes()
