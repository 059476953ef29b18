"""``Fp8Linear``: a layer that trains in 8-bit floats, with dynamic or delayed scaling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ProblemError
from ..fp8_layer import GRANULARITIES, fp8_linear
from .kept_buffers import KeptBuffers
from .linear_module import Linear

SCALINGS = "dynamic", "delayed"
_E4M3, _E5M2 = 448.0, 57344.0  # the largest numbers: for x and w, for the gradient of y


class Fp8Linear(KeptBuffers, Linear):
    """x wᵀ + bias, all three products of a training step in 8-bit floats (``fp8_linear``).

    The parameters stay in their type. ``scaling``: ``"dynamic"`` computes scales from each tensor,
    per ``granularity`` (``"tensor"`` or ``"row"``); ``"delayed"`` takes them from the largest
    magnitudes of the last ``history`` training steps, which saves a pass over each tensor, and
    saturates what has grown since. The magnitudes are buffers, and so part of the state dict.

    Raises ProblemError for other values.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        scaling: str = "dynamic",
        granularity: str = "tensor",
        history: int = 16,
        fast_accum: bool = False,
        run_on: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype, run_on=run_on)
        if scaling not in SCALINGS or (scaling == "delayed" and granularity != "tensor"):
            raise ProblemError(
                f"scaling must be 'dynamic', or 'delayed' per tensor, got {scaling!r:.40} per "
                f"{granularity!r:.40}"
            )
        if granularity not in GRANULARITIES:
            raise ProblemError(f"granularity must be 'tensor' or 'row', got {granularity!r:.40}")
        self.scaling, self.granularity, self.fast_accum = scaling, granularity, fast_accum
        if scaling == "delayed":
            self._start_history(history)

    def _start_history(self, history: int) -> None:
        """Buffers of magnitudes, of which the weights' alone is known: other scales begin as 1."""
        where = self.weight.device
        amaxes = torch.zeros(3, device=where)
        amaxes[1] = self.weight.detach().abs().amax()
        self.register_buffer("amax_history", torch.zeros(3, history, device=where))
        self.register_buffer("amaxes", amaxes)

    @classmethod
    def from_linear(cls, module: torch.nn.Linear, **options: Any) -> Fp8Linear:
        """A layer with the parameters of ``module``, which both then share."""
        made = super().from_linear(module, **options)
        assert isinstance(made, Fp8Linear)
        if made.scaling == "delayed":
            made._start_history(made.amax_history.shape[1])
        return made

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output (…, out_features), in x's type."""
        options: dict[str, Any] = {"fast_accum": self.fast_accum, "device": self.run_on}
        if self.scaling == "dynamic":
            options["granularity"] = self.granularity
            return fp8_linear(x, self.weight, self.bias, **options)[0]
        scales = self._next_scales()
        options |= {"scales": scales, "amaxes": self.amaxes}
        y, found = fp8_linear(x, self.weight, self.bias, **options)
        if self.training:
            self.amaxes[:2].copy_(found)
        return y

    def _next_scales(self) -> Tensor:
        """The scales of x, w and the gradient of y in this step."""
        with torch.no_grad():
            if self.training:
                older = self.amax_history[:, :-1]
                self.amax_history.copy_(torch.cat([self.amaxes[:, None], older], 1))
            amax = self.amax_history.amax(1)
            scaled = torch.cat([amax[:2] / _E4M3, amax[2:] / _E5M2])
            known = (amax > 0) & amax.isfinite()
            scales: Tensor = torch.where(known, scaled, 1.0)
            return scales

    def extra_repr(self) -> str:
        """The sizes and the scaling."""
        return f"{super().extra_repr()}, {self.scaling} scaling per {self.granularity}"
