"""A checked machine reports accesses to global memory while the previous grid may still run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import check
from gemm_cases.resident import Resident, registered
from gemm_cases.tma_cases import ASKED, FEW
from rows import every_row
from tilewright import vm
from tilewright.builder import trace
from tilewright.errors import DeviceError, LaunchError, VmFault
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

Kernel = Callable[[Any, Any, Any], None]


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def run(
    kernel: Kernel, *, programmatic: bool = True, ctas: int = 1, checked: bool = True,
    stepped: bool = False,
) -> Any:  # fmt: skip
    """B, of 64 zeros, and A of 64 numbers; a cluster of ``ctas`` with 64 threads each. ``stepped``:
    by the NumPy evaluator.
    """
    params = dict.fromkeys("ab", "ptr f32 align 16")
    traced = trace(kernel, name="f", params=params, block=64)
    machine = vm.Machine("sm_90a", checked=checked)
    machine.load(traced.module)
    a, b = machine.upload(np.arange(64, dtype="f4")), machine.upload(np.zeros(64, "f4"))
    watch = (lambda _: None) if stepped else None
    arguments = "f", ctas, 64, [a, b]
    machine.launch(*arguments, cluster=ctas, programmatic=programmatic, on_step=watch)
    return machine.download(b, np.zeros(64, "f4"))


def read(k: Any, a: Any, b: Any) -> None:
    x = a[k.tid.x]
    k.wait_for_prior_grids()
    b[k.tid.x] = x


def write(k: Any, a: Any, b: Any) -> None:
    b[k.tid.x] = 1.0
    k.wait_for_prior_grids()


def add(k: Any, a: Any, b: Any) -> None:
    b.atomic("add", 1.0)
    k.wait_for_prior_grids()


def never(k: Any, a: Any, b: Any) -> None:
    b[k.tid.x] = a[k.tid.x]


def another_warp(k: Any, a: Any, b: Any) -> None:
    with k.if_(k.tid.x < 32):
        k.wait_for_prior_grids()
    b[k.tid.x] = a[k.tid.x]


def copied(k: Any, a: Any, b: Any) -> None:
    there = k.shared("f32", 64, align=16)
    with k.if_(k.tid.x < 16):
        k.cp_async(there + k.tid.x * 4, a.aligned(16) + k.tid.x * 4, 16)
    k.cp_async_commit()
    k.cp_async_wait(0)
    k.barrier()
    k.wait_for_prior_grids()
    b[k.tid.x] = there[k.tid.x]


def brought(k: Any, a: Any, b: Any) -> None:
    there, full = k.shared("f32", 64, align=16), k.shared("b64", 1)
    with k.if_(k.tid.x == 0):
        k.mbarrier_init(full, 1)
        k.fence_mbarrier_init()
        k.mbarrier_arrive(full, bytes=256)
        k.bulk_load(there, a, 256, full)
    k.barrier()
    k.mbarrier_wait(full, 0)
    k.wait_for_prior_grids()
    b[k.tid.x] = there[k.tid.x]


def sent(k: Any, a: Any, b: Any) -> None:
    there = k.shared("f32", 64, align=16)
    there[k.tid.x] = 1.0
    k.fence_async()
    k.barrier()
    with k.if_(k.tid.x == 0):
        k.bulk_store(b, there, 256)
        k.bulk_commit()
        k.bulk_wait(0)
    k.wait_for_prior_grids()


TOO_EARLY = read, write, add, never, another_warp, copied, brought, sent


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("kernel", TOO_EARLY)
def test_early_accesses_are_reported(kernel: Kernel, stepped: bool) -> None:
    with pytest.raises(VmFault, match=r"no griddepcontrol.wait") as caught:
        run(kernel, stepped=stepped)
    assert caught.value.kind == "early" and caught.value.location is not None


@pytest.mark.parametrize("kernel", TOO_EARLY)
def test_without_overlap_no_access_is_early(kernel: Kernel) -> None:
    assert run(kernel, programmatic=False).tolist() == run(kernel, checked=False).tolist()


def waited(k: Any, a: Any, b: Any) -> None:
    k.wait_for_prior_grids()
    b[k.tid.x] = a[k.tid.x]


def told_by_a_barrier(k: Any, a: Any, b: Any) -> None:
    """One warp waits, then both synchronize at a barrier."""
    with k.if_(k.tid.x < 32):
        k.wait_for_prior_grids()
    k.barrier()
    b[k.tid.x] = a[k.tid.x]


def waited_in_another_cta(k: Any, a: Any, b: Any) -> None:
    """One CTA of a cluster waits."""
    with k.if_(k.cluster_rank == 0):
        k.wait_for_prior_grids()
    k.cluster_sync()
    b[k.tid.x] = a[k.tid.x]


@pytest.mark.parametrize(
    ("kernel", "ctas"), [(waited, 1), (told_by_a_barrier, 1), (waited_in_another_cta, 2)]
)
def test_access_after_a_wait_is_allowed(kernel: Kernel, ctas: int) -> None:
    assert run(kernel, ctas=ctas).tolist() == list(range(64))


@pytest.mark.parametrize("later", [False, True])
def test_memory_that_no_kernel_writes_may_be_read_early(later: bool) -> None:
    traced = trace(read, name="f", params=dict.fromkeys("ab", "ptr f32 align 16"), block=64)
    machine = vm.Machine("sm_90a", checked=True)
    machine.load(traced.module)
    a = machine.upload(np.arange(64, dtype="f4"), read_only=not later)
    b = machine.upload(np.zeros(64, "f4"))
    if later:
        with pytest.raises(VmFault, match=r"no griddepcontrol.wait"):
            machine.launch("f", 1, 64, [a, b], programmatic=True)
        machine.memory.protect(a + 4)
    with pytest.raises(DeviceError, match="0x10 is in no allocation"):
        machine.memory.protect(0x10)
    machine.launch("f", 1, 64, [a, b], programmatic=True)
    assert machine.download(b, np.zeros(64, "f4")).tolist() == list(range(64))
    with pytest.raises(VmFault, match="writes to"):
        machine.launch("f", 1, 64, [b, a])  # an earlier kernel that breaks the promise


@pytest.mark.parametrize("early", [False, True])
def test_a_launch_with_arrays_reports_it_too(early: bool) -> None:
    kernel = tilewright.kernel(params=dict.fromkeys("ab", "ptr f32"), block=64)(read)
    a, b = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    on = VmDevice(checked=True)
    if early:
        with pytest.raises(VmFault, match=r"no griddepcontrol.wait"):
            kernel[1](a, b, device=on, programmatic=True)
    else:
        kernel[1](a, b, device=on)
        np.testing.assert_array_equal(a, b)


def test_programmatic_launches_need_hopper() -> None:
    machine = vm.Machine("sm_80")
    machine.load(".version 8.0\n.target sm_80\n.address_size 64\n.entry f(){ ret; }")
    with pytest.raises(LaunchError, match="needs sm_90 or later, got sm_80"):
        machine.launch("f", 1, 32, programmatic=True)


EACH = (
    "one warpgroup", "pingpong", "two side by side", "by a counter", "K in two",
    "the last wave's K", "tf32, copied", "e4m3, halves of columns", "a stack", "nothing aligned",
)  # fmt: skip


@every_row("name", EACH, parts=4)
def test_gemm_kernels_are_not_early(name: str) -> None:
    config, gemm_case = ASKED[name]
    check(gemm_case, VmDevice(FEW, checked=True), config)


@pytest.mark.parametrize("config", ["tma:64x64x64:1:2", "tma:64x64x64:1:2*2"])
def test_gemm_kernels_with_alpha_in_memory_are_not_early(config: str) -> None:
    on = VmDevice(FEW, checked=True)
    a, b = np.ones((70, 128), "f2"), np.ones((128, 80), "f2")
    alpha = Resident.of(np.full((), 2.0, "f4"), on)
    places = Resident.of(a, on), Resident.of(b, on)
    result = tilewright.matmul(*places, alpha=alpha, out_dtype="f32", device=on, config=config)
    assert (result.numpy() == 256).all()
