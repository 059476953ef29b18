"""Matrices to be copied by kernels, and whether a copy wrote their bytes and no others.

An allocation of the virtual machine ends at its last byte, and a read beyond it is a fault; what
lies around a target is poison that must stay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.run import device
from tilewright.run.relayout.relayout import RelayoutSpec, prepare

POISON = 0xA5
RNG = np.random.default_rng(1)


class Place:
    """A matrix or stack in memory of its own, ``before`` bytes after its beginning; strides count
    elements.
    """

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], size: int, before: int,
        after: int = 0, on: str = "vm",
    ) -> None:  # fmt: skip
        self.on = device(on)
        self.shape, self.steps, self.size = shape, tuple(s * size for s in strides), size
        ends = [(n - 1) * s for n, s in zip(shape, self.steps, strict=True)]
        first = before - sum(min(end, 0) for end in ends)
        self.bytes = first + sum(max(end, 0) for end in ends) + size + after
        self.base = self.on.alloc(self.bytes)
        self.first, self.address = first, self.base + first

    def view(self, flat: Any) -> Any:
        """The elements' bytes as an array of one more index."""
        strides = (*self.steps, 1)
        shape = (*self.shape, self.size)
        return np.lib.stride_tricks.as_strided(flat[self.first :], shape, strides)

    def read(self) -> Any:
        flat = np.empty((1, self.bytes), np.uint8)
        self.on.download(flat, self.base, self.bytes)
        return flat[0]

    def write(self, flat: Any) -> None:
        self.on.upload(self.base, flat[None], flat.size)

    def free(self) -> None:
        self.on.free(self.base)


def check(*pairs: tuple[Place, Place], padded: bool = False) -> None:
    """Copy all sources at once, and look at every byte around the targets."""
    moves, addresses, expected = [], [], []
    for source, target in pairs:
        given = RNG.integers(0, 256, source.bytes, np.uint8)
        source.write(given)
        around = np.full(target.bytes, POISON, np.uint8)
        target.write(around)
        target.view(around)[:] = source.view(given)
        expected.append(around)
        strides = (tuple(s // x.size for s in x.steps) for x in (source, target))
        moves.append(RelayoutSpec(source.shape, source.size, *strides, padded))
        addresses += [source.address, target.address]
    prepare(pairs[0][0].on, tuple(moves))(addresses)
    for (source, target), around in zip(pairs, expected, strict=True):
        left = target.read()
        if padded:
            around, left = target.view(around), target.view(left)
        np.testing.assert_array_equal(left, around)
        source.free()
        target.free()


SIZES = [1, 2, 4, 8]  # of elements


def padded_to(length: int, size: int) -> int:
    """Elements from one aligned line to the next."""
    return -(-length * size // 16) * 16 // size


def aligned(shape: tuple[int, ...], size: int, rows: bool = True, on: str = "vm") -> Place:
    """A compact target: its rows (else columns) begin at multiples of 16 bytes."""
    lines, length = shape[-2:] if rows else shape[:-3:-1]
    pitch = padded_to(length, size)
    strides = ((lines * pitch,) if len(shape) == 3 else ()) + ((pitch, 1) if rows else (1, pitch))
    return Place(shape, strides, size, 0, (pitch - length) * size, on)
