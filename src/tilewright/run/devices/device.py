"""Devices by name.

``device("auto")`` is a GPU if there is one, else the virtual machine; ``"vm"``, ``"vm:A100"``,
``"cuda"`` and ``"cuda:1"`` select one. There is one object per device and process, which threads
may share.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ... import cuda, target
from ...errors import DeviceError, TargetError
from .cuda_device import CudaDevice
from .device_protocol import ExecutionDevice
from .vm_device import VmDevice

_VM_HINT = "device='vm' runs the same kernel, to the same bits, on the CPU"


def device(name: Any = "auto") -> ExecutionDevice:
    """The device of a name: ``auto``, ``vm``, ``vm:A100``, ``cuda``, ``cuda:1``; None is ``auto``.

    An ``ExecutionDevice`` is returned unchanged. Raises DeviceError if there is no such device.
    """
    if name is None or str(name) == "auto":
        return _cuda(None) if cuda.available() else _vm("")
    if hasattr(name, "prepare") and hasattr(name, "upload"):
        instance: ExecutionDevice = name
        return instance
    where, _, which = str(name).partition(":")  # a torch.device, too
    if where == "vm":
        return _vm(which)
    if where == "cuda" and (which.isdecimal() or not which):
        return _cuda(int(which) if which else None)
    raise DeviceError(
        f"unknown device {str(name)!r}",
        hint="devices are 'auto', 'vm', 'vm:A100' and the like, 'cuda', 'cuda:1'"
        + ("; 'vm' is what runs on the CPU" if where == "cpu" else ""),
    )


@cache
def _vm(like: str) -> VmDevice:
    if not like:
        return VmDevice()
    try:
        return VmDevice(target.device_spec(like))
    except TargetError as error:
        raise DeviceError(f"no virtual machine like {like!r}", hint=error.hint) from error


def _cuda(ordinal: int | None) -> CudaDevice:
    reason = cuda.why_not()
    if reason:
        raise DeviceError(f"no GPU can be used: {reason}", hint=_VM_HINT)
    if ordinal is None:
        ordinal = cuda.gpu().ordinal
    return _opened(ordinal)


@cache
def _opened(ordinal: int) -> CudaDevice:
    return CudaDevice(cuda.gpu(ordinal))
