"""Plans, kernels, epilogues and devices are pickled and copied."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tilewright
from error_messages import raises_message
from tilewright.builder import f32, ptr
from tilewright.errors import TilewrightError
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

A = np.ones((64, 32), np.float16)


@tilewright.kernel(block=32)
def ones(k, x: ptr(f32)):
    x[k.tid.x] = 1.0


@tilewright.epilogue
def doubled(acc: Any) -> Any:
    return acc * 2


def plain(acc: Any) -> Any:
    return acc * 3


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_kernels_are_found_by_name() -> None:
    assert again(ones) is ones and again(ones[4]).kernel is ones
    made = again(tilewright.kernel(plain))
    assert made.function is plain
    x = np.zeros(32, np.float32)
    copy.deepcopy(ones)[1](x)
    assert (x == 1).all()

    @tilewright.kernel
    def local(k):
        pass

    with raises_message(TilewrightError, "local of module .* must be found by this name"):
        pickle.dumps(local)


@pytest.mark.parametrize(("epilogue", "factor"), [(None, 1), (doubled, 2), (plain, 3)])
def test_plans_run_after_pickling_and_copying(epilogue: Any, factor: int) -> None:
    plan = tilewright.plan(A, A.T, epilogue=epilogue, device="vm")
    for other in (again(plan), copy.copy(plan), copy.deepcopy(plan)):
        assert other == plan and other.device is plan.device and other.ptx == plan.ptx
        assert (other.run(A, A.T) == 32 * factor).all()


def test_a_device_of_ones_own_keeps_its_options() -> None:
    plan = tilewright.plan(64, 64, 64, device=VmDevice(seed=3, checked=True))
    device = again(plan).device
    assert (device._seed, device._options["checked"]) == (3, True)
