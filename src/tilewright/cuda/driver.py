"""The CUDA driver through cuda-bindings; its status codes become typed errors here.

``cu()`` is the initialised module ``cuda.bindings.driver``. ``call("cuMemAlloc", 16)`` calls one of
its functions and returns the result, or raises a CudaError that names the failed operation and a
remedy. CUDA is imported on first use, so importing this module is cheap without a GPU.
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

SINCE = 12000  # the CUDA version of the functions that are called by address

HINTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays; nvidia-smi lists the processes that use this GPU",
    "CUDA_ERROR_NOT_INITIALIZED": "CUDA does not work after a fork: start workers with 'spawn'",
    "CUDA_ERROR_NO_DEVICE": f"CUDA_VISIBLE_DEVICES may hide the GPU; {_ON_CPU}",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver was updated while loaded: reboot the machine",
    "CUDA_ERROR_INVALID_PTX": "ptxas refused the PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": f"the driver is older than the PTX's .version; {INSTALL}",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile for this GPU: arch=gpu.arch",
    "CUDA_ERROR_INVALID_IMAGE": "the image must be a cubin that this driver supports",
    "CUDA_ERROR_NOT_FOUND": "the module has no kernel of this name",
    "CUDA_ERROR_ILLEGAL_ADDRESS": f"a kernel accessed memory that is not allocated; {_DEAD}",
    "CUDA_ERROR_MISALIGNED_ADDRESS": f"a kernel's access was not aligned to its size; {_DEAD}",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": f"a kernel's address was in the wrong state space; {_DEAD}",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": f"a kernel executed an illegal instruction; {_DEAD}",
    "CUDA_ERROR_INVALID_PC": f"a kernel jumped to an invalid address; {_DEAD}",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": f"a kernel overflowed its call stack; {_DEAD}",
    "CUDA_ERROR_ASSERT": f"a kernel's assertion failed, see stderr; {_DEAD}",
    "CUDA_ERROR_LAUNCH_FAILED": f"a kernel failed; {_DEAD}",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a display's watchdog stopped the kernel",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "the block needs more registers or shared memory than an SM has: try a smaller block"
    ),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "more CTAs than can be resident at once",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "a cluster has at most 8 CTAs (16 on Hopper)",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "a call is not allowed during capture: make it before",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "an earlier call was not allowed during capture",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": "the default stream can't be captured",
    "CUDA_ERROR_INVALID_CONTEXT": "no CUDA context is current in this thread",
}


@cache
def cu() -> ModuleType:
    """``cuda.bindings.driver``, initialised.

    Raises MissingPackage without cuda-bindings, DeviceError if the driver can't be initialised.
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
    """The module ``cuda.bindings.<name>``. Raises MissingPackage."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise MissingPackage(f"the GPU needs cuda-bindings: {error}", hint=INSTALL) from error


@cache
def nvjitlink() -> ModuleType:
    """``cuda.bindings.nvjitlink``. Raises MissingPackage if it or its library is missing."""
    module = _bindings("nvjitlink")
    try:
        module.version()
    except Exception as error:  # each release of cuda-bindings raises its own type here
        raise MissingPackage(f"no nvJitLink library: {error}", hint=INSTALL) from error
    return module


def error_of(module: ModuleType, code: Any, doing: str) -> CudaError:
    """The CudaError for a CUresult, with the driver's text and a hint."""
    name = getattr(code, "name", str(code))
    status, text = module.cuGetErrorString(code)
    description = text.decode(errors="replace") if not status and text else "unknown error"
    message = f"{doing}: {description} ({name})"
    hint = HINTS.get(name, "")
    return CudaError(message, code=int(code), name=name, fatal=hint.endswith(_DEAD), hint=hint)


def check(result: tuple[Any, ...], doing: str) -> Any:
    """What a driver call returned besides its CUresult: None, a value or a tuple.

    Raises CudaError.
    """
    if result[0]:
        raise error_of(cu(), result[0], doing)
    return result[1] if len(result) == 2 else result[1:] or None


def call(function: str, *arguments: Any, doing: str = "") -> Any:
    """Call a driver function by name and check its status. ``doing`` is the operation in errors."""
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
    """The address of a driver function, for calls from machine code."""
    found = call("cuGetProcAddress", function.encode(), SINCE, 0, doing=f"looking for {function}")
    return int(found[0])


def version() -> tuple[int, int]:
    """The newest CUDA version that the driver supports: ``(13, 0)``."""
    number = int(call("cuDriverGetVersion"))
    return number // 1000, number % 1000 // 10


@cache
def why_not() -> str:
    """Why no GPU can be used, as a sentence; empty if one can. Never raises."""
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
    """Whether a GPU can be used. Never raises; imports CUDA only if there is a driver."""
    return not why_not()
