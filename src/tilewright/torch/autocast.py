"""Autocast: the operators of tensors cast to autocast's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .registration import AUTOCAST, LIBRARY, call


def autocast(name: str, count: int | None = None) -> None:
    """Let an operator cast tensors of f16, bf16 and f32 to autocast's type, where that is on; all
    of its tensors, or the first ``count``.
    """
    for device, key in AUTOCAST.items():
        LIBRARY.impl(name, _kernel(name, device, key, count), key.name)


def _kernel(name: str, device: str, key: Any, count: int | None) -> Callable[..., Any]:
    """The operator of cast tensors, below autocast."""
    keys = torch._C.DispatchKeySet(key)
    low = (torch.float16, torch.bfloat16, torch.float32)

    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in low and value.device.type == device:
            return value.to(torch.get_autocast_dtype(device))
        return value

    def kernel(*arrays: Any, **options: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return call(name, *map(cast, arrays[:count]), *arrays[len(arrays[:count]) :], **options)

    return kernel
