"""Running: one ``Device`` over the virtual machine and the GPU, arrays of any library, plans.

``matmul`` is the call, ``plan`` what it would do, ``device`` where. Importing this lets
``kernel[grid, block](…)`` launch.
"""

from ..build import kernel, set_launcher
from ..cache import Cache, CacheWarning, store
from .arrays import ArrayView, Kind, register
from .built import load
from .device import CudaDevice, Device, VmDevice, device
from .launch import launch
from .maps import ArrayMap, tensor_map
from .matmul import matmul
from .plan import Plan, plan
from .tuned import TunedWarning, tuned

set_launcher(launch)

__all__ = [
    "matmul", "plan", "Plan", "kernel", "launch", "tensor_map", "ArrayMap", "load",
    "Device", "VmDevice", "CudaDevice", "device",
    "ArrayView", "Kind", "register",
    "Cache", "CacheWarning", "store",
    "TunedWarning", "tuned",
]  # fmt: skip
