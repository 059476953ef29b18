"""``SparseLinear``: a layer with 2:4 sparse weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ProblemError
from ...sparsity import Sparse24, compress_24
from ..quantized_operators import sparse_linear
from .frozen_linear import FrozenLinear


class SparseLinear(FrozenLinear):
    """activation(x wᵀ + bias) with a ``Sparse24`` matrix N×K of torch tensors, of x's type.

    x and the bias have gradients. The weights' arrays are the buffers ``values`` and ``metadata``.

    >>> SparseLinear.from_linear(layer, prune="magnitude")

    Raises ProblemError for a transposed matrix.
    """

    def __init__(
        self, weights: Sparse24, bias: Any = None, *, activation: str | None = None,
        run_on: str | None = None,
    ) -> None:  # fmt: skip
        if weights.transposed:
            raise ProblemError("weights must be N×K, got a transposed matrix", hint="weights.T")
        super().__init__(weights.shape, bias, activation, run_on)
        assert weights.type is not None
        self.type: str = weights.type
        self.register_buffer("values", weights.values)
        self.register_buffer("metadata", weights.metadata)

    @classmethod
    def from_linear(
        cls, module: torch.nn.Linear, prune: Any = "magnitude", **options: Any
    ) -> SparseLinear:
        """The layer with its weights pruned and compressed by ``compress_24``."""
        made = cls(compress_24(module.weight.detach(), prune), module.bias, **options)
        return made.train(module.training)  # type: ignore[no-any-return]

    @property
    def weights(self) -> Sparse24:
        """The weights as a value, of the same memory."""
        return Sparse24(self.values, self.metadata, self.type)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output (…, N), in x's type."""
        options = {"type": self.type, **self._options()}
        return sparse_linear(x, self.values, self.metadata, self.bias, **options)

    def _weights_repr(self) -> str:
        return f"2:4 sparse {self.type}"
