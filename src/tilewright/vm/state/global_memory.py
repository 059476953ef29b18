"""Global memory: one reserved address range, and its allocations.

An access outside of the allocations is a fault, never a crash of Python. Freed allocations are
remembered, and their addresses are not reused until they must be, so that use after free is found.
"""

from __future__ import annotations

import mmap
import sys
import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import DeviceError
from ...native.aligned_memory import reserve_range
from .records import GLOBAL_BASE, LIVE_READ_ONLY, WINDOW, AllocationRecord

ALIGN = 256
RESERVED_BYTES = 64 << 30
QUARANTINE = 1 << 12  # freed allocations whose addresses are not reused
HEAP_BYTES = 8 << 20  # default size of the heap, as in CUDA
UNINITIALIZED = 0xFF  # byte value of uninitialized memory


@dataclass(slots=True)
class Allocation:
    start: int
    end: int
    live: bool = True
    read_only: bool = False  # kernels must not write to it

    @property
    def reserved(self) -> int:
        """Where the next allocation may begin, after at least one guard byte."""
        return -(-(self.end + 1) // ALIGN) * ALIGN


class GlobalMemory:
    """The machine's global memory. Addresses begin at ``GLOBAL_BASE`` and are the same on every
    machine and in every run.

    Threads and machines may share one. Processes may share one in a ``file`` (a descriptor), whose
    pages take memory when they are used (Linux).
    """

    def __init__(self, reserve: int = RESERVED_BYTES, file: int = -1) -> None:
        self.map, self.size = reserve_range(reserve, file)
        self.shared = file >= 0
        self.view = np.frombuffer(self.map, np.uint8)
        self.host = self.view.ctypes.data - GLOBAL_BASE
        self.allocations: list[Allocation] = []
        self.freed: deque[Allocation] = deque()
        self.top = GLOBAL_BASE
        self.lock = threading.RLock()
        self.heap = Heap(self)

    def allocate(self, size: int, read_only: bool = False) -> int:
        """Allocate ``size`` zeroed bytes and return their address, a multiple of 256. A kernel that
        writes to a ``read_only`` allocation faults.

        Raises DeviceError if memory is full.
        """
        size = _byte_count(size)
        with self.lock:
            start = self._find_free(size)
            self.allocations.insert(
                self._index(start), Allocation(start, start + size, read_only=read_only)
            )
        return start

    def _find_free(self, size: int) -> int:
        """The start of an unused range, first above all allocations, else between them."""
        end = GLOBAL_BASE + self.size - WINDOW
        if self.top + size + 1 > end:
            self._recycle(0)
        if self.top + size + 1 <= end:
            start = self.top
            self.top = Allocation(start, start + size).reserved
            return start
        previous = GLOBAL_BASE
        for allocation in self.allocations:
            if allocation.start - previous > size:
                return previous
            previous = allocation.reserved
        memory = f"the virtual machine's memory of {self.size >> 20} MiB"
        raise DeviceError(f"{memory} has no {size} contiguous free bytes")

    def protect(self, address: int) -> None:
        """Make the live allocation that has this address read-only until it is freed."""
        with self.lock:
            allocation = self.find(address)
            if allocation is None or not allocation.live or address >= allocation.end:
                raise DeviceError(f"{address:#x} is in no allocation")
            allocation.read_only = True

    def free(self, address: int) -> None:
        """Free an allocation; its pages return to the operating system.

        Raises DeviceError if no live allocation starts at the address.
        """
        address = _address(address)
        with self.lock:
            allocation = self.find(address)
            if allocation is None or allocation.start != address or not allocation.live:
                raise DeviceError(f"free of {address:#x}, which is not the start of an allocation")
            allocation.live = False
            self._clear(allocation)
            self.freed.append(allocation)
            if len(self.freed) > QUARANTINE:
                self._recycle(QUARANTINE // 2)

    def _clear(self, allocation: Allocation) -> None:
        """Zero the bytes. On Linux whole pages are returned to the system, which zeroes them."""
        start, end = allocation.start - GLOBAL_BASE, allocation.end - GLOBAL_BASE
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and sys.platform == "linux":
            advice = mmap.MADV_REMOVE if self.shared else mmap.MADV_DONTNEED
            self.map.madvise(advice, first, last - first)
            self.view[start:first] = 0
            self.view[last:end] = 0
        else:
            self.view[start:end] = 0

    def _recycle(self, keep: int) -> None:
        """Forget all but the newest ``keep`` freed allocations; their addresses can be reused."""
        while len(self.freed) > keep:
            self.allocations.remove(self.freed.popleft())
        self.top = self.allocations[-1].reserved if self.allocations else GLOBAL_BASE

    def _index(self, address: int) -> int:
        return bisect_right(self.allocations, address, key=lambda a: a.start)

    def find(self, address: int) -> Allocation | None:
        """The last allocation, live or freed, that begins at or before the address."""
        with self.lock:
            index = self._index(address)
            return self.allocations[index - 1] if index else None

    def bytes(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """A view of live memory. Raises DeviceError unless it is in one live allocation."""
        address = _address(address)
        allocation = self.find(address)
        if allocation is None or not allocation.live or address + size > allocation.end:
            raise DeviceError(f"{size} bytes at {address:#x} are not in one allocation")
        return self.view[address - GLOBAL_BASE : address - GLOBAL_BASE + size]

    def table(self) -> npt.NDArray[np.uint8]:
        """The allocations as ``AllocationRecord`` records."""
        with self.lock:
            allocations = tuple(self.allocations)
        rows = np.zeros((len(allocations), AllocationRecord.size // 8), np.uint64)
        for row, allocation in zip(rows, allocations, strict=True):
            row[0], row[1] = allocation.start, allocation.end
            row[2] = allocation.live * (LIVE_READ_ONLY if allocation.read_only else 1)
        return rows.view(np.uint8).reshape(-1)

    def describe(self, address: int) -> str:
        """Where an address is relative to the nearest allocation below it, for error messages."""
        allocation = self.find(address)
        if allocation is None:
            return "no allocation is near it"
        start, end = allocation.start, allocation.end
        kind = "the allocation" if allocation.live else "the freed allocation"
        if address < end:
            return f"byte {address - start} of {kind} of {end - start} bytes at {start:#x}"
        return f"{address - end} bytes past {kind} of {end - start} bytes at {start:#x}"


def _byte_count(size: object) -> int:
    if not isinstance(size, int | np.integer) or size < 0:
        raise DeviceError(f"can't allocate {size!r} bytes: the size must be an int of at least 0")
    return int(size)


def _address(address: object) -> int:
    if not isinstance(address, int | np.integer):
        raise DeviceError(f"an address must be an int, got {address!r:.80}")
    return int(address)


class Heap:
    """Memory of the kernels' ``malloc``, at most ``limit`` bytes; it outlives a launch."""

    def __init__(self, memory: GlobalMemory, limit: int = HEAP_BYTES) -> None:
        self.memory, self.limit, self.used = memory, limit, 0
        self.sizes: dict[int, int] = {}

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes, all ones, and return their address; 0 if the heap is full."""
        with self.memory.lock:
            if not 0 < size <= self.limit - self.used:
                return 0
            address = self.memory.allocate(size)
            self.memory.bytes(address, size)[:] = UNINITIALIZED
            self.sizes[address] = size
            self.used += size
        return address

    def free(self, address: int) -> bool:
        """Free an allocation; False if none starts at the address."""
        with self.memory.lock:
            if address not in self.sizes:
                return False
            self.used -= self.sizes.pop(address)
            self.memory.free(address)
        return True
