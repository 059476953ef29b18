"""Running: one ``Device`` over the virtual machine and the GPU, arrays of any library, plans.

``matmul`` is the call, ``plan`` what it would do, ``device`` where.
"""

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from ..build import kernel
    from ..cache import Cache, CacheWarning, store
    from .arrays import ArrayView, Kind, register
    from .built import load
    from .device import CudaDevice, Device, VmDevice, device
    from .launch import launch
    from .maps import ArrayMap, tensor_map
    from .matmul import matmul
    from .plan import Plan, plan
    from .tuned import TunedWarning, tuned

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "matmul", "plan", "Plan", "kernel", "launch", "tensor_map", "ArrayMap", "load",
    "Device", "VmDevice", "CudaDevice", "device",
    "ArrayView", "Kind", "register",
    "Cache", "CacheWarning", "store",
    "TunedWarning", "tuned",
]  # fmt: skip
