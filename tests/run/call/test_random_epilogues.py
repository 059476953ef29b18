"""Random epilogues of kernel ``tma``: trees of all nodes, operands of every shape, type and layout.

Every output has the bits of NumPy's evaluation of the plain product, and no byte around D or the
operands is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epilogue_trees import DIMENSIONS, STORED, OutputChoice, Recipe
from examples import examples
from gemm_cases.resident import registered
from random_epilogue_calls import (
    INPUT_TYPES,
    MATRIX_TYPES,
    VARIES,
    EpilogueCase,
    OperandCase,
    check,
)
from tilewright.run import VmDevice, device

DEPTH = 12
# K is the k-tile of 128 bytes.
CONFIGS = (
    "tma:128x64xK:2:3", "tma:64x96xK:1:3~", "tma:64x128xK:2p:3", "tma:64x64xK:1:3",
    "tma:64x64xK:1:3~", "tma:128x128xK:2:3/2x1", "tma:128x64xK:2:2/1x2", "tma:64x64xK:1:3d",
    "tma:64x64xK:1:3*2", "tma:64x64xK:1:3*3~", "tma:192x64xK:3:2", "tma:64x16xK:1:4~",
)  # fmt: skip
PAIR_CONFIGS = (
    "tma:128x128xK:2:3", "tma:64x128xK:1:3", "tma:64x128xK:2p:3", "tma:128x128xK:2:3/1x2",
    "tma:128x48xK:1:3~",
)  # fmt: skip
K_TILES = {"f32": 32, "f16": 64, "bf16": 64}

sizes = st.one_of(st.integers(1, 20), st.integers(1, 200), st.sampled_from([64, 96, 128, 192]))
picks = st.integers(0, 49)
steps = st.lists(st.tuples(st.integers(0, 199), picks, picks, picks), min_size=1, max_size=DEPTH)
strides = st.tuples(*[st.sampled_from([1, 1, 1, 2, 3, -1, -2])] * 3)
operands = st.builds(
    OperandCase, st.sampled_from(INPUT_TYPES), st.sampled_from(VARIES), strides, st.booleans(),
    st.sampled_from([0, 0, 8, 1, 3]), st.booleans(),
)  # fmt: skip
outs = st.builds(
    OperandCase, st.just(""), st.just("bmn"),
    st.tuples(*[st.sampled_from([1, 1, 2])] * 2, st.sampled_from([1, 1, 1, -1, 2])), st.booleans(),
    st.sampled_from([0, 0, 8, 1, 3]),
)  # fmt: skip
tensors = st.builds(
    OutputChoice, st.integers(0, 5), st.sampled_from(STORED), st.just(""), st.just("")
)
reductions = st.builds(
    OutputChoice, st.integers(0, 5), st.just("f32"), st.sampled_from(DIMENSIONS),
    st.sampled_from(["max", "max", "sum"]),
)  # fmt: skip


@st.composite
def cases(draw: Any) -> EpilogueCase:
    pair = draw(st.sampled_from([False] * 4 + [True]))
    config = draw(st.sampled_from(PAIR_CONFIGS if pair else CONFIGS))
    type_ = draw(st.sampled_from(list(MATRIX_TYPES)))
    given = draw(st.lists(operands, max_size=4))
    others = st.one_of(tensors, reductions)
    outputs = (draw(tensors), *draw(st.lists(others, max_size=2)))
    recipe = Recipe(tuple(draw(steps)), outputs, len(given), 2 if pair else 1)
    return EpilogueCase(
        (draw(sizes), draw(sizes), draw(sizes)), draw(st.sampled_from([None, None, 1, 2, 3])),
        type_, config.replace("K", str(K_TILES.get(type_, 128))), recipe, tuple(given),
        draw(st.none() | outs), draw(st.booleans()), draw(st.booleans()),
        draw(st.integers(0, 99)),
    )  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.vm
@settings(examples(6), derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_any_epilogue(case: EpilogueCase) -> None:
    check(case, VmDevice(seed=case.seed % 5))


@pytest.mark.vm
@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_300_epilogues(case: EpilogueCase) -> None:
    one = check(case, VmDevice(seed=case.seed % 5))
    other = check(case, VmDevice(seed=case.seed % 5 + 1))
    assert one == other


@pytest.mark.gpu
@pytest.mark.sm("sm_90a")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(15))
@settings(examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_300_epilogues_on_a_gpu(part: int, case: EpilogueCase) -> None:
    assert check(case, device("cuda")) == check(case, VmDevice())
