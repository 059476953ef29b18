"""Running: one ``Device`` over the virtual machine and the GPU, arrays of any library, plans.

``matmul`` is the call, ``plan`` what it would do, ``device`` where.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from ..builder import kernel
    from ..compile_cache import Cache, CacheWarning, store
    from .arrays.array_view import ArrayView, Kind, register
    from .call.gemm_plan import Plan, plan
    from .call.matmul import matmul
    from .devices.device import CudaDevice, Device, VmDevice, device
    from .devices.kernel_call import launch
    from .devices.serialized_kernel import load
    from .devices.tensor_map_argument import ArrayMap, tensor_map
    from .tuning.tuning_database import TunedWarning, tuned

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "matmul", "plan", "Plan", "kernel", "launch", "tensor_map", "ArrayMap", "load",
    "Device", "VmDevice", "CudaDevice", "device",
    "ArrayView", "Kind", "register",
    "Cache", "CacheWarning", "store",
    "TunedWarning", "tuned",
]  # fmt: skip
