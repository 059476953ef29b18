"""What layers with frozen weights share: sizes, a bias, and where CPU tensors are multiplied."""

from __future__ import annotations

from typing import Any

import torch

from .kept_buffers import KeptBuffers


class FrozenLinear(KeptBuffers):
    """A layer whose weights are buffers, and so in the state dict, and are not trained."""

    in_features: int
    out_features: int

    def __init__(
        self, shape: tuple[int, ...], bias: Any, activation: str | None, run_on: str | None
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = shape
        self.activation, self.run_on = activation, run_on
        if bias is not None and not isinstance(bias, torch.nn.Parameter):
            bias = torch.nn.Parameter(bias)
        self.register_parameter("bias", bias)

    def _options(self) -> dict[str, Any]:
        return {"activation": self.activation, "device": self.run_on}

    def _weights_repr(self) -> str:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The sizes and the format of the weights."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        more = "" if self.activation is None else f", activation={self.activation}"
        return f"{sizes}, bias={self.bias is not None}, {self._weights_repr()}{more}"
