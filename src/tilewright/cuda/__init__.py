"""Running on an NVIDIA GPU: PTX to machine code, loading, memory, launches and timing.

    gpu = cuda.gpu()
    kernel = gpu.load(cuda.compile(ptx, gpu.arch))["gemm"]
    gpu.launch(kernel, grid=(8, 8), block=128, params=packed, shared=65536, stream=stream)

Importing this package does not import CUDA. ``available()`` and ``why_not()`` report whether a GPU
can be used and never raise. All other functions raise MissingPackage or DeviceError without one.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .assembler import compile, compiler, target_of
    from .cubin import Cubin, KernelUsage
    from .driver import available, version, why_not
    from .gpu import Gpu, LoadedModule, Properties, devices, gpu, ordinal_of
    from .gpu_launch import BoundCudaLaunch, CudaFunction, CudaLaunch, ParamBlock
    from .graph_timing import Graph, Stream, Timing, time_interleaved, time_us
    from .stream import stream_handle

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "BoundCudaLaunch", "Cubin", "CudaFunction", "CudaLaunch", "Gpu", "Graph", "KernelUsage",
    "LoadedModule", "ParamBlock", "Properties", "Stream", "Timing", "available", "compile",
    "compiler", "devices", "gpu", "ordinal_of", "stream_handle", "target_of", "time_interleaved",
    "time_us", "version", "why_not",
]  # fmt: skip
