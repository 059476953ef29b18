"""Any product by any configuration that fits: exact, and nothing beside D is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples import examples
from gemm_cases.guarded import GemmCase, OperandLayout, check
from gemm_cases.resident import registered
from tilewright.gemm import AnyConfig, Problem, ranked
from tilewright.gemm.problem import SUPPORTED_TYPES
from tilewright.run import VmDevice
from tilewright.target import DEFAULT_DEVICE

pytestmark = pytest.mark.vm

PAIRS = [
    (a, b, d) for a, (others, results) in SUPPORTED_TYPES.items() for b in others for d in results
]
STORED = [t for t in PAIRS if t[0] != "tf32"]  # which is f32, and asked for by its precision
WHOLE = (1.0, 0.0)  # factors of sums of integers

sizes = st.one_of(st.integers(1, 20), st.integers(1, 300), st.sampled_from([64, 128, 192, 256]))
paddings = st.one_of(st.just(0), st.sampled_from([8, 16, 32]), st.integers(0, 9))
layouts = st.builds(OperandLayout, st.sampled_from("tn"), paddings, paddings, paddings)


@st.composite
def products(draw: Any) -> GemmCase:
    types = draw(st.sampled_from(STORED))
    integers = types[2] == "s32"
    alpha = draw(st.sampled_from(WHOLE if integers else (1.0, 1.0, -0.5, 2.0, 0.0)))
    beta = draw(st.sampled_from(WHOLE if integers else (0.0, 0.0, 1.0, -2.0)))
    depth = draw(st.one_of(sizes, st.integers(0, 700)))
    batch = draw(st.sampled_from([None, None, None, 1, 2, 3]))
    lie = draw(st.tuples(layouts, layouts, layouts, layouts))
    shape = draw(sizes), draw(sizes), depth
    return GemmCase(shape, types, lie, alpha, beta, batch, draw(st.booleans()))


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.slow
@pytest.mark.timeout(900)
@examples(200, suppress_health_check=[HealthCheck.too_slow])
@given(products(), st.integers(0, 10**6), st.sampled_from([1, 2, 3, 5, 132]), st.integers(0, 9))
def test_any_product(gemm_case: GemmCase, choice: int, sms: int, seed: int) -> None:
    on = VmDevice(replace(DEFAULT_DEVICE, name="other", sms=sms), seed=seed)

    def config(problem: Problem) -> AnyConfig:
        fitting = ranked(problem, on.target)
        return fitting[choice % len(fitting)][1]

    check(gemm_case, on, config, seed)
