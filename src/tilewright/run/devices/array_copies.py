"""Copies between arrays of any library and device, and bits on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import array_view
from .device import device


def download(array: Any) -> Any:
    """The bits of an array on a GPU, with its shape, as unsigned integers in a new array. Waits for
    the current stream of its library.
    """
    view = array_view.view(array)
    on, itemsize = device(view.device), view.itemsize
    if 0 in view.shape:
        return np.empty(view.shape, f"u{itemsize}")
    on.wait(array_view.stream_of(array))
    steps = [(n - 1) * step for n, step in zip(view.shape, view.strides, strict=True)]
    before, after = -sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    memory = np.empty((1, before + after + 1), f"u{itemsize}")
    on.download(memory, view.address - before * itemsize, memory.size)
    strides = tuple(step * itemsize for step in view.strides)
    return np.lib.stride_tricks.as_strided(memory[0, before:], view.shape, strides).copy()


def upload(array: Any, bits: Any) -> None:
    """Write bits to a new, contiguous array on a GPU, and wait."""
    view = array_view.view(array)
    on = device(view.device)
    on.wait(array_view.stream_of(array))  # kernels that used this memory before
    on.upload(view.address, np.ascontiguousarray(bits).reshape(1, -1), bits.size)
    on.wait()
    array_view.mark_written([array])
