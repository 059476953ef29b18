"""``QuantizedLinear``: a layer with packed weights of 4 to 8 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ProblemError
from ...quantization import Packed, SparsePacked, quantize_weight
from ...sparsity import compress_24
from ..quantized_operators import packed_arrays, packed_linear, packed_weights
from .frozen_linear import FrozenLinear

_ARRAYS = SparsePacked.array_names


class QuantizedLinear(FrozenLinear):
    """activation(x wᵀ + bias) with ``Packed`` or ``SparsePacked`` weights N×K of torch tensors; x
    is f16 or bf16.

    x and the bias have gradients. The weights' arrays are buffers with the names of the weights'.

    >>> QuantizedLinear.from_linear(layer, "u4", 128)
    >>> QuantizedLinear.from_linear(layer, "u4", 128, prune="magnitude")

    Raises ProblemError for transposed weights and stacks of matrices, DtypeError for types without
    a kernel.
    """

    def __init__(
        self, weights: Packed, bias: Any = None, *, activation: str | None = None,
        run_on: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(weights, Packed):
            raise ProblemError(f"weights must be Packed, got {type(weights).__name__}")
        if weights.transposed or len(weights.shape) != 2:
            raise ProblemError(f"weights must be a matrix N×K, not transposed, got {weights}")
        super().__init__(weights.shape, bias, activation, run_on)
        arrays, options = packed_arrays(weights)
        self.type, self.group, self.zero = options["type"], options["group"], options["zero"]
        for name, array in zip(_ARRAYS, arrays, strict=True):
            self.register_buffer(name, array)

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        type: str = "u4",
        group: int | None = 128,
        zeros: str | None = None,
        prune: Any = None,
        **options: Any,
    ) -> QuantizedLinear:
        """The layer with its weights quantized by ``quantize_weight`` and, with ``prune``, which is
        ``"magnitude"`` or a mask, compressed by ``compress_24``; on the CPU.
        """
        weight = module.weight.detach()
        packed = quantize_weight(weight.cpu(), type, group, zeros)
        if prune is not None:
            packed = compress_24(packed, prune)
        made = cls(packed, module.bias, **options)
        return made.to(weight.device).train(module.training)  # type: ignore[no-any-return]

    @property
    def _arrays(self) -> list[Tensor | None]:
        return [getattr(self, name) for name in _ARRAYS]

    @property
    def weights(self) -> Packed:
        """The weights as a value, of the same memory."""
        return packed_weights(self._arrays, self.type, self.group, self.zero)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output (…, N), in x's type."""
        more = {"type": self.type, "group": self.group, "zero": self.zero}
        return packed_linear(x, *self._arrays, self.bias, **more, **self._options())

    def _weights_repr(self) -> str:
        sparse = "" if self.metadata is None else "2:4 sparse "
        return f"{sparse}{self.type} per {self.group}"
