"""Autocast: the operators of tensors cast to autocast's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .operators import LIBRARY, call


def _autocast(name: str, device: str, key: str) -> Callable[..., Any]:
    """The operator of tensors cast to autocast's type: those of f16, bf16 and f32."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    low = (torch.float16, torch.bfloat16, torch.float32)

    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in low and value.device.type == device:
            return value.to(torch.get_autocast_dtype(device))
        return value

    def kernel(*arrays: Any, **options: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return call(name, *map(cast, arrays), **options)

    return kernel


for _name in ("matmul", "linear", "linear_saved"):
    for _device, _key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        LIBRARY.impl(_name, _autocast(_name, _device, _key), _key)
