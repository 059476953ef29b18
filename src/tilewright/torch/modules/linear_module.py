"""``Linear``: ``torch.nn.Linear`` with an activation, multiplied by ``tilewright.linear``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import EpilogueError
from ...run.call.linear import ACTIVATIONS, linear


class Linear(torch.nn.Linear):
    """activation(x wᵀ + bias): parameters, initialization and state dict are torch's.

    ``activation``: a name that ``tilewright.linear`` takes, or None. ``run_on``: where CPU tensors
    are multiplied, ``"vm"`` or ``"cuda"``; None is a GPU if there is one.

    Raises EpilogueError for an unknown activation.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        activation: str | None = None,
        run_on: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        if activation is not None and activation not in ACTIVATIONS:
            allowed = ", ".join(ACTIVATIONS)
            raise EpilogueError(f"activation must be one of {allowed}, got {activation!r:.60}")
        self.activation, self.run_on = activation, run_on

    @classmethod
    def from_linear(cls, module: torch.nn.Linear, **options: Any) -> Linear:
        """A layer with the parameters of ``module``, which both then share."""
        made = cls(
            module.in_features, module.out_features, module.bias is not None, "meta",
            module.weight.dtype, **options,
        )  # fmt: skip
        made.weight, made.bias = module.weight, module.bias
        return made.train(module.training)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output (…, out_features)."""
        y: Tensor = linear(
            x, self.weight, self.bias, activation=self.activation, device=self.run_on
        )
        return y

    def extra_repr(self) -> str:
        """The sizes, and what differs from ``torch.nn.Linear``."""
        more = "" if self.activation is None else f", activation={self.activation}"
        return super().extra_repr() + more  # type: ignore[no-any-return]
