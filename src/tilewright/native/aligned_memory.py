"""Zeroed memory at aligned addresses, and reserved ranges of addresses."""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

from ..errors import DeviceError

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
RESERVE_THRESHOLD = 1 << 28  # bytes; larger blocks are reserved, and committed when touched


def reserve_range(size: int, file: int) -> tuple[mmap.mmap, int]:
    """Reserve up to ``size`` bytes of address space, as many as the system grants; pages are
    committed when touched. ``file`` is a descriptor of a file to map, or −1.
    """
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
                raise DeviceError("no address space left for the virtual machine") from None
            size //= 2


def aligned_zeros(size: int, align: int = 64) -> npt.NDArray[np.uint8]:
    """Zeroed bytes whose address is a multiple of ``align``. Large blocks are committed when
    touched.
    """
    if size > RESERVE_THRESHOLD:
        memory, reserved = reserve_range(size, -1)
        if reserved < size:
            raise DeviceError(f"cannot reserve {size >> 20} MiB of memory for a launch")
        return np.frombuffer(memory, np.uint8)
    raw = np.zeros(size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + size]
