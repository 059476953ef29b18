"""The CUDA driver through cuda-bindings: found once, each of its results made a typed error here.

``cu()`` is the initialised module ``cuda.bindings.driver``. ``call("cuMemAlloc", 16)`` calls one of
its functions and gives what it returns, or raises a CudaError that says what was being done and
what helps. Nothing of CUDA is imported before somebody asks for it: on a laptop this costs nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from functools import cache
from types import ModuleType
from typing import Any

from ..errors import CudaError, DeviceError, MissingPackage

INSTALL = "pip install 'tilewright[cuda]'"
_ON_CPU = "device='vm' runs the same kernel, to the same bits, on the CPU"
_DEAD = (
    "this process's CUDA context is dead: start a new process. Run the same call with device='vm': "
    "it names the instruction, the thread and the address"
)

SINCE = 12000  # of the CUDA whose functions are called by address

HINTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays, or see nvidia-smi for who else uses this GPU",
    "CUDA_ERROR_NOT_INITIALIZED": "CUDA does not survive a fork: start the worker with 'spawn'",
    "CUDA_ERROR_NO_DEVICE": f"CUDA_VISIBLE_DEVICES may hide it; {_ON_CPU}",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver was updated while loaded: reboot the machine",
    "CUDA_ERROR_INVALID_PTX": "ptxas refused the PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": f"the driver is older than the PTX's .version; {INSTALL}",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile for this GPU: arch=gpu.arch",
    "CUDA_ERROR_INVALID_IMAGE": "this is no cubin, or one made for a newer driver",
    "CUDA_ERROR_NOT_FOUND": "no kernel of this name in the module",
    "CUDA_ERROR_ILLEGAL_ADDRESS": f"a kernel touched memory that is not allocated; {_DEAD}",
    "CUDA_ERROR_MISALIGNED_ADDRESS": f"a kernel's access was not aligned to its size; {_DEAD}",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": f"a kernel's address was in the wrong state space; {_DEAD}",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": f"a kernel ran an instruction it may not; {_DEAD}",
    "CUDA_ERROR_INVALID_PC": f"a kernel jumped to nowhere; {_DEAD}",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": f"a kernel overran its call stack; {_DEAD}",
    "CUDA_ERROR_ASSERT": f"a kernel's assertion failed, stderr says which and where; {_DEAD}",
    "CUDA_ERROR_LAUNCH_FAILED": f"a kernel stopped on an error; {_DEAD}",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a display's watchdog stopped the kernel",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "registers a thread × threads, or shared memory, exceed an SM's: try a smaller block"
    ),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "more CTAs than can be resident at once",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "at most 8 CTAs everywhere (16 on Hopper)",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "not allowed in a CUDA graph: do it before",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "an earlier call was not allowed in it",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": "the default stream can't be captured",
    "CUDA_ERROR_INVALID_CONTEXT": "no CUDA context is current in this thread",
}


@cache
def cu() -> ModuleType:
    """``cuda.bindings.driver``, initialised.

    Raises MissingPackage without cuda-bindings, DeviceError without a driver that can start.
    """
    module = _bindings("driver")
    try:
        code = module.cuInit(0)[0]
    except (RuntimeError, OSError) as error:
        raise DeviceError(f"no NVIDIA driver: {error}", hint=_ON_CPU) from error
    if code:
        raise error_of(module, code, "starting the CUDA driver")
    return module


def _bindings(name: str) -> ModuleType:
    """``cuda.bindings.<name>``, or MissingPackage."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise MissingPackage(f"the GPU needs cuda-bindings: {error}", hint=INSTALL) from error


@cache
def nvjitlink() -> ModuleType:
    """``cuda.bindings.nvjitlink`` with its library. MissingPackage where either is absent."""
    module = _bindings("nvjitlink")
    try:
        module.version()
    except Exception as error:  # each release of cuda-bindings raises its own type here
        raise MissingPackage(f"no nvJitLink library: {error}", hint=INSTALL) from error
    return module


def error_of(module: ModuleType, code: Any, doing: str) -> CudaError:
    """The CudaError for a CUresult, in the driver's words, with a hint where there is one."""
    name = getattr(code, "name", str(code))
    status, text = module.cuGetErrorString(code)
    said = text.decode(errors="replace") if not status and text else "unknown error"
    message = f"{doing}: {said} ({name})"
    hint = HINTS.get(name, "")
    return CudaError(message, code=int(code), name=name, fatal=hint.endswith(_DEAD), hint=hint)


def check(result: tuple[Any, ...], doing: str) -> Any:
    """What a driver call returned beside its CUresult: None, a value or a tuple, or CudaError."""
    if result[0]:
        raise error_of(cu(), result[0], doing)
    return result[1] if len(result) == 2 else result[1:] or None


def call(function: str, *arguments: Any, doing: str = "") -> Any:
    """Call a driver function by name and check its result. ``doing`` says what for, in an error."""
    try:
        result = getattr(cu(), function)(*arguments)
    except (AttributeError, RuntimeError) as error:
        if isinstance(error, DeviceError):
            raise
        raise DeviceError(
            f"this driver has no {function}: {error}", hint="update the driver"
        ) from error
    return check(result, doing or function)


@cache
def address_of(function: str) -> int:
    """Where a driver function's code is, for machine code to call."""
    found = call("cuGetProcAddress", function.encode(), SINCE, 0, doing=f"looking for {function}")
    return int(found[0])


def version() -> tuple[int, int]:
    """The newest CUDA that the driver knows: ``(13, 0)``."""
    number = int(call("cuDriverGetVersion"))
    return number // 1000, number % 1000 // 10


@cache
def why_not() -> str:
    """Why no kernel can run on a GPU here, in a sentence; empty where one can. Never raises."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(library)
    except OSError:
        return f"no NVIDIA driver: {library} was not found"
    try:
        count = int(call("cuDeviceGetCount", doing="counting the GPUs"))
    except Exception as error:
        return str(error).replace("\n", ";")
    return "" if count else "the NVIDIA driver sees no GPU"


def available() -> bool:
    """Whether a kernel can run on a GPU here. Never raises; imports CUDA only beside a driver."""
    return not why_not()
