"""Running GEMMs and kernels: calls, plans, devices, arrays of any library, the autotuner.

Subpackages: ``arrays`` (array libraries), ``devices`` (virtual machine and GPU behind one
protocol), ``call`` (``matmul`` and ``plan``, a pipeline request → layout → dispatch → launch →
staging) and ``tuning`` (the autotuner and its database).
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from ..builder import kernel
    from ..compile_cache import Cache, CacheWarning, store
    from .arrays.array_view import ArrayKind, ArrayView, register
    from .call.gemm_plan import Plan, plan
    from .call.grouped.grouped_matmul import grouped_matmul
    from .call.kernel_call import launch
    from .call.linear import linear
    from .call.matmul import matmul
    from .devices.cuda_device import CudaDevice
    from .devices.device import device
    from .devices.device_protocol import ExecutionDevice
    from .devices.serialized_kernel import load
    from .devices.tensor_map_argument import ArrayMap, tensor_map
    from .devices.vm_device import VmDevice
    from .moe.moe import moe
    from .tuning.tuning_database import TuningWarning, tuning_database

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "matmul", "linear", "grouped_matmul", "moe", "plan", "Plan",
    "kernel", "launch", "tensor_map", "ArrayMap", "load",
    "ExecutionDevice", "VmDevice", "CudaDevice", "device",
    "ArrayView", "ArrayKind", "register",
    "Cache", "CacheWarning", "store",
    "TuningWarning", "tuning_database",
]  # fmt: skip
