"""Buffers whose type is part of a format: ``module.to(dtype)`` and ``half()`` move them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class KeptBuffers(torch.nn.Module):
    """A module whose own buffers keep their type when the module is converted to another."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        buffers = {name: tensor for name, tensor in self._buffers.items() if tensor is not None}
        for name in buffers:
            self._buffers[name] = None
        try:
            super()._apply(fn, recurse)
        finally:
            self._buffers.update(buffers)
        for name, tensor in buffers.items():
            moved = fn(tensor)
            same_type = moved.dtype == tensor.dtype
            self._buffers[name] = moved if same_type else tensor.to(moved.device)
        return self
