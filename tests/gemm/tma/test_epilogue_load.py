"""Operands of epilogues that go through shared memory: bits of D, races, and what threads load
instead. A device of few SMs, so that a CTA has several tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from epilogue_calls import TYPES
from epilogue_loads import LOADS, VECTORS, check_load, check_vectors, integers
from gemm_cases.resident import Resident, registered
from gemm_cases.tma_cases import FEW
from tilewright.gemm.epilogue.named_epilogues import linear_combination
from tilewright.gemm.tma.epilogue_load.operand_stages import loaded_operands
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

QUICK = {
    "cooperative", "pingpong, one epilogue tile", "swapped", "dynamic, pingpong", "batch",
    "split-K of the tail wave", "four operands", "rows of 16 bytes",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LOADS]
)
def test_matrix_operands_are_loaded_by_tensor_copies(name: str) -> None:
    for device in (VmDevice(FEW, checked=True), VmDevice(FEW, seed=1)):
        check_load(name, device)


QUICK_VECTORS = {"cooperative", "pingpong", "swapped, 24 rows", "split-K of the tail wave", "batch"}


@pytest.mark.parametrize(
    "name", [n if n in QUICK_VECTORS else pytest.param(n, marks=pytest.mark.slow) for n in VECTORS]
)
def test_vector_operands_go_through_shared_memory(name: str) -> None:
    for device in (VmDevice(FEW, checked=True), VmDevice(FEW, seed=1)):
        check_vectors(name, device)


def numbers(*shape: int) -> Any:
    return integers(np.random.default_rng(sum(shape)), shape, "bf16")


def check_loaded(wanted: Any, a: Any, b: Any, count: int, **given: Any) -> None:
    """A call on the checked virtual machine has these values, rounded to bf16."""
    given |= {"device": VmDevice(FEW, checked=True)}
    plan = tilewright.plan(a, b, **given)
    assert len(loaded_operands(plan.problem, plan.config)) == count
    np.testing.assert_array_equal(tilewright.matmul(a, b, **given), wanted.astype(TYPES["bf16"]))


def exact(a: Any, b: Any) -> Any:
    return a.astype(np.float32) @ b.astype(np.float32)


def test_c_with_beta_is_loaded() -> None:
    a, b, c = numbers(136, 64), numbers(64, 72), numbers(136, 72)
    wanted = exact(a, b) * np.float32(0.5) + c.astype(np.float32) * np.float32(2)
    given = {"c": c, "alpha": 0.5, "beta": 2.0, "config": "tma:64x64x64:2p:3"}
    check_loaded(wanted, a, b, 1, epilogue=linear_combination(), **given)


def test_the_residual_of_a_gated_pair_is_loaded() -> None:
    a, b, up, residual = numbers(136, 64), numbers(64, 72), numbers(64, 72), numbers(136, 72)
    wanted = exact(a, b) * 2 + exact(a, up) + residual.astype(np.float32)
    given = {"residual": residual, "config": "tma:128x128x64:2:3"}
    check_loaded(
        wanted, a, (b, up), 1, epilogue=lambda x, y, residual: x * 2.0 + y + residual, **given
    )


def test_the_biases_of_a_gated_pair_go_through_shared_memory() -> None:
    a, b, up, bias = numbers(136, 64), numbers(64, 72), numbers(64, 72), numbers(72)
    for config in ("tma:128x128x64:2:3", "tma:256x48x64:2:3~"):
        wanted = (exact(a, b) + bias.astype(np.float32)) * 2 + exact(a, up)
        given = {"bias": bias, "config": config}
        check_loaded(
            wanted, a, (b, up), 0, epilogue=lambda x, y, bias: (x + bias) * 2.0 + y, **given
        )


STRIDES = {
    "every other row": ((160, 1), 0, 1),
    "reversed rows": ((-80, 1), 71 * 80, 0),
    "columns": ((1, 80), 0, 0),
    "not aligned": ((80, 1), 4, 0),
}


@pytest.mark.parametrize("name", STRIDES)
def test_what_a_tensor_map_cannot_address_is_loaded_by_threads(name: str) -> None:
    strides, offset, count = STRIDES[name]
    memory, (m, n) = numbers(144, 80), (72, 72)
    residual = memory.ravel()[offset + np.add.outer(*(s * np.arange(m) for s in strides))]
    a, b, device = numbers(m, 64), numbers(64, n), VmDevice(FEW, checked=True)
    with registered():
        operand = Resident.of(memory, device).cut((m, n), strides, offset)
        x, y = (Resident.of(array, device) for array in (a, b))
        given = {"epilogue": lambda acc, residual: acc + residual, "residual": operand}
        given |= {"device": device, "config": "tma:64x64x64:1:3"}
        plan = tilewright.plan(x, y, **given)
        assert len(loaded_operands(plan.problem, plan.config)) == count
        got = tilewright.matmul(x, y, **given).numpy()
    wanted = exact(a, b) + residual.astype(np.float32)
    np.testing.assert_array_equal(got.view(TYPES["bf16"]), wanted.astype(TYPES["bf16"]))
