"""Memory of the SASS machine: global allocations in one arena, and reads and writes of lanes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SassError

Array = npt.NDArray[Any]
_BASE = 0x100000  # below it every address is a fault
_ALIGNMENT = 256
# The upper halves of generic addresses of shared and of local memory; others are global.
WINDOWS = {"shared": 0x7E, "local": 0x7F}


class SassFault(SassError):
    """An access or instruction that the SASS machine can't carry out."""


def in_windows(where: Array, active: Array) -> Iterator[tuple[str, Array, Array]]:
    """The memories that generic addresses lie in: name, addresses there, lanes."""
    upper, rest = where >> 32, active
    for name, window in WINDOWS.items():
        lanes = active & (upper == window)
        rest = rest & ~lanes
        if lanes.any():
            yield name, where & 0xFFFFFFFF, lanes
    if rest.any():
        yield "global", where, rest


class ByteSpace:
    """Bytes that lanes address from ``base``; ``name`` is for messages."""

    def __init__(self, name: str, size: int, base: int = 0) -> None:
        self.name, self.base = name, base
        self.bytes = np.zeros(-(-size // 16) * 16, np.uint8)

    def indices(self, addresses: Array, width: int) -> Array:
        """Offsets of the accesses. Raises SassFault out of bounds, or where not aligned."""
        offsets = addresses.astype(np.int64) - self.base
        low, high = int(offsets.min()), int(offsets.max())
        if low < 0 or high + width > len(self.bytes):
            bad = low if low < 0 else high
            raise SassFault(
                f"an address of {self.name} memory must be in {self.base:#x} to"
                f" {self.base + len(self.bytes):#x}, got {bad + self.base:#x}"
            )
        if width > 1 and (offsets & (width - 1)).any():
            raise SassFault(f"an access of {width} bytes to {self.name} memory must be aligned")
        return offsets

    def load(self, addresses: Array, width: int) -> list[Array]:
        """Words of each lane: ``width`` bytes (1 to 16) at each address, zero-extended."""
        offsets = self.indices(addresses, width)
        if width >= 4:
            words = self.bytes.view(np.uint32)
            return [words[(offsets >> 2) + i] for i in range(width // 4)]
        typed = self.bytes.view(np.uint16) if width == 2 else self.bytes
        return [typed[offsets >> (width >> 1)].astype(np.uint32)]

    def store(self, addresses: Array, width: int, words: list[Array]) -> None:
        """Write each lane's words; of equal addresses the last lane's stay."""
        offsets = self.indices(addresses, width)
        if width >= 4:
            target = self.bytes.view(np.uint32)
            for i in range(width // 4):
                target[(offsets >> 2) + i] = words[i]
            return
        typed = self.bytes.view(np.uint16) if width == 2 else self.bytes
        typed[offsets >> (width >> 1)] = words[0].astype(typed.dtype)


class SassMemory(ByteSpace):
    """Global memory of ``size`` bytes: ``upload`` arrays, ``download`` them after a run."""

    def __init__(self, size: int = 1 << 24) -> None:
        super().__init__("global", size, _BASE)
        self.used = 0

    def allocate(self, size: int) -> int:
        """The address of ``size`` new bytes. Raises SassFault where memory is exhausted."""
        address = self.base + self.used
        self.used += -(-size // _ALIGNMENT) * _ALIGNMENT
        if self.used > len(self.bytes):
            raise SassFault(f"global memory must hold {self.used} bytes, got {len(self.bytes)}")
        return address

    def upload(self, array: Array) -> int:
        """Copy an array to new memory; its address."""
        data = np.ascontiguousarray(array).view(np.uint8).ravel()
        address = self.allocate(data.size)
        self.bytes[address - self.base : address - self.base + data.size] = data
        return address

    def download(self, address: int, like: Array) -> Array:
        """An array of the shape and type of ``like`` from an address."""
        start = address - self.base
        data = self.bytes[start : start + like.nbytes].copy()
        return data.view(like.dtype).reshape(like.shape)
