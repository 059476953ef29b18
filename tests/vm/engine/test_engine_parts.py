"""The engine's parts are loaded when first needed, and errors while loading are raised."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ptx_kernels import simt
from ptx_kernels.simt import at, kernel, launch, zeros
from tilewright import compile_cache
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

SAXPY = kernel(f"""
  {at("%a1", "%g", 4, "%rd1")} {at("%a0", "%g", 4, "%rd0")} ld.global.f32 %f1, [%rd1];
  ld.global.f32 %f0, [%rd0]; cvt.rn.f32.u32 %f2, %n0; fma.rn.f32 %f3, %f2, %f1, %f0;
  st.global.f32 [%rd0], %f3;""")
BULK = """
.shared .align 16 .b8 sm[128];
mov.u32 %r2, sm; mad.lo.u32 %r3, %t, 4, %r2; st.shared.u32 [%r3], %t; bar.sync 0;
setp.eq.u32 %p0, %t, 0;
@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r2], 128;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
ASYNCHRONOUS = {
    "bulk_copies", "checked", "cluster", "async_copies", "mbarrier_model", "wgmma_groups",
    "async_reductions", "tensor_copies", "wgmma_operands",
}  # fmt: skip


class Store:
    """A store over this process's cache that raises OSError while it is ``closed``."""

    closed = False

    def get(self, kind: str, key: str) -> bytes | None:
        if self.closed:
            raise OSError("the store is closed")
        return compile_cache.store().get(kind, key)

    def put(self, kind: str, key: str, value: bytes) -> None:
        compile_cache.store().put(kind, key, value)


def fresh(**how) -> Machine:
    """A machine that has not loaded any part of the engine."""
    return Machine(store=Store(), **how)


def saxpy(machine: Machine, **shape) -> None:
    x, y = np.arange(64, dtype=np.float32), np.ones(64, np.float32)
    y, _ = launch(machine, SAXPY, [y, x], [3], grid=2, **shape)
    assert y.tolist() == (3 * x + 1).tolist()


def test_a_small_kernel_loads_no_asynchronous_part():
    machine = fresh()
    saxpy(machine)
    loaded = machine.library.loaded
    assert not loaded & ASYNCHRONOUS
    assert loaded == {
        "engine_parts", "scheduler", "lane_groups", "cta_barriers", "memory_access",
        "vector_access", "gather_scatter",
    }  # fmt: skip


def test_a_copy_instruction_loads_its_parts():
    machine = fresh()
    for on_step in (None, lambda step: None):
        (out,) = launch(fresh(), kernel(BULK), [zeros() + 1], on_step=on_step)
        assert out.tolist() == list(range(1, 33))
    saxpy(machine)
    assert not machine.library.loaded & ASYNCHRONOUS
    machine = Machine(store=machine.store)
    launch(machine, kernel(BULK), [zeros()])
    assert machine.library.loaded & ASYNCHRONOUS >= {"bulk_copies", "async_reductions"}
    others = {"tensor_copies", "wgmma_groups", "wgmma_operands", "checked", "cluster"}
    assert not machine.library.loaded & others


def test_the_launch_shape_loads_parts():
    machine = fresh()
    saxpy(machine, cluster=2)
    assert machine.library.loaded & ASYNCHRONOUS == {"cluster", "mbarrier_model"}
    machine = fresh(checked=True)
    saxpy(machine)
    assert machine.library.loaded & ASYNCHRONOUS == {"checked"}


def test_every_part_can_be_loaded_and_every_slot_is_set():
    library = fresh().library
    nothing = library.address("tw_unloaded")
    for part in library.parts:
        library.need(part)
    assert library.loaded == set(library.parts)
    assert nothing not in [cell.value for cell in library.slots.values()]


def test_an_error_while_a_part_is_loaded_is_raised_and_does_not_break_the_next_launch():
    for first in (True, False):  # before the scheduler is there, and in a warp's turn
        machine = fresh()
        if not first:
            saxpy(machine)
        other = Machine(store=machine.store)
        machine.store.closed = True
        with pytest.raises(OSError, match="the store is closed"):
            launch(other, kernel(BULK), [zeros()])
        machine.store.closed = False
        (out,) = launch(Machine(store=machine.store), kernel(BULK), [zeros()])
        assert out.tolist() == list(range(32))


def test_threads_load_the_same_parts_concurrently():
    store, begin, wrong = Store(), threading.Barrier(4), []

    def work() -> None:
        try:
            begin.wait()
            saxpy(Machine(store=store))
            (out,) = simt.run(kernel(BULK), [zeros()], machine=Machine(store=store))
            assert out.tolist() == list(range(32))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
