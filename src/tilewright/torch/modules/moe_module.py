"""``MoE``: a router and a layer of experts with a gated activation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...errors import EpilogueError, ProblemError
from ...run.call.linear import ACTIVATIONS
from ...run.moe.moe import moe


class MoE(torch.nn.Module):
    """y[t] = Σ_e p[t, e] · w_down[e] (act(w_gate[e] x[t]) · w_up[e] x[t]) over the ``top_k``
    experts e of the largest router probabilities p.

    Parameters: ``router.weight`` (experts, hidden), ``w_up`` and ``w_gate`` (experts, intermediate,
    hidden), ``w_down`` (experts, hidden, intermediate), initialized as torch.nn.Linear's. The
    probabilities are the softmax of the router's logits in f32; ``normalize`` divides those of the
    chosen experts by their sum. Experts compute in f16 or bf16, as x or autocast is. ``run_on``:
    where CPU tensors are multiplied, ``"vm"`` or ``"cuda"``; None is a GPU if there is one.

    Raises ProblemError for sizes that are not positive, or a ``top_k`` above ``experts``,
    EpilogueError for an unknown activation.
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        experts: int,
        top_k: int,
        *,
        activation: str = "silu",
        normalize: bool = True,
        device: Any = None,
        dtype: Any = None,
        run_on: str | None = None,
    ) -> None:
        super().__init__()
        sizes = {"hidden": hidden, "intermediate": intermediate, "experts": experts, "top_k": top_k}
        for name, size in sizes.items():
            if size < 1:
                raise ProblemError(f"{name} must be at least 1, got {size}")
        if top_k > experts:
            raise ProblemError(f"top_k must be at most experts ({experts}), got {top_k}")
        if activation not in ACTIVATIONS:
            allowed = ", ".join(ACTIVATIONS)
            raise EpilogueError(f"activation must be one of {allowed}, got {activation!r:.60}")
        self.top_k, self.activation, self.normalize = top_k, activation, normalize
        self.run_on = run_on
        made = {"device": device, "dtype": dtype}
        self.router = torch.nn.Linear(hidden, experts, bias=False, **made)
        up, down = (experts, intermediate, hidden), (experts, hidden, intermediate)
        self.w_up, self.w_gate, self.w_down = (
            torch.nn.Parameter(torch.empty(shape, **made)) for shape in (up, up, down)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the experts' weights as torch.nn.Linear's."""
        for weights in (self.w_up, self.w_gate, self.w_down):
            bound = 1 / math.sqrt(weights.shape[-1])
            torch.nn.init.uniform_(weights, -bound, bound)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The chosen experts (tokens, top_k) of rows x, their probabilities in f32, and the logits
        (tokens, experts), for a loss that balances the experts.
        """
        logits = self.router(x)
        found, indices = torch.softmax(logits.float(), -1).topk(self.top_k, -1)
        if self.normalize:
            found = found / found.sum(-1, keepdim=True)
        return indices, found, logits

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, of x's shape (…, hidden)."""
        rows = x.reshape(-1, x.shape[-1])
        indices, found, _ = self.route(rows)
        y: Tensor = moe(
            rows, self.w_up, self.w_gate, self.w_down, indices, found,
            activation=self.activation, device=self.run_on,
        )  # fmt: skip
        return y.reshape(x.shape)

    def extra_repr(self) -> str:
        """The sizes and the activation."""
        experts, intermediate, hidden = self.w_up.shape
        return (
            f"hidden={hidden}, intermediate={intermediate}, experts={experts}, "
            f"top_k={self.top_k}, activation={self.activation}"
        )
