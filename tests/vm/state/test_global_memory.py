"""Global memory: allocations in one reserved range, typed errors, no access to neighbours."""

from __future__ import annotations

import itertools
import mmap
import os
import threading

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.vm import Machine
from tilewright.vm.state.global_memory import ALIGN, QUARANTINE, GlobalMemory
from tilewright.vm.state.records import GLOBAL_BASE

pytestmark = pytest.mark.vm


def test_addresses_are_the_same_in_every_machine():
    assert [Machine().alloc(100) for _ in range(3)] == [GLOBAL_BASE] * 3


def test_allocations_are_aligned_disjoint_and_zeroed():
    memory = GlobalMemory(1 << 26)
    pieces = [(memory.allocate(n), n) for n in (0, 1, 255, 256, 257, 4096, 100000)]
    for (a, size), (b, _) in itertools.pairwise(pieces):
        assert b % ALIGN == 0 and b > a + size
        assert not memory.bytes(a, size).any()


def test_upload_and_download_round_trip():
    machine = Machine()
    for array in (
        np.arange(7, dtype=np.int16),
        np.zeros((0, 3)),
        np.float32(2.5),
        np.eye(5)[:, ::2],
    ):
        place = machine.upload(array)
        like = np.asarray(array)
        np.testing.assert_array_equal(machine.download(place, like), like)


def test_unallocated_memory_cannot_be_accessed():
    machine = Machine()
    place = machine.upload(np.zeros(4, np.uint8))
    for address, size in ((place, 5), (place - 1, 1), (place + 4, 1), (0, 1)):
        with pytest.raises(DeviceError, match="are not in one allocation"):
            machine.memory.bytes(address, size)
    machine.free(place)
    with pytest.raises(DeviceError, match="not the start"):
        machine.free(place)
    with pytest.raises(DeviceError, match="are not in one allocation"):
        machine.write(place, np.zeros(1, np.uint8))
    with pytest.raises(DeviceError, match="not the start"):
        machine.free(machine.alloc(10) + 1)


def test_full_memory_is_an_error_and_freed_memory_is_reused():
    memory = GlobalMemory(1 << 20)
    with pytest.raises(DeviceError, match="contiguous free bytes"):
        memory.allocate(1 << 30)
    with pytest.raises(DeviceError, match="can't allocate -1 bytes"):
        memory.allocate(-1)
    for _ in range(40):  # each allocation must reuse the freed one
        place = memory.allocate(600_000)
        view = memory.bytes(place, 600_000)
        assert not view.any()
        view[:] = 7
        memory.free(place)


def test_many_allocations_and_frees():
    memory = GlobalMemory(1 << 28)
    kept = [memory.allocate(64) for _ in range(10)]
    for _ in range(QUARANTINE + 10):
        memory.free(memory.allocate(1000))
    assert len(memory.allocations) < QUARANTINE + 20
    assert all(memory.bytes(p, 64).size for p in kept)


def test_threads_share_a_memory():
    memory, places = GlobalMemory(1 << 28), []

    def work() -> None:
        mine = [memory.allocate(100) for _ in range(200)]
        for place in mine[::2]:
            memory.free(place)
        places.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(places)) == 800


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux's files without a name")
def test_memory_in_a_file_is_shared_by_processes() -> None:
    file = os.memfd_create("tilewright")
    memory = GlobalMemory(1 << 24, file)
    with mmap.mmap(file, 1 << 24) as other:
        address, size = memory.allocate(10_000), 10_000
        memory.bytes(address, size)[:] = 7
        assert other[: size + 1] == bytes([7]) * size + b"\0"
        memory.free(address)
        assert not any(other[: size + 1])
    os.close(file)
