"""Autocast: the operators of tensors cast to autocast's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .registration import AUTOCAST, LIBRARY, call

FLOATS = torch.float16, torch.bfloat16, torch.float32


def autocast(name: str, count: int | None = None, like: int | None = None) -> None:
    """Let an operator cast tensors of f16, bf16 and f32 to autocast's type, where that is on; all
    of its tensors, or the first ``count``. With ``like`` the type is that of this tensor, if it is
    one of the three.
    """
    for device, key in AUTOCAST.items():
        LIBRARY.impl(name, _kernel(name, device, key, count, like), key.name)


def _kernel(
    name: str, device: str, key: Any, count: int | None, like: int | None
) -> Callable[..., Any]:
    """The operator of cast tensors, below autocast."""
    keys = torch._C.DispatchKeySet(key)

    def cast(value: Any, dtype: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.dtype in FLOATS
        return value.to(dtype) if is_float and value.device.type == device else value

    def kernel(*arrays: Any, **options: Any) -> Any:
        dtype = torch.get_autocast_dtype(device) if like is None else arrays[like].dtype
        if dtype in FLOATS:
            first = [cast(array, dtype) for array in arrays[:count]]
            arrays = (*first, *arrays[len(first) :])
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return call(name, *arrays, **options)

    return kernel
