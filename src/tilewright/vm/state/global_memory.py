"""Global memory: one reserved range of addresses, given out in pieces.

An address outside what is allocated is a fault with a name, never a crash of Python. A freed piece
stays known as freed, and its addresses are not given out again until they have to be, so that use
after free shows.
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
QUARANTINE = 1 << 12  # freed pieces that keep their addresses
HEAP_BYTES = 8 << 20  # bytes, as CUDA has it
UNINITIALIZED = 0xFF


@dataclass(slots=True)
class Allocation:
    start: int
    end: int
    live: bool = True
    read_only: bool = False  # kernels only read it

    @property
    def reserved(self) -> int:
        """Where the next piece may begin: a guard of a byte at least lies between."""
        return -(-(self.end + 1) // ALIGN) * ALIGN


class GlobalMemory:
    """The machine's global memory; addresses begin at ``GLOBAL_BASE`` on every machine and run
    alike. Threads may share one, and machines too; other processes the one in a ``file``, of
    which so much as is used takes memory (Linux).
    """

    def __init__(self, reserve: int = RESERVED_BYTES, file: int = -1) -> None:
        self.map, self.size = reserve_range(reserve, file)
        self.shared = file >= 0
        self.view = np.frombuffer(self.map, np.uint8)
        self.host = self.view.ctypes.data - GLOBAL_BASE
        self.pieces: list[Allocation] = []
        self.freed: deque[Allocation] = deque()
        self.top = GLOBAL_BASE
        self.lock = threading.RLock()
        self.heap = Heap(self)

    def allocate(self, size: int, read_only: bool = False) -> int:
        """The address of ``size`` new bytes (zeros), aligned to 256. A kernel that writes to
        ``read_only`` ones faults.

        Raises DeviceError where memory is full.
        """
        if not isinstance(size, int | np.integer) or size < 0:
            raise DeviceError(f"can't allocate {size!r} bytes")
        size = int(size)
        with self.lock:
            start = self._room(size)
            self.pieces.insert(
                self._index(start), Allocation(start, start + size, read_only=read_only)
            )
        return start

    def _room(self, size: int) -> int:
        end = GLOBAL_BASE + self.size - WINDOW
        if self.top + size + 1 > end:
            self._recycle(0)
        if self.top + size + 1 <= end:
            start = self.top
            self.top = Allocation(start, start + size).reserved
            return start
        previous = GLOBAL_BASE
        for piece in self.pieces:
            if piece.start - previous > size:
                return previous
            previous = piece.reserved
        whole = f"the virtual machine's memory ({self.size >> 20} MiB)"
        raise DeviceError(f"{whole} has no room for {size} bytes")

    def free(self, address: int) -> None:
        """Give a piece back; its pages return to the system at once.

        Raises DeviceError for any other address.
        """
        if not isinstance(address, int | np.integer):
            raise DeviceError(f"free of {address!r}, which is no address")
        with self.lock:
            piece = self.find(address)
            if piece is None or piece.start != address or not piece.live:
                raise DeviceError(f"free of {address:#x}, which is not the start of an allocation")
            piece.live = False
            self._clear(piece)
            self.freed.append(piece)
            if len(self.freed) > QUARANTINE:
                self._recycle(QUARANTINE // 2)

    def _clear(self, piece: Allocation) -> None:
        """Zeros, by giving whole pages back where the system then makes them zeros."""
        start, end = piece.start - GLOBAL_BASE, piece.end - GLOBAL_BASE
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and sys.platform == "linux":
            how = mmap.MADV_REMOVE if self.shared else mmap.MADV_DONTNEED
            self.map.madvise(how, first, last - first)
            self.view[start:first] = 0
            self.view[last:end] = 0
        else:
            self.view[start:end] = 0

    def _recycle(self, keep: int) -> None:
        """Forget the oldest freed pieces; what they held is free again."""
        while len(self.freed) > keep:
            self.pieces.remove(self.freed.popleft())
        self.top = self.pieces[-1].reserved if self.pieces else GLOBAL_BASE

    def _index(self, address: int) -> int:
        return bisect_right(self.pieces, address, key=lambda p: p.start)

    def find(self, address: int) -> Allocation | None:
        """The piece, live or freed, that begins at or before the address."""
        with self.lock:
            index = self._index(address)
            return self.pieces[index - 1] if index else None

    def bytes(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """A view of live memory. DeviceError where it is not all in one allocation."""
        if not isinstance(address, int | np.integer):
            raise DeviceError(f"an address must be an int, got {address!r:.80}")
        piece = self.find(int(address))
        if piece is None or not piece.live or address + size > piece.end:
            raise DeviceError(f"{size} bytes at {address:#x} are not in one allocation")
        return self.view[address - GLOBAL_BASE : address - GLOBAL_BASE + size]

    def table(self) -> npt.NDArray[np.uint8]:
        """The pieces as ``Allocation`` records."""
        with self.lock:
            pieces = tuple(self.pieces)
        rows = np.zeros((len(pieces), AllocationRecord.size // 8), np.uint64)
        for row, piece in zip(rows, pieces, strict=True):
            row[0], row[1] = piece.start, piece.end
            row[2] = piece.live * (LIVE_READ_ONLY if piece.read_only else 1)
        return rows.view(np.uint8).reshape(-1)

    def describe(self, address: int) -> str:
        """Where an address lies, for an error message."""
        piece = self.find(address)
        if piece is None:
            return "no allocation is near it"
        kind = "the allocation" if piece.live else "the freed allocation"
        size = piece.end - piece.start
        if address < piece.end:
            return f"byte {address - piece.start} of {kind} of {size} bytes at {piece.start:#x}"
        return f"{address - piece.end} bytes past {kind} of {size} bytes at {piece.start:#x}"


class Heap:
    """What kernels have by ``malloc``, ``limit`` bytes at most; it outlives a launch."""

    def __init__(self, memory: GlobalMemory, limit: int = HEAP_BYTES) -> None:
        self.memory, self.limit, self.used = memory, limit, 0
        self.sizes: dict[int, int] = {}

    def take(self, size: int) -> int:
        """The address of ``size`` bytes, all ones; 0 where there is no room."""
        with self.memory.lock:
            if not 0 < size <= self.limit - self.used:
                return 0
            address = self.memory.allocate(size)
            self.memory.bytes(address, size)[:] = UNINITIALIZED
            self.sizes[address] = size
            self.used += size
        return address

    def give(self, address: int) -> bool:
        """Give a piece back; False for any other address."""
        with self.memory.lock:
            if address not in self.sizes:
                return False
            self.used -= self.sizes.pop(address)
            self.memory.free(address)
        return True
