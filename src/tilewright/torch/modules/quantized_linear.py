"""``QuantizedLinear``: a layer with packed weights of 4 to 8 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ProblemError
from ...quantization import Packed, quantize_weight
from ..quantized_operators import packed_linear
from .frozen_linear import FrozenLinear

_ARRAYS = "data", "scales", "zeros", "order", "global_scale"


class QuantizedLinear(FrozenLinear):
    """activation(x wᵀ + bias) with ``Packed`` weights N×K of torch tensors; x is f16 or bf16.

    x and the bias have gradients. The weights' arrays are buffers with the names of ``Packed``'s.

    >>> QuantizedLinear.from_linear(layer, "u4", 128)

    Raises ProblemError for stacks of matrices and for sparse packed weights, DtypeError for types
    without a kernel.
    """

    def __init__(
        self, weights: Packed, bias: Any = None, *, activation: str | None = None,
        run_on: str | None = None,
    ) -> None:  # fmt: skip
        if type(weights) is not Packed:
            raise ProblemError(f"weights must be Packed, got {weights}")
        super().__init__(weights.shape, bias, activation, run_on)
        self.type, self.group = weights.type, weights.group
        self.zero = weights.zeros if isinstance(weights.zeros, int) else None
        for name in _ARRAYS:
            array = getattr(weights, name)
            self.register_buffer(name, array if isinstance(array, Tensor) else None)

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        type: str = "u4",
        group: int | None = 128,
        zeros: str | None = None,
        **options: Any,
    ) -> QuantizedLinear:
        """The layer with its weights quantized by ``quantize_weight``, on the CPU."""
        weight = module.weight.detach()
        packed = quantize_weight(weight.cpu(), type, group, zeros)
        made = cls(packed, module.bias, **options)
        return made.to(weight.device).train(module.training)  # type: ignore[no-any-return]

    @property
    def weights(self) -> Packed:
        """The weights as a value, of the same memory."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.zero is not None:
            arrays["zeros"] = self.zero
        return Packed(**arrays, type=self.type, group=self.group)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output (…, N), in x's type."""
        arrays = (getattr(self, name) for name in _ARRAYS)
        more = {"type": self.type, "group": self.group, "zero": self.zero}
        return packed_linear(x, *arrays, self.bias, **more, **self._options())

    def _weights_repr(self) -> str:
        return f"{self.type} per {self.group}"
