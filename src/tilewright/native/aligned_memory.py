"""Zeroed memory at aligned addresses, and reserved ranges of addresses."""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

from ..errors import DeviceError

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
RESERVE_THRESHOLD = 1 << 28  # bytes from which memory is reserved, and taken when touched


def reserve_range(size: int, file: int) -> tuple[mmap.mmap, int]:
    """A range of addresses, as large as the system grants; pages come when touched."""
    while True:
        try:
            if file >= 0:
                os.ftruncate(file, size)
                return mmap.mmap(file, size, flags=mmap.MAP_SHARED | NORESERVE), size
            if hasattr(mmap, "MAP_ANONYMOUS"):
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
                return mmap.mmap(-1, size, flags=flags), size
            return mmap.mmap(-1, size), size
        except (OSError, ValueError, OverflowError):
            if size <= 1 << 26:
                raise DeviceError("no address space for the virtual machine's memory") from None
            size //= 2


def aligned_zeros(size: int, align: int = 64) -> npt.NDArray[np.uint8]:
    """Zeroed bytes whose address is a multiple of ``align``; many take memory when touched."""
    if size > RESERVE_THRESHOLD:
        room, found = reserve_range(size, -1)
        if found < size:
            raise DeviceError(f"this machine has no room for {size >> 20} MiB of a launch's memory")
        return np.frombuffer(room, np.uint8)
    raw = np.zeros(size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + size]
