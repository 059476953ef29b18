"""``simt.run`` on the GPU that is here, in a process of its own.

A fault ends a process's CUDA context. So a thread's kernels run in another process, which a fault
ends too, and the next kernel has a new one: no test fails for what one before it did.
"""

from __future__ import annotations

import struct
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from ptx_kernels.simt import NUMBERS, POINTERS
from tilewright import cuda
from tilewright.errors import CudaError

_mine = threading.local()


def on_gpu(text, buffers=(), *, grid=1, block=32, cluster=None, arch=None):
    """The buffers after the kernel ``k``; ``arch`` is ignored, it is the GPU's."""
    if not hasattr(_mine, "process"):
        _mine.process = ProcessPoolExecutor(1, get_context("spawn"))
    try:
        return _mine.process.submit(_launch, text, list(buffers), grid, block, cluster).result()
    except CudaError:
        _mine.process.shutdown()
        del _mine.process
        raise


def _launch(text, buffers, grid, block, cluster):
    gpu = cuda.gpu()
    places = [gpu.alloc(b.nbytes) for b in buffers]
    for place, buffer in zip(places, buffers, strict=True):
        gpu.upload(place, np.ascontiguousarray(buffer))
    module = gpu.load(cuda.compile(text, gpu.arch))
    pointers = places + [0] * (POINTERS - len(places))
    params = struct.pack(f"<{POINTERS}Q{NUMBERS}I", *pointers, *[0] * NUMBERS)
    gpu.launch(module["k"], grid, block, params, cluster=cluster)
    gpu.wait()
    made = [np.zeros_like(b) for b in buffers]
    for place, buffer in zip(places, made, strict=True):
        gpu.download(buffer, place)
    module.close()
    for place in places:
        gpu.free(place)
    return made
