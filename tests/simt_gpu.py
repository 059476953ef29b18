"""``simt.run`` on the GPU that is here."""

from __future__ import annotations

import struct

import numpy as np

from simt import NUMBERS, POINTERS
from tilewright import cuda


def on_gpu(text, buffers=(), *, grid=1, block=32, cluster=None, arch=None):
    """The buffers after the kernel ``k``; ``arch`` is the GPU's, whatever is said."""
    gpu = cuda.gpu()
    places = [gpu.alloc(b.nbytes) for b in buffers]
    try:
        for place, buffer in zip(places, buffers, strict=True):
            gpu.upload(place, np.ascontiguousarray(buffer))
        with gpu.load(cuda.compile(text, gpu.arch)) as module:
            pointers = places + [0] * (POINTERS - len(places))
            params = struct.pack(f"<{POINTERS}Q{NUMBERS}I", *pointers, *[0] * NUMBERS)
            gpu.launch(module["k"], grid, block, params, cluster=cluster)
            gpu.wait()
        made = [np.zeros_like(b) for b in buffers]
        for place, buffer in zip(places, made, strict=True):
            gpu.download(buffer, place)
    finally:
        for place in places:
            gpu.free(place)
    return made
