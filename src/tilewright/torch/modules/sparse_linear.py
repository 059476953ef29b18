"""``SparseLinear``: a layer with 2:4 sparse weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...errors import DtypeError, ProblemError
from ...sparsity import Sparse24, compress_24
from ..quantized_operators import sparse_linear
from .frozen_linear import FrozenLinear

_HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}
_FLOATS = (*_HALVES, torch.float32, torch.float64)


class SparseLinear(FrozenLinear):
    """activation(x wᵀ + bias) with a ``Sparse24`` matrix N×K of torch tensors, of x's type.

    x and the bias have gradients. The weights' arrays are the buffers ``values`` and ``metadata``;
    ``to`` converts f16 and bf16 values into each other. 8-bit values keep their type.

    >>> SparseLinear.from_linear(layer, prune="magnitude")

    Raises ProblemError for a transposed matrix, and DtypeError from ``to`` and ``float`` where f32
    or f64 values would become 16-bit ones or the reverse: tf32 is 1:2 sparse.
    """

    values: Tensor
    metadata: Tensor

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

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        old, new = self.values.dtype, fn(self.values[:0]).dtype
        if old != new and old in _FLOATS and not {old, new} <= set(_HALVES):
            raise DtypeError(
                f"sparse values of {old} must become float16 or bfloat16 from the other, got {new}",
                hint="convert the model before SparseLinear.from_linear",
            )
        super()._apply(fn, recurse)
        if old in _HALVES and new != old:
            self.values = self.values.to(new)
            self.type = _HALVES[new]
        return self

    def _weights_repr(self) -> str:
        return f"2:4 sparse {self.type}"
