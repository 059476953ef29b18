"""What moves fragments, on a GPU: memory and registers as ``tilewright.mma`` says."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from movers import batches, check
from simt import NUMBERS, POINTERS
from tilewright import cuda


def on_gpu(text: str, buffers: list[np.ndarray], arch: str) -> list[np.ndarray]:
    """The buffers after one warp has run the kernel ``k``."""
    gpu = cuda.gpu()
    places = [gpu.alloc(b.nbytes) for b in buffers]
    try:
        for place, buffer in zip(places, buffers, strict=True):
            gpu.upload(place, np.ascontiguousarray(buffer))
        with gpu.load(cuda.compile(text, gpu.arch)) as module:
            pointers = places + [0] * (POINTERS - len(places))
            params = struct.pack(f"<{POINTERS}Q{NUMBERS}I", *pointers, *[0] * NUMBERS)
            gpu.launch(module["k"], 1, 32, params)
            gpu.wait()
        made = [np.zeros_like(b) for b in buffers]
        for place, buffer in zip(places, made, strict=True):
            gpu.download(buffer, place)
    finally:
        for place in places:
            gpu.free(place)
    return made


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize("batch", batches("sm_90a"), ids=lambda b: str(b[0].move))
def test_a_move_does_what_its_row_says(batch):
    check(batch, on_gpu)
